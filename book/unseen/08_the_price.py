# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The price
#
# - **You will be able to** read a loss in nats a token against three honest yardsticks, say what a frozen or
#   forgotten embedding costs where tokens mean something, and take that cost apart.
# - **Needs** [Watching the collapse](03_watching_the_collapse.ipynb) for the measures of rows, and
#   [Freezing and forgetting](06_freezing_and_forgetting.ipynb) for the two cures. Trains four small language models
#   live, 200 steps each, on one processor core.
# - **Minutes** thirty-five to read, one to two to run.
# - **Memory** a little over 1 GB: a tokenizer reads some megabytes of text.

# %%
try:
    from lib import claims, exercises, experiments, geometry, ledger
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import math

import torch

from lib.generators import stream, text
from lib.ledger.price import price
from lib.plotting import GREY, curves, figure, look, say, show, style
from lib.training import train

style()
torch.set_num_threads(1)  # so small a model gains nothing from more

# %% [markdown]
# ## Where tokens mean something
#
# In the logic task a name means nothing. Swap two names everywhere, and the problem is the same. A row of the
# embedding has one duty there: to differ from the other rows. A random row does that perfectly. A table that
# stays random, or is drawn anew again and again, loses nothing that the task needs.
#
# Language is not like that. After `return` some tokens are likely and others are not. `x` and `y` are used alike,
# `x` and `)` are not. A row is where a model can write such things down. What if it may not? Paper A
# {cite}`lazic2026unseen` says that its cure has a price in language modelling. This chapter weighs it.

# %% [markdown]
# ## A text that you already have
#
# PyTorch needs SymPy {cite}`meurer2017sympy`, a computer algebra system written in Python. So everyone who can run
# this book has its source files: real text, written by people, with comments, in one language. We take them as they
# are, tests and benchmarks left out, and split them *by file* into a training, a validation and a test part.
#
# The text is cut into tokens by byte pair encoding {cite}`sennrich2016bpe`. It begins with the 256 bytes and joins
# the most frequent pair of neighbours into a new token, over and over, until there are 1024 tokens. Only the
# training part is used for that. Then we add 100 *reserved* tokens, which no text contains.

# %% tags=["nbval-ignore-output"]
task = text.TextConfig()
tokenizer = text.trained_tokenizer(task.vocabulary)
parts = {part: text.encoded(task.vocabulary, part) for part in text.PARTS}
for part, ids in parts.items():
    files = text.sources(part)
    size = sum(len(content) for _, content in files)
    print(
        f"{part:10} {len(files):4} files {size:11,} characters {len(ids):10,} tokens"
    )

# %%
assert all(int(ids.max()) < task.vocabulary for ids in parts.values())

# %% [markdown]
# A model sees windows of 65 tokens and predicts each but the first. Here is one, first as text, then token by token.

# %% tags=["nbval-ignore-output"]
window = text.spread(task, 5, "validation").tokens[2]
print(tokenizer.decode(window.tolist()))
print()
for line in window.split(13):
    print("  ".join(repr(tokenizer.decode([int(i)])) for i in line))

# %% [markdown]
# ### Unseen tokens that nobody reserved
#
# A thousand tokens learned from the text itself: surely each occurs? Count.

# %% tags=["nbval-ignore-output"]
counts = torch.bincount(parts["train"].long(), minlength=task.d_vocab)
never = [i for i in task.seen if counts[i] == 0]
print(
    f"{len(never)} of {task.vocabulary} ordinary tokens never occur in training"
)
for part in ("validation", "test"):
    there = torch.bincount(parts[part].long(), minlength=task.d_vocab)
    print(f"   of these, in the {part} part: {int((there[never] > 0).sum())}")

# %%
assert len(never) >= 20

# %% [markdown]
# Nearly all of them are single bytes. The alphabet holds all 256, so that any text can be written, and Python code
# needs few beyond ASCII. This is no oddity of ours. Land and Bartolo {cite}`land2024fishing` find such under-trained tokens in
# the vocabularies of many released models. The unseen token is not a laboratory animal.

