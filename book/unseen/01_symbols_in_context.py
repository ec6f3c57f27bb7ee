# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Symbols in context
#
# - **You will be able to** pose a logic problem whose names mean nothing, say exactly what an *unseen*
#   name is, and tell which scores a guesser gets for free.
# - **Needs** the [notation](../notation.md); no training, no GPU.
# - **Minutes** twenty to read, a few seconds to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import exercises
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd
import torch

from lib.generators import logic, stream
from lib.plotting import figure, look, say, show, style

style()

# %% [markdown]
# ## A puzzle without meaning
#
# Here are four rules, a fact and a question.
#
# > blicket → dax, wug → toma, dax → fep, toma → zib.
# > Fact: blicket. Is it true that fep?
#
# You have never met a *blicket*. You need not. From *blicket* follows *dax*, from *dax* follows *fep*. So
# the answer is yes, and you can list the steps: blicket, dax, fep.
#
# Nothing in this argument used what the words mean. It used only which words are *the same*. That is what
# we mean by reasoning with symbols: rename every word, consistently, and the argument stands.
#
# A language model learns words from examples. Does it also learn to use a word that had no example? Paper A
# {cite}`lazic2026unseen` asks this with puzzles like ours. We start with the puzzle itself.

# %% [markdown]
# ## The problem as a model sees it
#
# A problem is one sequence of tokens. The rules stand in random order. Half of them form the *true chain*,
# which starts at the fact. The other half form a *distractor chain*, which starts somewhere else.

# %%
task = logic.LogicConfig(depth=2, n_seen=1000, n_unseen=50)
batch = logic.sample(task, 4, stream(1, "chapter"))
for tokens in batch.tokens:
    print(logic.decode(task, tokens))

# %% [markdown]
# Everything up to `ANS` is the prompt. After it comes the answer: the fact, each name derived from it in
# order, then `T` if the query was among them, else `F`.
#
# Names look like `s17`. The model sees no letters and no digits, only the number of a token. It cannot spell.
# That makes the question sharp: there is nothing about `s17` to go by, except where it stands.

# %%
print(
    "prompt:",
    task.prompt_length,
    "tokens; answer:",
    task.answer_length,
    "tokens",
)
print("token ids of the first problem:", batch.tokens[0].tolist())

# %% [markdown]
# ## Solve it by program
#
# The rule book is short. Start with the fact. Look for a rule with that name on its left. Write down its
# right side, and go on from there. `logic.solve` does this on words. It knows nothing about how the problems
# were made, so the two can check each other.

# %%
problems = logic.sample(task, 2000, stream(2, "chapter"))
agree = 0
for tokens in problems.tokens:
    prompt, answer = logic.decode(task, tokens).split(" ANS ")
    agree += logic.solve(prompt) == answer
assert agree == 2000
say(f"The solver and the generator agree on {agree} of 2000 problems.")

# %% [markdown]
# ## What "unseen" means
#
# The vocabulary has three parts. Special tokens come first, then names that training may use, then names that
# it never uses.

# %%
parts = {
    "special": range(task.seen.start),
    "seen": task.seen,
    "unseen": task.unseen,
}
for name, ids in parts.items():
    print(
        f"{name:8} ids {ids.start:5} to {ids.stop - 1:5}   {len(ids):5} tokens"
    )

# %% [markdown]
# An unseen name is *not* a foreign object. It has an id. It has a row in the embedding and a row in the
# unembedding, drawn at random like every other. The output layer gives it a probability at each step. It
# simply never occurs in a training problem, neither in the prompt nor in the answer.
#
# Real models have such tokens too: reserved ones, and rare strings that found their way into the vocabulary
# but not into the data {cite}`land2024fishing`.

# %% [markdown]
# ## Does anything leak?
#
# The whole book rests on "never occurs". So we count. Here are all tokens of two hundred training batches,
# drawn the way the training loop draws them.

# %%
counts = torch.zeros(task.d_vocab, dtype=torch.long)
for step in range(200):
    tokens = logic.sample(task, 128, stream(0, "batch", step), "seen").tokens
    counts += torch.bincount(tokens.flatten(), minlength=task.d_vocab)

per_name = counts[list(task.seen)]
assert counts[list(task.unseen)].sum() == 0 and per_name.min() > 0
say(
    f"In {200 * 128:,} training problems each seen name occurs between {per_name.min()} and "
    f"{per_name.max()} times, each unseen name {counts[list(task.unseen)].sum()} times."
)

# %% tags=["hide-input"]
fig, ax = figure("text")
for group in ("seen", "unseen"):
    ids = torch.tensor(list(parts[group]))
    mark = look(group)
    ax.plot(
        ids,
        counts[ids],
        mark.marker,
        color=mark.color,
        markersize=3,
        label=mark.label,
    )
ax.set(xlabel="token id", ylabel="occurrences in training", ylim=(-15, None))
ax.legend(loc="center left")
show(
    fig,
    f"Occurrences of each name in 200 training batches: seen names between {per_name.min()} and "
    f"{per_name.max()}, all 50 unseen names at exactly 0.",
    "How often each name occurs in two hundred training batches. The unseen names sit at zero.",
)

