# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A small transformer meets a stranger
#
# - **You will be able to** ask a transformer for any activation by name, train one on logic problems, and show
#   in numbers what it does with names it never saw.
# - **Needs** [Symbols in context](01_symbols_in_context.ipynb). Trains a model live, on one processor core.
# - **Minutes** thirty to read, about one to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, evaluation, exercises, experiments
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import torch

from lib import ledger
from lib.generators import logic, stream
from lib.models.transformer import Transformer, initialise
from lib.plotting import curves, figure, say, show, style
from lib.training import train

style()

# %% [markdown]
# ## The model
#
# A decoder-only transformer reads tokens from left to right and, at each position, scores every token of the
# vocabulary as the next one. Ours is small. It has two layers, and its embedding and unembedding are *tied*:
# one matrix serves for reading and for writing.

# %%
config = experiments.logic_run("laptop", steps=800, seed=0)
print(config.model)
model = initialise(Transformer(config.model), stream(config.seed, "weights"))
sizes = {name: p.numel() for name, p in model.named_parameters()}
print(
    f"{sum(sizes.values()):,} parameters, {sizes['W_E']:,} of them in the embedding"
)

# %% [markdown]
# The path of a token is short. Its row of `W_E` and the vector of its position are added: that is the residual
# stream at its position. Each layer reads a normalised copy of the stream, and adds to it twice: first what
# attention fetched from earlier positions, then what an MLP makes of it. At the end the stream is normalised
# once more, and multiplied with the rows of `W_U`.
#
# Every stage has a name. `run` returns any of them.

# %%
tokens = logic.sample(config.task, 2, stream(1, "chapter")).tokens
for name, activation in model.run(tokens).items():
    print(f"{name:22} {tuple(activation.shape)}")

# %% [markdown]
# A name that does not exist is answered with its neighbours. Nothing is returned in silence.

# %%
try:
    model.run(tokens, ["blocks.1.patern"])
except ValueError as error:
    print(error)

# %% [markdown]
# ## Train it
#
# A batch is 128 fresh problems over seen names. The loss counts the answer only: the prompt is random, and there
# is nothing to learn from guessing it. Eight hundred steps take less than a minute.
#
# :::{admonition} Predict before you run
# :class: predict
# In chapter 1 copying the query was right for all True problems and for no False one. Which half will be learned
# first, and by how many steps?
# :::

# %% tags=["nbval-ignore-output"]
torch.set_num_threads(1)  # so small a model gains nothing from more
run = train(config, device="cpu")
print("seen names       chain right     verdict right     whole right")
print("step   loss     True   False     True   False     True   False")
for row in run.history:
    shares = [
        f"{row[f'{measure}_seen_true']:9.2f} {row[f'{measure}_seen_false']:7.2f}"
        for measure in ("chain", "verdict", "whole")
    ]
    print(f"{row['step']:4} {row['loss']:6.2f}" + "".join(shares))

# %% [markdown]
# The processor has a say in the last digits, and after hundreds of steps in the second digit too. So the numbers
# above are yours, and the text makes no use of them. What must hold on every machine is a bound. It comes from
# stored runs of the same model at the same step: ten other seeds, on one thread and on two. We leave a fifth below
# the worst of them as a margin.

# %%
live = ledger.live(config.steps)
bound = 0.8 * live["whole_seen"].min()
say(
    f"Over {len(live)} stored runs ({live['seed'].nunique()} seeds, on 1 and 2 threads) the share of whole "
    f"answers right on seen names after {config.steps} steps has median {live['whole_seen'].median():.2f} and "
    f"lowest value {live['whole_seen'].min():.2f}. We ask your run for more than {bound:.2f}."
)

# %%
last = run.history[-1]
seen_now = (last["whole_seen_true"] + last["whole_seen_false"]) / 2
assert seen_now > bound, (
    f"only {seen_now:.2f} of whole answers right: did something in lib change?"
)

# %% [markdown]
# ## Look inside
#
# Take one problem and watch where the second layer looks while it writes the answer. A row is a position that
# writes; a column is a position that it reads. The token to be written stands after the arrow.