# %% [markdown]
# ## Yardsticks
#
# The loss of a language model is the mean of $-\ln p$, where $p$ is the probability that it gave to the token that
# came next. The unit is the *nat*. Its exponential is the **perplexity**: a model with loss $\ln 20$ is as
# uncertain as one that chooses fairly among 20 tokens.
#
# Is a loss of five good? Three predictors that are no neural networks make a scale:
#
# - **nothing known**: every token is equally likely;
# - **frequencies**: each token by its share of the training text, whatever came before;
# - **pairs**: a table of which token follows which, counted in the training text. Rare pairs are mixed with the
#   frequencies.


# %%
def tables(mix=10):
    """Log-probabilities of the next token: frequencies [d_vocab], pairs [d_vocab, d_vocab]."""
    ids = parts["train"].long()
    frequencies = (counts + 0.1) / (counts + 0.1).sum()
    pairs = torch.bincount(
        ids[:-1] * task.d_vocab + ids[1:], minlength=task.d_vocab**2
    ).view(task.d_vocab, task.d_vocab)
    mixed = pairs + mix * frequencies
    return frequencies.log(), (mixed / mixed.sum(1, keepdim=True)).log()


frequencies, pairs = tables()
yard = {}
for part in ("validation", "test"):
    now, after = parts[part][:-1].long(), parts[part][1:].long()
    yard[part] = {
        "nothing known": math.log(task.d_vocab),
        "frequencies": -float(frequencies[after].mean()),
        "pairs": -float(pairs[now, after].mean()),
    }

# %% tags=["nbval-ignore-output"]
print(f"{'nats a token':15}  validation   test   perplexity on test")
for name, value in yard["test"].items():
    print(
        f"{name:15} {yard['validation'][name]:11.2f} {value:6.2f} {math.exp(value):12.0f}"
    )

# %% [markdown]
# :::{admonition} Predict before you run
# :class: predict
# We train a model of two layers that learns its embedding, and one whose embedding stays at its random start. All
# else is equal: data, size, step size, number of steps. Where on this scale do they end after 2400 steps? Does the
# frozen one beat the pairs?
# :::

# %% [markdown]
# ## Learned and frozen, live
#
# The preset `text`: two layers, width 64, rotary positions {cite}`su2021rope`, tied, AdamW. Here 200 steps, one
# twelfth of what the stored runs do.

# %% tags=["nbval-ignore-output"]
short = {"seed": 0, "steps": 200, "eval_every": 50, "eval_problems": 128}
configs = {
    name: experiments.logic_run("text", name, **short)
    for name in ("standard", "freeze")
}
runs = {name: train(config, device="cpu") for name, config in configs.items()}
print("validation loss, nats a token\nstep  standard   freeze")
for learned, frozen in zip(
    runs["standard"].history, runs["freeze"].history, strict=True
):
    print(
        f"{learned['step']:4} {learned['loss_validation']:9.2f} {frozen['loss_validation']:8.2f}"
    )

# %%
end = {name: run.history[-1]["loss_validation"] for name, run in runs.items()}
assert end["standard"] < yard["validation"]["frequencies"]
assert end["freeze"] - end["standard"] > 0.8, (
    "frozen rows should cost more than .8 nats by now"
)

# %% [markdown]
# ## Freezing, or what is frozen?
#
# The frozen model has fewer weights to train. Perhaps that is all? Count first.

# %%
sizes = {n: p.numel() for n, p in runs["standard"].model.named_parameters()}
share = sizes["W_E"] / sum(sizes.values())
say(
    f"The embedding holds {sizes['W_E']:,} of {sum(sizes.values()):,} weights, {share:.0%}."
)

# %% [markdown]
# That is a lot. So the comparison above cannot tell two prices apart: to have fewer weights that learn, and to
# have rows that mean nothing. An experiment can. Take the rows that the standard model has just learned, put them
# into a *fresh* model, and freeze them there. Again only the blocks learn. The number of trained weights is that of
# the frozen model; only the rows are others.
#
# And one control. Learned rows also have other lengths and another spread, and above all they know which tokens are
# *frequent*. So we order the tokens by frequency, cut the order into bands of 32, and shuffle the learned rows within
# each band. What is left: lengths, spread, and a good part of frequency. What is gone: who is used like whom.
#
# :::{admonition} Predict before you run
# :class: predict
# Order the four by their loss after 200 steps: standard, frozen random rows, frozen learned rows, frozen shuffled
# rows. Where are the large gaps?
# :::