# %% [markdown]
# ## Three test sets
#
# We can now ask three questions of growing difficulty. They share the rules of the game and differ in which
# names are unseen. Unseen names look like `u7`.

# %%
for split in logic.SPLITS:
    for verdict in (True, False):
        one = logic.sample(
            task, 1, stream(3, "chapter"), split, verdict
        ).tokens[0]
        print(f"{split:12} {verdict!s:5}  {logic.decode(task, one)}")

# %% [markdown]
# Look closely at `query_unseen`. Only one name is new: the queried one, which ends its chain.
#
# - In the *True* half the query lies on the true chain. The model must **write** the new name.
# - In the *False* half the query ends the distractor. The answer holds only familiar names.
#
# A model that cannot deal with new names at all may still get the False half right. If we pooled both halves,
# it would look half able. So from here on "query unseen" means the True half.

# %% [markdown]
# ## What a guesser gets
#
# Before any model is praised or blamed, we want to know what comes for free. Here are four guessers. None
# follows the rules.

# %%
n = 4000
test = logic.sample(task, n, stream(4, "chapter"))
answer = test.tokens[:, -task.answer_length :]
rules = test.tokens[:, : 6 * task.depth].view(n, -1, 3)
left, right = rules[:, :, 0], rules[:, :, 2]
query = test.tokens[:, task.prompt_length - 2]
draw = stream(5, "chapter")

any_name = rules[
    torch.arange(n), torch.randint(2 * task.depth, (n,), generator=draw), 2
]
both_sides = (
    (right[:, :, None] == left[:, None, :]).any(dim=2).float()
)  # names that go on
goes_on = right.gather(1, torch.multinomial(both_sides, 1, generator=draw))[
    :, 0
]

guesses = {
    "verdict: always T": (answer[:, -1] == logic.TRUE),
    "last name: any right side": (answer[:, -2] == any_name),
    "last name: copy the query": (answer[:, -2] == query),
    "middle name: one that stands on both sides": (answer[:, 1] == goes_on),
}
table = pd.Series(
    {name: float(hit.float().mean()) for name, hit in guesses.items()}
)
for name, share in table.items():
    print(f"{name:45} {share:.2f}")
assert all(0.2 < share < 0.55 for share in table)

# %% [markdown]
# Copying the query is right for half of the problems, and so is picking a name that stands on both sides of
# the rules. Put the two together and a lazy model gets a quarter of the chains right without ever following a
# rule. Training may find such short cuts before it finds the rule. They leave a trace: True problems come right
# before False ones, since only there the copied query is correct. Look at both halves in the next chapter.

# %%
lazy = (
    guesses["last name: copy the query"]
    & guesses["middle name: one that stands on both sides"]
)
say(
    f"The two short cuts together get {float(lazy.float().mean()):.2f} of the chains right."
)

# %% [markdown]
# :::{admonition} Predict before you run
# :class: predict
# In the next chapter a small transformer learns this task until it solves fresh problems over seen names.
# Write down three numbers between 0 and 1, the share of whole answers that it gets right:
#
# 1. all names seen, 2. only the query unseen (True half), 3. all names unseen.
#
# Then write down what you think stands in place of the right name when the model is wrong.
# :::

# %% [markdown]
# ## Summary
#
# - A problem asks only which symbols are the same. Consistent renaming leaves the answer alone.
# - An unseen name is in the vocabulary, has its rows, and never occurs in training. We counted.
# - `query_unseen` puts one new name at the end of its chain. Only its True half asks the model to write it.
# - Guessers get half of some tokens for free. A score means something only beside theirs.

# %% [markdown]
# ## What would change our mind
#
# If a training batch held a single unseen name, every result of part I would be void. A test draws batches at
# several depths and sizes and looks for one.
#
# If a property of the *layout* gave the answer away, we would be testing that instead of reasoning. The order
# of rules is random, both chains are equally long and both verdicts equally likely. If you find a guesser that
# beats the table above without following the rules, we would like to know.

# %% [markdown]
# ## Exercises
#
# **1. Forward chaining** (easy, 10 minutes). Write your own solver. It gets the prompt as words, like
# `s1 > s2 s3 > s4 FACT s1 QUERY s2 ANS`, and returns the answer as words, like `s1 s2 T`.


# %%
def my_solve(prompt):
    """Return the fact, the derived names in order, and T or F, as one string."""


exercises.check_solve(my_solve)

# %% [markdown]
# **2. More depth** (medium, 10 minutes). Work out on paper what the two short cuts together would get for depth
# 3. Then change `task` above and see.
#
# **3. A tempting pool** (medium, 5 minutes). A model never writes an unseen name and is perfect otherwise. What
# would it score on `query_unseen` with both halves pooled? What on the True half?
#
# Worked solutions stand on [their own page](../solutions/unseen_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [A small transformer](02_a_small_transformer.ipynb) opens one model up, trains it before your eyes, and lets
# it meet a stranger.