# %% tags=["hide-input", "nbval-ignore-output"]
model = run.model
one = logic.sample(config.task, 1, stream(6, "chapter"), "seen", True).tokens
words = logic.decode(config.task, one[0]).split()
pattern = model.run(one[:, :-1], ["blocks.1.pattern"])["blocks.1.pattern"][
    0
].detach()
writers = range(config.task.prompt_length - 1, config.task.length - 1)

fig, axes = figure("wide", rows=4, cols=1, aspect=0.21, sharex=True)
for head, ax in enumerate(axes):
    ax.imshow(pattern[head, list(writers)], vmin=0, vmax=1, aspect="auto")
    ax.set_yticks(
        range(len(writers)),
        [f"{words[i]} → {words[i + 1]}" for i in writers],
        fontsize=7,
    )
    ax.set_title(f"head {head}", fontsize=8, loc="left")
    ax.grid(False)
axes[-1].set_xticks(
    range(len(words) - 1), words[:-1], rotation=90, fontsize=7
)
reads = pattern[:, list(writers)].sum(0).argmax(1)
show(
    fig,
    "Attention of the four heads of layer 1 at the answer positions. Summed over heads, the positions that "
    "write " + ", ".join(words[i + 1] for i in writers) + " look most at "
    + ", ".join(words[int(j)] for j in reads) + ".",
    "Where the second layer looks while it writes the answer.",
)  # fmt: skip

# %% [markdown]
# If the heads, taken together, look at the place right after the arrow of the right rule, they look at the very token
# that is to be copied. To find it, the model must have matched the current name with the left side of that rule. Then
# the machine compares names and copies names, and nothing about it *seems* to need a particular name. One picture
# proves little, so we count.

# %% tags=["nbval-ignore-output"]
many = logic.sample(config.task, 500, stream(7, "chapter"), "seen").tokens
patterns = (
    model.run(many[:, :-1], ["blocks.1.pattern"])["blocks.1.pattern"]
    .detach()
    .sum(1)
)
hits = []
for i, row in enumerate(many):
    # from the fact on, each position writes the next name of the chain
    for writer in list(writers)[1:-1]:
        where = int(patterns[i, writer, : 6 * config.task.depth].argmax())
        hits.append(row[where] == row[writer + 1] and where % 3 == 2)
share = float(sum(hits)) / len(hits)
print(f"strongest look within the rules at the due right side: {share:.2f}")
print(f"by chance: {1 / (6 * config.task.depth):.2f}")

# %%
assert share > 0.2, "the second layer should look at the token to be copied"

# %% [markdown]
# ## The stranger
#
# Now the other two test sets. The same model, the same rules, other names.

# %% tags=["nbval-ignore-output"]
print(f"{'test set':14} {'half':6} chain  verdict  whole answer")
for split in logic.SPLITS:
    for half in evaluation.HALVES:
        values = [
            last[f"{m}_{split}_{half}"] for m in ("chain", "verdict", "whole")
        ]
        print(
            f"{split:14} {half:6} {values[0]:5.2f} {values[1]:8.2f} {values[2]:13.2f}"
        )

# %%
drop = last["whole_seen_true"] - last["whole_query_unseen_true"]
assert drop > 0.3, "the model should fail where the queried name is unseen"
say(
    "With the queried name unseen, far fewer whole answers are right. Read it off the table above."
)

# %% [markdown]
# What does it write in place of the stranger? Here are six problems whose query is unseen, the model writing
# freely, token by token.

# %% tags=["nbval-ignore-output"]
six = logic.sample(
    config.task, 6, stream(8, "chapter"), "query_unseen", True
).tokens
for prompt, wrote in zip(
    six, evaluation.greedy(model, six, config.task.answer_length), strict=True
):
    due = logic.decode(config.task, prompt[-config.task.answer_length :])
    print(f"due {due:22}  wrote {logic.decode(config.task, wrote)}")

# %% [markdown]
# ## Ten seeds, longer
#
# One run is an anecdote. Here are ten stored runs with other seeds, trained on to step 2400. Every thin line is one
# seed. The upper row shows whole answers, the lower one the chain of names alone.