# %%
def train_on_rows(rows):
    """Train fresh blocks on these rows, which stay as they are."""

    def plant(step, model):
        if step == 0:  # measured already, nothing trained yet
            with torch.no_grad():
                model.W_E.copy_(rows)

    return train(configs["freeze"], device="cpu", observe=plant)


def shuffled_in_bands(rows, width=32):
    """The same rows, exchanged between tokens of similar frequency."""
    changed, generator = rows.clone(), stream(0, "bands")
    order = counts.argsort(descending=True, stable=True)
    for band in order[counts[order] > 0].split(width):
        changed[band] = rows[
            band[torch.randperm(len(band), generator=generator)]
        ]
    return changed


# %% tags=["nbval-ignore-output"]
rows = runs["standard"].model.W_E.detach().clone()
runs["learned rows"] = train_on_rows(rows)
runs["shuffled rows"] = train_on_rows(shuffled_in_bands(rows))
print("validation loss, nats a token")
print(
    f"{'':5}{'standard':>15}{'frozen, random':>20}{'frozen, shuffled':>20}{'frozen, learned':>20}"
)
named = ("standard", "freeze", "shuffled rows", "learned rows")
for i in range(1, len(runs["standard"].history)):
    values = [runs[name].history[i]["loss_validation"] for name in named]
    print(
        f"{50 * i:5}{values[0]:15.2f}"
        + "".join(f"{value:20.2f}" for value in values[1:])
    )

# %%
end = {name: run.history[-1]["loss_validation"] for name, run in runs.items()}
assert end["learned rows"] < end["standard"] + 0.3
assert end["shuffled rows"] - end["learned rows"] > 0.4
assert end["freeze"] - end["shuffled rows"] > 0.2

# %% [markdown]
# **It is not the freezing that costs.** Frozen rows that carry meaning do about as well as rows that may learn. They
# had their own 200 steps, in another model, so they start with an advantage; but they cannot move, and the blocks
# around them began from nothing. What costs is to be frozen at *random*.
#
# And the cost has two parts. From random to shuffled rows: mainly, knowing what is frequent and what never occurs.
# From shuffled to learned rows: knowing what is alike.

# %% tags=["nbval-ignore-output"]
say(
    f"In your run: {end['freeze'] - end['shuffled rows']:.2f} nats for the first, "
    f"{end['shuffled rows'] - end['learned rows']:.2f} for the second."
)

# %% [markdown]
# ## What a row has learned
#
# The frozen model still holds the rows as they were drawn, and the standard model started from the very same ones.
# The difference is what training wrote. Which two tokens, among frequent ones, have rows that moved most alike?

# %% tags=["nbval-ignore-output"]
often = (counts >= 2000).nonzero().flatten()
moved = rows - runs["freeze"].model.W_E.detach()
moved = moved - moved[often].mean(0)  # without what all share
unit = moved[often] / moved[often].norm(dim=1, keepdim=True)
likeness = (unit @ unit.T).triu(1)
for at in likeness.flatten().topk(12).indices.tolist():
    a, b = divmod(at, len(often))
    both = [tokenizer.decode([int(often[i])]) for i in (a, b)]
    print(f"{both[0]!r:>12}  {both[1]!r:12} {likeness[a, b]:.2f}")

# %% [markdown]
# Some pairs make sense at once: two names of variables, two pieces of words. Others look like chance, and
# with a hundred thousand pairs to choose from some must be. So ask for an average instead. Take groups of tokens that a
# Python programmer would call alike. Is the mean cosine within a group higher than among all frequent tokens?

# %% tags=["nbval-ignore-output"]
strings = {int(i): tokenizer.decode([int(i)]) for i in often}
groups = {
    "digits": [i for i, s in strings.items() if s in set("0123456789")],
    "single small letters": [
        i for i, s in strings.items() if len(s) == 1 and s.islower()
    ],
    "new line and indent": [
        i for i, s in strings.items() if "\n" in s and not s.strip()
    ],
    "all frequent tokens": often.tolist(),
}
alike = {
    name: geometry.mean_cosine(moved[ids]) for name, ids in groups.items()
}
for name, ids in groups.items():
    print(f"{name:22} {len(ids):4} tokens, mean cosine {alike[name]:5.2f}")

