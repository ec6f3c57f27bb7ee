# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Advice
#
# - **You will be able to** decide what to do about symbols in a model that you train, fine-tune or extend, and say how sure you
#   are.
# - **Needs** nothing but curiosity; every number links to the chapter that explains it.
# - **Minutes** ten to read, a few seconds to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, diagnosis, ledger
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd
import torch

from lib.ledger import models
from lib.ledger.bridge import at_end
from lib.ledger.price import price
from lib.plotting import say

# %% [markdown]
# All tables here are computed from stored runs. Behind each number stand five seeds or more, given as median [lowest,
# highest]. They come from small models. Take them as directions, not as forecasts.
#
# ## I train from scratch, and names will come later
#
# The logic task with 1000 names asks for names that training never used; the analogy task asks for rows that have
# moved; a language model on real text pays the bill.


# %%
def spread(values):
    """Median, lowest and highest."""
    low, middle, high = (
        round(v, 2) + 0.0
        for v in (values.min(), values.median(), values.max())
    )
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def end(arm, column="loss_test"):
    """A column of the language models' last rows, by seed."""
    frame = price(arm)
    return frame[frame["step"] == frame["step"].max()].set_index("seed")[
        column
    ]


ROWS = [
    ("let all rows learn", "standard", "as trained", "learn", "standard"),
    (
        "... and redraw unused rows at the end",
        "standard",
        "mean_cov",
        None,
        None,
    ),
    ("freeze the embedding", "freeze", "as trained", "freeze", "freeze"),
    ("reset it every 100 steps", "reset", "as trained", "reset", "reset"),
    (
        "keep unused rows as drawn",
        "freeze_rows",
        "as trained",
        "freeze rows",
        None,
    ),
    (
        "redraw unused rows every 50 steps",
        "refresh",
        "as trained",
        "refresh",
        "refresh",
    ),
]
lines = [
    "| what to do | names seen | all names new | the same with a copy head | new analogies | cost in nats a token |",
    "|---" * 6 + "|",
]
for what, logic, variant, analogy, text in ROWS:
    plain = ledger.skill(logic, 1000, variant)
    copy = ledger.skill(
        "copy" if logic == "standard" else f"{logic}+copy", 1000, variant
    )
    cells = [spread(plain["seen"]), spread(plain["all"]), spread(copy["all"])]
    cells.append(
        spread(at_end(analogy, "acc_ana_ood")) if analogy else "as above"
    )
    cells.append(
        spread(end(text) - end("standard")) if text else "not measured"
    )
    lines.append(f"| {what} | {' | '.join(cells)} |")
say("\n".join(lines))

# %% [markdown]
# **So:** let used rows learn. Give *unused* rows new values before you use them, or all along. Freeze or reset the whole table
# only if nothing is to be learned about single symbols, as in a game of pure form.
# [Cure against alignment](02_cure_against_alignment.ipynb) has the details.
#
# ## I fine-tune, and want to use reserved tokens
#
# Gemma 3 270M on logic puzzles, 26 symbols, steps until 90 % of held-out answers are right.

# %%
lines = ["| symbols | steps | times those of words |", "|---" * 3 + "|"]
words = models.steps_needed("words")
for label, kind, treatment in (
    ("words", "words", "none"),
    ("letters", "letters", "none"),
    ("reserved tokens as they are", "unused", "none"),
    ("reserved tokens, rows redrawn (covariance)", "unused", "mean_cov"),
    ("reserved tokens, rows redrawn (variances)", "unused", "mean_diag"),
):
    steps = models.steps_needed(kind, treatment)
    lines.append(
        f"| {label} | {steps.median():.0f} [{steps.min():.0f}, {steps.max():.0f}] | {spread(steps / words)} |"
    )
say("\n".join(lines))

# %% [markdown]
# **So:** redraw the rows of reserved tokens before the first step. It takes seconds:
# `python -m lib repair MODEL --tokens ... --out DIR`
# ([The unused tokens of Gemma](../unseen/09_the_unused_tokens_of_gemma.ipynb)).
#
# ## I add tokens to a vocabulary
#
# What can Gemma 3 270M do with new symbols *before* any training? Twelve symbols, shown once and begun again: the share
# continued right, over the whole vocabulary.