# %% tags=["hide-input"]
stored = ledger.arm("standard")
stored["whole_seen"] = ledger.halves(stored, "whole_seen")
stored["whole_all_unseen"] = ledger.halves(stored, "whole_all_unseen")
stored["chain_seen"] = ledger.halves(stored, "chain_seen")
stored["chain_all_unseen"] = ledger.halves(stored, "chain_all_unseen")
panels = {
    "seen": "all names seen",
    "query_unseen_true": "query unseen (True)",
    "all_unseen": "all names unseen",
}
fig, axes = figure(
    "wide", rows=2, cols=3, aspect=0.8, sharex=True, sharey=True
)
for measures, measure in zip(axes, ("whole", "chain")):
    for ax, (column, title) in zip(measures, panels.items()):
        curves(ax, stored, "step", f"{measure}_{column}", "standard")
        ax.set(ylim=(-0.03, 1.03))
        if measure == "whole":
            ax.set_title(title)
        else:
            ax.set_xlabel("step")
    measures[0].set_ylabel(
        {"whole": "whole answers", "chain": "chains"}[measure]
    )
end = stored[stored["step"] == ledger.LAST]
show(
    fig,
    "Shares right over training, ten seeds; medians at the last step. "
    + "; ".join(
        f"{title}: whole answers {end[f'whole_{column}'].median():.2f}, "
        f"chains {end[f'chain_{column}'].median():.2f}"
        for column, title in panels.items()
    )
    + ".",
    "The task is learned on seen names. Unseen names are another matter.",
)

# %%
solved = int((end["whole_seen"] >= ledger.LEARNED).sum())
low, high = claims.wilson(solved, len(end))
say(
    f"After {ledger.LAST} steps {solved} of {len(end)} seeds solve at least {ledger.LEARNED:.0%} of fresh problems "
    f"over seen names (95 % Wilson interval [{low:.2f}, {high:.2f}]). Whole answers right with the query unseen: median "
    f"{end['whole_query_unseen_true'].median():.2f}, from {end['whole_query_unseen_true'].min():.2f} to "
    f"{end['whole_query_unseen_true'].max():.2f}. With all names unseen: median {end['whole_all_unseen'].median():.2f}, "
    f"from {end['whole_all_unseen'].min():.2f} to {end['whole_all_unseen'].max():.2f}."
)

# %% [markdown]
# And this is what stands where an unseen name was due. The right answer so far was given, so that no earlier mistake
# is to blame. (With all names unseen no seen name stands in the problem, so that kind cannot occur there.)

# %%
names = {
    "right": "the right unseen name",
    "other_unseen": "another unseen name",
    "seen_here": "a seen name of the problem",
    "seen_elsewhere": "a seen name from elsewhere",
    "special": "T, F or another special token",
}
for split in ("query_unseen", "all_unseen"):
    print(
        f"{split}, True half, step {ledger.LAST}: median over seeds [lowest, highest]"
    )
    for kind, words_for in names.items():
        share = end[f"writes_{kind}_{split}"]
        print(
            f"   {words_for:32} {share.median():.2f} [{share.min():.2f}, {share.max():.2f}]"
        )

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.7, sharey=True)
for ax, split in zip(axes, ("query_unseen", "all_unseen"), strict=True):
    written = (
        1
        - stored[f"writes_right_{split}"]
        - stored[f"writes_other_unseen_{split}"]
    )
    curves(
        ax,
        stored.assign(not_unseen=written),
        "step",
        "not_unseen",
        "standard",
    )
    ax.set(title=split, xlabel="step", ylim=(-0.03, 1.03))
axes[0].set_ylabel("no unseen name written")
last_shares = [
    1 - end[f"writes_right_{s}"] - end[f"writes_other_unseen_{s}"]
    for s in ("query_unseen", "all_unseen")
]
show(
    fig,
    "Share of due unseen names in whose place no unseen name is written, over training. Medians at the "
    f"last step: {last_shares[0].median():.2f} with the query unseen, {last_shares[1].median():.2f} with "
    "all names unseen.",
    "How often something other than an unseen name is written where one was due.",
)