# %%
assert alike["digits"] > alike["all frequent tokens"] + 0.2

# %% [markdown]
# Rows of like tokens have moved in like directions. A rule that a block learns about `3` then holds for `7`, too. With
# random rows it does not: the blocks meet a thousand unrelated codes, and each has to be learned by heart.

# %% [markdown]
# ## What a frozen output cannot say
#
# Tying makes one matrix of two, so the same random rows must also *write*. The probabilities are softmax of
# $W_U h$: a thousand logits, made from 64 numbers. This is known as the softmax bottleneck {cite}`yang2018softmax`.
# Rows that learn can arrange themselves so that 64 numbers are enough for what is needed most. Random rows cannot.
#
# How bad is it? Forget context. Ask only for the *frequencies*, one distribution, and give the model the best vector
# $h$ there is. (It can have it: the last norm ends with a bias.) The problem is convex, so "best" has an answer.


# %%
def best_loss(table, wanted):
    """Lowest cross-entropy to `wanted` of softmax(table @ h) over all vectors h."""
    table = table.double()
    h = torch.zeros(table.shape[1], dtype=torch.double, requires_grad=True)
    search = torch.optim.LBFGS(
        [h], max_iter=500, line_search_fn="strong_wolfe"
    )

    def loss():
        search.zero_grad()
        z = table @ h
        value = z.logsumexp(0) - wanted @ z
        value.backward()
        return value

    search.step(loss)
    return float(loss().detach())


wanted = counts.double() / counts.sum()
floor = -float(torch.special.xlogy(wanted, wanted).sum())
fits = {"random rows, as frozen": runs["freeze"].model.W_E.detach()}
fits |= {
    "learned rows, shuffled in bands": shuffled_in_bands(rows),
    "learned rows": rows,
}
fits = {name: best_loss(table, wanted) for name, table in fits.items()}

# %% tags=["nbval-ignore-output"]
print(f"frequencies of the training text, nats a token; floor {floor:.2f}")
for name, value in fits.items():
    print(f"{name:32} width {rows.shape[1]:4}  {value:.2f}")
wider = {}
for width in (16, 256, 512):
    table = torch.randn(
        task.d_vocab, width, generator=stream(0, "width", width)
    )
    wider[width] = best_loss(table, wanted)
    print(f"{'random rows':32} width {width:4}  {wider[width]:.2f}")

# %%
assert fits["random rows, as frozen"] - floor > 0.5
assert fits["learned rows"] - floor < 0.3
assert wider[512] < wider[256] < fits["random rows, as frozen"] < wider[16]

# %% [markdown]
# A random table of width 64 cannot say even how frequent tokens are, however clever the blocks. Context makes it
# easier, since there the wanted distribution is sharper and a few tokens are all that counts. But it starts from
# behind. The last lines say something about scale: over one vocabulary, a wider random table suffers less.

# %% [markdown]
# ## The sweep
#
# Now the stored runs: 2400 steps, four policies, fresh seeds, the same data for all policies of a seed.
#
# - `standard`: the embedding learns.
# - `freeze`: it stays at its random start.
# - `reset`: it learns, and is drawn anew every 100 steps, as in active forgetting {cite}`chen2024forgetting`.
# - `reset_half`: the same until step 1200; then it learns undisturbed.
#
# Mind *when* the forgetful ones are measured: every 100 steps, just *before* each reset, when the table has had 100
# steps to learn. It is their best moment. Right after a reset they would look far worse.

# %% tags=["hide-input", "nbval-ignore-output"]
names = ("standard", "freeze", "reset", "reset_half")
stored = {name: price(name) for name in names}
last = {
    name: frame[frame["step"] == ledger.LAST].set_index("seed")
    for name, frame in stored.items()
}
fig, ax = figure("wide", aspect=0.5)
for name, frame in stored.items():
    curves(ax, frame[frame["step"] > 0], "step", "loss_test", name)
