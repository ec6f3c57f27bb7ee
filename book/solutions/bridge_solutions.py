# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions for part III
#
# Try first. Each solution is run against the same check as yours.

# %%
try:
    from lib import exercises
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import torch

from lib.analogies import AnalogyRun, member_of, train_many

torch.set_num_threads(1)

# %% [markdown]
# ## One collapse, two papers
#
# **1. The mass of strangers.** Softmax over everything, sum over the names, mean over the prompts.


# %%
def mass_of_names(logits, names):
    """Mean over prompts of the probability of all `names` together; `logits` are [prompts, tokens]."""
    return float(logits.softmax(dim=1)[:, names].sum(dim=1).mean())


exercises.check_mass_of_names(mass_of_names)

# %%
run = AnalogyRun(steps=300, eval_every=100)
member = member_of(run)
prompts = member.asked["comp_id"][:, :-1]


def told(step, models):
    logits = models.logits(prompts[None])[0].detach()
    mass = mass_of_names(logits, member.unused.tolist())
    print(
        f"step {step:3}: {mass:.3f} of the probability goes to unused names"
    )


_ = train_many([run], observe=told)

# %% [markdown]
# At the start nearly all of it, since nearly all rows are theirs: $\log$ of ten thousand instead of $\log$ of some hundred names. Pushing
# them down is the first thing that is learned, and it is cheap, since they can be pushed all at once.
#
# **2. One row for all.**

# %% tags=["nbval-ignore-output"]
for stand_ins in (None, 64, 1):
    run = AnalogyRun(steps=300, eval_every=100, stand_ins=stand_ins)
    (history,) = train_many([run])[1]
    losses = ", ".join(f"{row['loss']:.2f}" for row in history[1:])
    print(
        f"{'exact' if stand_ins is None else f'{stand_ins} rows':8} loss at steps 100, 200, 300: {losses}"
    )

# %% [markdown]
# One row stands for all only once all are one. At the start they point in all directions, and a sum of ten thousand different
# exponentials is better known than one of them times ten thousand. Later the curves meet: the collapse has made the approximation
# true.