# %% [markdown]
# ## The verdicts
#
# Before these ten runs were made, we wrote down what would count. The verdicts follow from the stored numbers by
# a program that anyone can read. Read A2 with care: "with a condition" means that some sub-claims did not pass, and
# here it is the main sentence. The model *does* write unseen names now and then, also the right one.

# %%
by_id = {claim.id: claim for claim in ledger.LEDGER}
say(
    f"**A1** {by_id['A1'].statement}: **{claims.verdict(by_id['A1'])[0]}**.\n\n{claims.evidence(by_id['A1'])}"
)

# %%
say(
    f"**A2** {by_id['A2'].statement}: **{claims.verdict(by_id['A2'])[0]}**.\n\n{claims.evidence(by_id['A2'])}"
)

# %% [markdown]
# ## Doubts
#
# *Is it the position?* No: the three test sets share their layout. Only names differ.
#
# *Is the unseen name perhaps not even read properly?* Give the model the right chain and ask for the verdict alone. On
# True problems it must see that the last name and the query are the same stranger.

# %%
for split in ("seen", "query_unseen", "all_unseen"):
    right = [end[f"verdict_{split}_{half}"] for half in ("true", "false")]
    told = ", ".join(
        f"{r.median():.2f} [{r.min():.2f}, {r.max():.2f}]" for r in right
    )
    print(
        f"verdict right, chain given, {split:12} True half, False half: {told}"
    )

# %%
strangers = end["verdict_query_unseen_true"]
assert strangers.median() < 0.5 < end["verdict_query_unseen_false"].median()
say(
    f"With the chain given, the verdict on True problems with an unseen query is right in "
    f"{strangers.median():.2f} of cases [{strangers.min():.2f}, {strangers.max():.2f}]. The model says F to nearly every "
    "stranger. So the doubt stands: besides the failure to write, there is a failure to see that two tokens are "
    "*the same*."
)

# %% [markdown]
# *Does the collapse of rows explain it?* Paper A says so, and the next chapter looks. Keep one thing in mind already:
# to write a name, its unembedding row must win against a thousand others that have been pushed *up* whenever they
# were right. A row that has only ever been pushed down may lose for that reason alone.

# %% [markdown]
# ## Summary
#
# - A two-layer transformer learns to follow rules in context, on fresh problems over names it knows.
# - Its second layer looks at the token to be copied.
# - The same model fails when that token has never occurred in training, and the table says what it writes instead.
# - It fails twice: it seldom writes the stranger, and it does not see that two strangers are the same.
# - One seed shows an effect, ten show how far to trust it.

# %% [markdown]
# ## What would change our mind
#
# If a fresh seed that solves seen names also wrote unseen ones, A1 would need a condition. Run
# `python -m lib run logic --seed 99` and look. A larger model may behave otherwise: replace `d_model` or `n_layers` in
# `config.model` and see.

# %% [markdown]
# ## Exercises
#
# **1. What was written?** (easy, 10 minutes). Write the function behind the table above for a single token. It
# gets the token that was written, the problem's tokens, the token that was due, and the task. It returns
# `right`, `other_unseen`, `seen_here`, `seen_elsewhere` or `special`.


# %%
def my_kind(written, problem, due, task):
    """Return the kind of token that stands in the place of an unseen name."""


exercises.check_kind(my_kind)

# %% [markdown]
# **2. Which half first?** (medium, 15 minutes). For each of the ten stored seeds, find the first measured step at which
# the chain is right for half of the True problems, and for half of the False ones. Which comes first, and which short
# cut of chapter 1 explains it?
#
# **3. A fairer vote** (hard, 20 minutes). Restrict the argmax to names that stand in the problem. How much of the
# failure is left, and what does this say about *reading* against *writing*?
#
# Worked solutions stand on [their own page](../solutions/unseen_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [Watching the collapse](03_watching_the_collapse.ipynb) follows the rows of unseen names through training.