for name in ("frequencies", "pairs"):
    ax.axhline(yard["test"][name], color=GREY, linewidth=1)
    ax.annotate(
        name,
        (ledger.LAST, yard["test"][name]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=GREY,
        fontsize=9,
    )
ax.set(xlabel="step", ylabel="test loss, nats a token")
ax.legend(loc="lower left")
show(
    fig,
    "Test loss over training for four policies of the embedding, every seed thin, median bold. At the last step: "
    + ", ".join(
        f"{look(name).label} {frame['loss_test'].median():.2f}"
        for name, frame in last.items()
    )
    + f". Grey lines: frequencies {yard['test']['frequencies']:.2f}, pairs {yard['test']['pairs']:.2f}.",
    "Test loss over training. Grey lines: predictors that know frequencies, or pairs of tokens, and nothing else.",
)

# %%
print(f"test loss at step {ledger.LAST}, nats a token")
print(f"{'seed':>6}" + "".join(f"{name:>22}" for name in names))
for seed, base in last["standard"]["loss_test"].items():
    line = f"{seed:6}{base:22.2f}"
    for name in names[1:]:
        if seed in last[name].index:
            value = last[name]["loss_test"][seed]
            line += f"{value:14.2f} ({value - base:+.2f})"
        else:
            line += f"{'-':>22}"
    print(line)
print("in brackets: minus standard, same seed, same data")

# %%
dearer = {
    name: (last[name]["loss_test"] - last["standard"]["loss_test"]).dropna()
    for name in names[1:]
}
assert (dearer["freeze"] > 1).all() and (dearer["reset"] > 1).all()
say(
    "**The price, in nats a token**, median over seeds [lowest, highest]: "
    + "; ".join(
        f"{look(name).label} {d.median():.2f} [{d.min():.2f}, {d.max():.2f}] over {len(d)} seeds"
        for name, d in dearer.items()
    )
    + f". In perplexity the standard model ends at {math.exp(last['standard']['loss_test'].median()):.0f}, the frozen one at "
    f"{math.exp(last['freeze']['loss_test'].median()):.0f}, the forgetful one at "
    f"{math.exp(last['reset']['loss_test'].median()):.0f}."
)

# %% [markdown]
# Now the yardsticks. A table of pairs fits into a spreadsheet.

# %%
pairs_test = yard["test"]["pairs"]
assert (last["standard"]["loss_test"] < pairs_test).all()
assert (last["freeze"]["loss_test"] > pairs_test).all()
assert (last["reset"]["loss_test"] > pairs_test).all()
say(
    "The standard model beats the table of pairs in every seed. The frozen and the forgetful model stay above it in every "
    "seed: with attention, two layers and 2400 steps they predict worse than a count of neighbours."
)

# %% [markdown]
# ### What survives a reset?
#
# In the logic task blocks can keep a skill over a reset: rows are new, the rules of the game are old. What do they
# keep here? Compare three moments of the forgetful model, each 100 steps after its table was new.

# %%
survives = stored["reset"].pivot(
    index="step", columns="seed", values="loss_test"
)
for step in (100, 1200, ledger.LAST):
    print(
        f"step {step:4}: {survives.loc[step].median():.2f} "
        f"[{survives.loc[step].min():.2f}, {survives.loc[step].max():.2f}]"
    )
gained = survives.loc[100] - survives.loc[ledger.LAST]
say(
    f"At step 100 nothing had been forgotten yet: blocks and table were both new. {ledger.LAST - 100} steps of training "
    f"the blocks later, 100 steps with a new table lead to a loss that is lower by {gained.median():.2f} "
    f"[{gained.min():.2f}, {gained.max():.2f}] nats."
)

# %%
assert (gained < 0.6).all()

# %% [markdown]
# That is little. Only what does not depend on *which* vector a token has can be kept. In language, at this size, that
# is not much.
#
# And if forgetting stops half-way? Then 1200 undisturbed steps are left. Compare the end with a standard model after its
# *first* 1200 steps: was the forgetful half of any use?

# %%
early = stored["standard"]
early = early[early["step"] == 1200].set_index("seed")
half = last["reset_half"]["loss_test"]
print("seed  reset_half, end  standard, step 1200  standard, end")
for seed, value in half.items():
    print(
        f"{seed:4} {value:16.2f} {early['loss_test'][seed]:20.2f} {last['standard']['loss_test'][seed]:14.2f}"
    )
ahead = half - early["loss_test"]
say(
    f"With as many undisturbed steps, a model with a forgetful past differs from a fresh one by "
    f"{ahead.median():+.2f} nats [{ahead.min():+.2f}, {ahead.max():+.2f}]."
)

# %% [markdown]
# ## Does it collapse again?
#
# Forgetting keeps rows of unseen tokens apart, as long as it goes on. Paper A says that ordinary training afterwards can
# undo it. Here are the 100 reserved rows.

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.8)
panels = {"cosine": "mean cosine", "individual": "individual part"}
for ax, (measure, title) in zip(axes, panels.items(), strict=True):
    for name, frame in stored.items():
        curves(ax, frame, "step", f"W_U_unseen_{measure}", name)
    ax.axvline(1200, color=GREY, linewidth=1)
    ax.set(title=f"{title}, reserved rows", xlabel="step")