# %%
lines = ["| rows of the symbols | continued right |", "|---" * 2 + "|"]
for label, kind, treatment in (
    (
        "as transformers makes them for added tokens (mean resizing)",
        "unused",
        "resized",
    ),
    ("random directions", "unused", "fresh"),
    ("drawn with mean and variances of used rows", "unused", "mean_diag"),
    ("drawn with mean and covariance of used rows", "unused", "mean_cov"),
    ("mean of used rows plus orthogonal directions", "unused", "orthogonal"),
    ("words, for comparison", "words", "none"),
):
    lines.append(
        f"| {label} | {spread(models.continued(kind, treatment)['right'])} |"
    )
say("\n".join(lines))

# %% [markdown]
# **So:** rows near the mean {cite}`hewitt2021init` are gentle to the rest of the model, and leave the new tokens one and the same.
# If they must be told apart from the start, draw them with the used rows' covariance.
#
# ## What to watch
#
# Three numbers of the rows that you care about: their mean cosine, the share of a row that is its own, their length beside that
# of all rows. How bad is how much? Frozen models of part I, with only their unseen rows made worse:

# %%
lines = [
    "| unseen rows get | whole answers right, all names unseen |",
    "|---" * 2 + "|",
]
for variant, levels, label in (
    ("cosine", (0.0, 0.25, 0.5, 0.75, 0.9), "mean cosine {:g}"),
    ("norm", (1.0, 0.75, 0.5), "{:g} of their length"),
):
    frame = ledger.grid("freeze+copy", 1000, variant)
    frame = frame.assign(whole=ledger.halves(frame, "whole_all_unseen"))
    for level in levels:
        lines.append(
            f"| {label.format(level)} | {spread(frame[frame['level'] == level]['whole'])} |"
        )
say("\n".join(lines))

# %% [markdown]
# A cosine of a half costs as much as the whole collapse, nearly. So do not wait for 0.99.
#
# In a `Trainer` of Hugging Face's transformers, one line logs the three numbers:
#
# ```python
# from lib.language_models import watcher
#
# trainer = Trainer(..., callbacks=[watcher(ids_of_my_tokens)])
# ```
#
# They then stand in `trainer.state.log_history` beside the loss, as `W_E_cosine`, `W_E_own` and `W_E_length` (and for `W_U` where the
# unembedding is another matrix). Without a `Trainer`, call `diagnosis.watch` yourself:

# %%
draws = torch.Generator().manual_seed(0)
W = torch.randn(1000, 64, generator=draws)
mine = list(range(20))
for name, drift in (("fresh", 0.0), ("drifting", 1.0), ("collapsed", 10.0)):
    W[mine] = torch.randn(20, 64, generator=draws) + drift * torch.ones(64)
    W[mine] *= 8 / W[mine].norm(dim=1, keepdim=True)
    print(
        f"{name:10}",
        {
            what: round(value, 2)
            for what, value in diagnosis.watch(W, mine).items()
        },
    )

# %% [markdown]
# ## How sure are we?
#
# The claims behind this page, with their verdicts:

# %%
BEHIND = ("A8", "A9", "A14", "A15", "C3", "C4", "C8", "C9", "C10")
table = pd.DataFrame(
    [
        (claim.id, claim.statement, claims.verdict(claim)[0])
        for claim in ledger.LEDGER
        if claim.id in BEHIND
    ],
    columns=["id", "claim", "verdict"],
)
say(
    "\n".join(
        [
            "| id | claim | verdict |",
            "|---" * 3 + "|",
            *(
                f"| {r.id} | {r.claim} | {r.verdict} |"
                for r in table.itertuples()
            ),
        ]
    )
)

# %% [markdown]
# What nobody should conclude from this book: that a large model fails where a small one does. Paper A saw less similar rows in larger
# Gemmas. Whether redrawing rows helps a model of many billions is a run that you can make and we could not.

# %% [markdown]
# ## Summary
#
# - Rows without evidence drift together, in every task and with every optimiser that we tried.
# - Protect those rows, not all. Redraw them before use; it needs no training.
# - Watch three numbers, and act early.

# %% [markdown]
# ## What would change our mind
#
# A large model whose reserved tokens have a cosine like Gemma's and can be copied all the same would say that size mends what we redraw.
# A real training run in which refreshed rows cost more than a hundredth of a nat would change the last line of the first table.

# %% [markdown]
# ## Exercises
#
# **1. Your own bill** (medium, 30 minutes). Pick one row of the first table and say what it would cost in a model that you train: memory,
# time, code. Which of the columns matters to you?
#
# **2. An alarm** (medium, 20 minutes). Write a callback that stops training when the watched rows' cosine is above one half. Test it on
# rows that you pull together by hand.
#
# Worked solutions stand on [their own page](../solutions/bridge_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [The claims ledger](claims.ipynb) has all claims, sub-claims and numbers.