axes[1].legend(loc="lower left")
show(
    fig,
    "Reserved rows over training, four policies. At the last step: "
    + "; ".join(
        f"{look(name).label} mean cosine {round(frame['W_U_unseen_cosine'].median(), 2) + 0.0:.2f}, "
        f"individual part {frame['W_U_unseen_individual'].median():.2f}"
        for name, frame in last.items()
    )
    + ".",
    "The rows of 100 tokens that never occur. The grey line marks the last reset of the policy that stops half-way.",
)

# %%
frame = stored["reset_half"].pivot(
    index="step", columns="seed", values="W_U_unseen_cosine"
)
rise = frame.loc[ledger.LAST] - frame.loc[1200]
always = last["reset"]["W_U_unseen_cosine"]
fresh = early["W_U_unseen_cosine"]
say(
    f"Mean cosine of the reserved rows, reset until half-way: {frame.loc[1200].median():.2f} just before the last reset, "
    f"{frame.loc[ledger.LAST].median():.2f} at the end. It rises by {rise.median():.2f} [{rise.min():.2f}, {rise.max():.2f}] "
    f"over {len(rise)} seeds. With resets throughout it ends at {always.median():.2f}. A standard model reaches "
    f"{fresh.median():.2f} in its first 1200 steps. **Once forgetting stops, the rows drift together again**, no slower than "
    "in a model that never forgot."
)

# %%
assert (rise > 0.1).all()
assert frame.loc[ledger.LAST].median() > fresh.median() - 0.05

# %% [markdown]
# Do tokens that nobody reserved, the bytes that never occur, share this fate? Your standard model knows.

# %% tags=["nbval-ignore-output"]
reserved = list(task.unseen)
between = torch.cosine_similarity(
    rows[never].mean(0), rows[reserved].mean(0), dim=0
)
own = {
    "reserved": geometry.mean_cosine(rows[reserved]),
    "bytes that never occur": geometry.mean_cosine(rows[never]),
    "frequent tokens": geometry.mean_cosine(rows[often.tolist()]),
}
for name, cosine in own.items():
    print(f"{name:24} mean cosine {round(cosine, 2) + 0.0:.2f}")
print(f"mean row of reserved and of never occurring: cosine {between:.2f}")

# %%
assert between > 0.7
assert own["bytes that never occur"] > own["frequent tokens"] + 0.05

# %% [markdown]
# They drift together, and to the same place as the reserved ones. For the model the two kinds are one.

# %% [markdown]
# ## What is bought?
#
# A price is half of a bargain. The other half would be a skill with unseen tokens. In language models the natural
# test is *induction* {cite}`olsson2022induction`: show twelve different random tokens, then begin the same list
# again. Who copies in context can go on. We ask for ordinary tokens and for reserved ones.

# %%
print(f"share predicted right at step {ledger.LAST}, over all seeds")
print(f"{'':24}{'ordinary tokens':>22}{'reserved tokens':>22}")
best = 0.0
for name, frame in last.items():
    shares = [frame[f"induction_{group}"] for group in ("seen", "unseen")]
    best = max(best, *(float(s.max()) for s in shares))
    told = (
        f"{s.median():.3f} [{s.min():.3f}, {s.max():.3f}]" for s in shares
    )
    print(f"{look(name).label:24}" + "".join(f"{t:>22}" for t in told))
assert best < 0.05

# %% [markdown]
# Nothing. No model of this size and training copies random tokens in context, not even those that it knows well. So
# **here the price is visible and the purchase is not.** That is no evidence against the cure. It says that this
# setting cannot show what is bought. The logic task can, but there meaning plays no part.

# %% [markdown]
# ## The verdict
#
# The sub-claims were written down before the sweep: how much loss counts as a price, and how much cosine as a new
# collapse.

# %%
claim = next(c for c in ledger.LEDGER if c.id == "A15")
say(
    f"**A15** {claim.statement}: **{claims.verdict(claim)[0]}**.\n\n{claims.evidence(claim)}"
)

# %% [markdown]
# ## Doubts
#
# *Is the price that high elsewhere?* We do not know. The models are tiny and trained for minutes, and a random table of
# width 64 is harsher than a wider one over the same vocabulary. But large models have far larger vocabularies, too;
# exercise 3 asks which of the two counts. What should carry over is the sign, not the size.
#
# *Was every policy given its best step size?* No. All have the same one, tuned for none of them. A forgetful model
# may want a faster embedding, a frozen one slower blocks.
#
# *Tied.* Frozen and tied, the same random rows must read and write. A frozen input with a free output may pay less. We
# have not looked.
#
# *Does the shuffle remove likeness alone?* Not quite. Within a band frequencies still differ a little, so some of what is
# called likeness is frequency. And in a band of 32 some rows fall on a like token by chance, so some likeness is left.
# It is one seed, live, and rows learned in 200 steps; kept for 2400, they might fall behind rows that go on learning.
# What we assert are the gaps, with slack.
#
# *Forgetting every 100 steps was chosen for the logic task.* With longer intervals the loss would come down further
# between two resets, and the collapse would get further, too.
#
# *One library is not language.* The three parts share authors and habits. A split by file keeps copies of a file
# apart, not a style.

# %% [markdown]
# ## Summary
#
# - Nats a token mean something beside yardsticks. Frequencies and pairs cost nothing to compute.
# - Where tokens have meaning, freezing the embedding at random is dear, and so is forgetting it: worse than counting
#   pairs, in these runs.
# - In a live run it is not the freezing that costs but rows that mean nothing: part of the price is frequency, part
#   likeness.
# - When resets stop, reserved rows drift together again.
# - Ordinary vocabularies hold unseen tokens that nobody reserved, and they drift with the reserved ones.
# - What the price buys cannot be seen at this size.

# %% [markdown]
# ## What would change our mind
#
# If the gap closed with more steps, it would be a delay and not a price; the curves show what it does until step
# 2400, no further. If a wide model, say of width 512, lost less than a tenth of a nat by freezing, the price would
# be one of small models. And if a policy kept only *unused* rows fresh and let the others learn, the bargain might have no
# price at all; no policy here does that.

# %% [markdown]
# ## Exercises
#
# **1. One perplexity for many files** (easy, 10 minutes). For each file you know the mean loss in nats a token, and
# how many tokens it has. What is the perplexity of the model on all of them together?


# %%
def my_perplexity(losses, tokens):
    """Perplexity over all tokens; `losses` are means per file, `tokens` the numbers of tokens."""


exercises.check_perplexity(my_perplexity)

# %% [markdown]
# **2. The price in steps** (medium, 15 minutes). A nat is abstract. For each seed, find the first stored step at which
# the *standard* model is better than the frozen one at its end. What share of the training is that?
#
# **3. How wide must a frozen table be?** (hard, 25 minutes). Use `best_loss` on made-up frequencies, $p_k \propto 1/k$ for
# $k = 1, \dots, V$, with random tables of several widths $d$ and vocabularies $V$. Which width keeps the loss within
# 0.1 nats of the floor? Does it depend on $d$, or on $d/V$? What does that say about frozen tables in large models?
#
# Worked solutions stand on [their own page](../solutions/unseen_solutions.ipynb).

# %% [markdown]
# ## Next
#
# All this was about toys. [The unused tokens of Gemma](09_the_unused_tokens_of_gemma.ipynb) looks for collapsed rows in a real
# language model, and mends them.
