# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One collapse, two papers
#
# - **You will be able to** recognise paper A's unseen tokens in the middle of paper B's experiment, and say what they do
#   there.
# - **Needs** [Watching the collapse](../unseen/03_watching_the_collapse.ipynb) and
#   [Three phases](../analogy/02_three_phases.ipynb). Trains eight models live on one processor core.
# - **Minutes** twenty to read, about one to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, exercises, geometry, ledger
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import dataclasses

import pandas as pd
import torch

from lib.analogies import AnalogyRun, member_of, train_many
from lib.generators.analogy import AnalogyConfig
from lib.ledger.analogy import hits, varied
from lib.ledger.bridge import cures
from lib.plotting import curves, figure, say, show, style

style()
torch.set_num_threads(1)

# %% [markdown]
# ## Thousands of strangers
#
# Paper B gives its small model a vocabulary of ten thousand relation names, and says that many relations help analogy
# to emerge (B3) {cite}`minegishi2026analogy`. Count what is *used*. A category of fifteen entities has 210 ordered
# pairs, and the second category repeats the relations of the first: 210 at most. The other names stand in the softmax at every step and are right at none. They are
# exactly what paper A calls unseen tokens {cite}`lazic2026unseen`. Nobody asked about them.
#
# :::{admonition} Predict before you run
# :class: predict
# 1. After training, how alike are the rows of the names that never occur? More or less than those of names in use?
# 2. Leave these names out of the vocabulary altogether. Does analogy come sooner, later, or not at all?
# 3. What does "many relations are needed" mean, if most of them are never used?
# :::

# %%
run = AnalogyRun(eval_every=50)
print(f"{run.task.vocabulary:,} names, {run.task.n_relations} in use")

# %% [markdown]
# ## Live: do their rows collapse?
#
# Four models with a row for every name. At each look we ask the rows of used and of unused names for their mean cosine, the
# share of a row that is its own, and their length.

# %% tags=["nbval-ignore-output"]
seeds = range(4)
runs = [dataclasses.replace(run, seed=seed) for seed in seeds]
members = [member_of(one) for one in runs]
seen = []


def observe(step, models):
    for seed, W, member in zip(seeds, models.W_E.detach(), members):
        groups = {
            "unused": member.unused,
            "used": member.world.relation.unique(),
        }
        for group, ids in groups.items():
            x = W[ids]
            seen.append(
                {
                    "names": group,
                    "seed": seed,
                    "step": step,
                    "cosine": geometry.mean_cosine(x),
                    "own": geometry.individual_share(x),
                    "length": float(geometry.norms(x).mean()),
                }
            )


exact = train_many(runs, observe=observe)[1]
live = pd.DataFrame(seen)
middle = live.groupby(["names", "step"])[["cosine", "own", "length"]].median()
middle = middle.round(2) + 0.0  # no -0.00
print("medians over four seeds")
print(middle.unstack("names").map(lambda value: f"{value:.2f}").to_string())

# %%
end = middle.xs(live["step"].max(), level="step")
assert end.loc["unused", "cosine"] > end.loc["used", "cosine"] + 0.2
say(
    f"**They drift together.** In {live['step'].max()} steps the unused names' mean cosine goes from {middle.loc[('unused', 0), 'cosine']:.2f} to "
    f"{end.loc['unused', 'cosine']:.2f}, that of used names to {end.loc['used', 'cosine']:.2f}. Nothing of paper A was built in here: "
    "another task, another optimiser, another decay, one layer, one head."
)

# %% [markdown]
# ## Eight seeds, and no decay
#
# The same in stored runs. The lemma of [part I](../unseen/04_the_collapse_lemma.ipynb) is about gradient descent. Here is
# Adam, with decay inside the gradient, and once without any decay.

# %% tags=["hide-input"]
ARMS = ("learn", "no decay")
LOOKS = {
    ("learn", "unused"): "unseen",
    ("learn", "used"): "seen",
    ("no decay", "unused"): "adamw_no_decay",
    ("no decay", "used"): "special",
}
kept = {arm: cures(arm) for arm in ARMS}
for frame in kept.values():
    for group in ("unused", "used"):
        frame[f"{group}_own"] = (
            frame[f"{group}_share"] * frame[f"{group}_norm"]
        )
fig, axes = figure("wide", cols=2, aspect=0.75)
told = []
for ax, (what, label) in zip(
    axes, (("cosine", "mean cosine"), ("own", "length of a row's own part"))
):
    for (arm, group), condition in LOOKS.items():
        frame, column = kept[arm], f"{group}_{what}"
        curves(ax, frame, "step", column, condition, label=f"{group}, {arm}")
        last = frame[frame["step"] == frame["step"].max()][column]
        told.append(f"{label}, {group}, {arm}: {last.median():.2f}")
    ax.set(xlabel="step", ylabel=label)
axes[0].legend(fontsize=7)
show(
    fig,
    "Rows of used and unused relation names over training, with decay and without. At the last step: "
    + "; ".join(told)
    + ".",
    "Rows of names in the analogy task: eight seeds an arm, every seed and their median.",
)

# %%
start, end = (
    {
        arm: f.query(f"step == {s}").set_index("seed")
        for arm, f in kept.items()
    }
    for s in (0, 500)
)
cosine = {arm: end[arm]["unused_cosine"] for arm in ARMS}
own = {arm: end[arm]["unused_own"] / start[arm]["unused_own"] for arm in ARMS}
assert cosine["no decay"].min() > end["no decay"]["used_cosine"].max() + 0.3
assert own["learn"].max() < 0.2 and own["no decay"].min() > 0.8
say(
    f"Cosine of unused names at the end: {cosine['learn'].median():.2f} with decay, {cosine['no decay'].median():.2f} without. Left of their "
    f"own parts: {own['learn'].median():.0%} with decay, {own['no decay'].median():.0%} without."
)

# %% [markdown]
# So two things happen, and only one of them is decay's. All unused rows are pushed the same way, decay or not: every batch
# lowers the logits of all names that are not the answer, and names that are never the answer know no other push. That adds a
# common vector and lifts the cosine. But no row comes *nearer* to another by it. What takes the own parts away, here, is decay. Read
# the cosine together with the own part, as [part I](../unseen/03_watching_the_collapse.ipynb) said one should.
#
# ## Ten thousand rows, sixty-four, or none
#
# If they act as one, a few can stand for all. [Three phases](../analogy/02_three_phases.ipynb) let $R = 64$ rows stand for the
# $K$ thousands of unused names, with $\log(K/R)$ added to their logits: *stand-ins*. And what if one just leaves the names out? Live,
# the same four seeds.

# %% tags=["nbval-ignore-output"]
used = AnalogyConfig(vocabulary=run.task.n_relations)
without = [dataclasses.replace(one, task=used) for one in runs]
dropped = train_many(without)[1]
for name, histories in (
    ("all names", exact),
    ("unused names dropped", dropped),
):
    steps = [row["step"] for row in histories[0]]
    loss = [[row["loss"] for row in history] for history in histories]
    right = [[row["acc_ana_ood"] for row in history] for history in histories]
    at = steps.index(300)
    mean = sum(one[at] for one in loss) / len(loss)
    analogies = sum(one[at] for one in right) / len(right)
    print(
        f"{name:22} step 300: loss {mean:.2f}, held-out analogies right {analogies:.2f}"
    )

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.75)
told = []
WAYS = {"learn": "standard", "stand-ins": "stand_ins", "dropped": "dropped"}
for arm, condition in WAYS.items():
    frame = cures(arm)
    label = "a row for every name" if arm == "learn" else None
    curves(
        axes[0],
        frame[frame["step"] > 0],
        "step",
        "loss",
        condition,
        label=label,
    )
    curves(axes[1], frame, "step", "acc_ana_ood", condition, label=label)
    at = frame[frame["step"] == 300]
    told.append(
        f"{arm}: loss {at['loss'].median():.2f}, analogies right {at['acc_ana_ood'].median():.2f}"
    )
axes[0].set(xlabel="step", ylabel="loss", yscale="log")
axes[1].set(
    xlabel="step", ylabel="held-out analogies right", ylim=(-0.02, 1.02)
)
axes[0].legend()
show(
    fig,
    "Loss and held-out analogies over training with a row for every name, with 64 stand-ins, and with unused names dropped. "
    "At step 300, medians: " + "; ".join(told) + ".",
    "All names, stand-ins and no unused names: eight seeds each.",
)

# %%
kinds = ("acc_comp_ood", "acc_ana_ood")
lines = [
    "| names | loss at step 300 | held-out compositions at .9 (step) | all held-out analogies right (step) | right at the end, seed by seed |",
    "|---" * 5 + "|",
]
ends, dates = {}, {}
for arm in WAYS:
    frame = cures(arm)
    loss = frame[frame["step"] == 300]["loss"]
    cells = []
    for kind in kinds:
        date = hits(frame, kind)
        dates[arm, kind] = date.fillna(
            frame["step"].max() + 10
        )  # never: later than the last step
        cells.append(
            f"{date.median():.0f} ({date.notna().sum()} of {len(date)})"
            if date.notna().mean() > 0.5
            else f"most never ({date.notna().sum()} of {len(date)})"
        )
    ends[arm] = frame[frame["step"] == frame["step"].max()].set_index("seed")[
        "acc_ana_ood"
    ]
    shares = " ".join(f"{value:.1f}" for value in sorted(ends[arm]))
    lines.append(
        f"| {arm} | {loss.median():.2f} [{loss.min():.2f}, {loss.max():.2f}] | {cells[0]} | {cells[1]} | {shares} |"
    )
say("Median step of the seeds that get there.\n\n" + "\n".join(lines))

# %%
sooner = (
    dates["dropped", "acc_comp_ood"] < dates["learn", "acc_comp_ood"]
).sum()
less = (ends["dropped"] < ends["learn"]).sum()
assert sooner >= 6 and less >= 4
say(
    f"Without strangers held-out compositions come sooner in {sooner} of {len(ends['learn'])} seeds, and {less} of "
    f"{len(ends['learn'])} have fewer held-out analogies right at the end."
)

# %%
C2 = next(claim for claim in ledger.LEDGER if claim.id == "C2")
say(
    f"**C2** {C2.statement}: **{claims.verdict(C2)[0]}**.\n\n{claims.evidence(C2)}"
)

# %% [markdown]
# (The first two parts of C2 sum up what [part II](../analogy/02_three_phases.ipynb) had shown. The third was written down
# before its runs.)
#
# A smaller loss is no wonder, since the sum in the softmax has fewer terms. What happens to analogies is one. A crowd of strangers
# seems to *help* a little. We did not expect that, registered nothing about it, and can only guess: whoever has to push ten thousand
# rows down keeps a common direction free for it, and is held back from fitting each fact on its own.
#
# ## What "many relations" means
#
# B3 says that few relations give no analogy. There are two numbers in it: how many relations the world *uses*, and how many
# names the vocabulary *has*. We vary both.

# %% tags=["hide-input"]
table = pd.concat([varied("relations"), varied("names")])
pair = table["value"].str.split("/", expand=True).astype(int)
table["in use"] = pair[0]
table["vocabulary"] = [
    "only those" if used == names else f"{names:,}"
    for used, names in zip(pair[0], pair[1])
]
order = ["only those", "500", "2,000", "10,000"]
grids = {
    what: table.groupby(["in use", "vocabulary"])[column]
    .mean()
    .unstack()[order]
    for what, column in (
        ("compositions", "last_comp_ood"),
        ("analogies", "last_ana_ood"),
    )
}
reached = (
    table["first_ana_ood"]
    .notna()
    .groupby([table["in use"], table["vocabulary"]])
    .sum()
)
reached = reached.unstack()[order]
fig, axes = figure("wide", cols=2, aspect=0.75)
for ax, (what, grid) in zip(axes, grids.items()):
    ax.imshow(grid.to_numpy(), cmap="cividis", aspect="auto", vmin=0, vmax=1)
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            text = f"{grid.iloc[i, j]:.2f}"
            text += f" ({reached.iloc[i, j]})" if what == "analogies" else ""
            back = {
                "facecolor": "white",
                "alpha": 0.8,
                "linewidth": 0,
                "pad": 1,
            }
            ax.text(
                j, i, text, ha="center", va="center", fontsize=8, bbox=back
            )
    ax.set_xticks(range(len(order)), order, fontsize=8)
    ax.set_yticks(range(len(grid)), grid.index)
    ax.set(xlabel="names in the vocabulary", title=f"held-out {what} right")
    ax.grid(False)
axes[0].set_ylabel("relations in use")
show(
    fig,
    "Held-out compositions and analogies right at the end, by relations in use and names in the vocabulary. "
    + "; ".join(
        f"{what}, {used} in use: "
        + ", ".join(f"{name} {grid.loc[used, name]:.2f}" for name in order)
        for what, grid in grids.items()
        for used in grid.index
    )
    + ".",
    "Relations in use by names in the vocabulary: means over eight seeds after 1000 steps, in brackets how many seeds ever had all "
    "held-out analogies right. Unused names are 64 stand-ins.",
)

# %%
analogies = grids["analogies"]
in_use = analogies.loc[210].min() - analogies.loc[:105].max().max()
by_names = analogies.loc[210].max() - analogies.loc[210].min()
assert in_use > by_names and analogies.loc[:105].max().max() < 0.3
say(
    f"With 105 relations in use or fewer, at most {analogies.loc[:105].max().max():.2f} of held-out analogies are right, whatever the "
    f"vocabulary. With 210 in use: "
    + ", ".join(
        f"{name} names {analogies.loc[210, name]:.2f} ({reached.loc[210, name]} of 8 seeds ever had all)"
        for name in order
    )
    + ". So the number *in use* makes the larger difference, and a vocabulary of strangers a smaller one."
)

# %% [markdown]
# "In use" has a catch of its own. With fewer relations than pairs, one relation name stands for several pairs, and the short
# cut of composition is gone ([What it depends on](../analogy/03_what_it_depends_on.ipynb)). The left panel shows it: compositions
# suffer too. So this table cannot tell a need for *many* relations from a need for *one relation a pair*.
#
# ## Doubts
#
# *One size.* The strangers' effect on the date is that of ten thousand names on a world of thirty entities. *Names or
# temperature?* More names make the softmax larger and the early gradients stronger; we have not taken that apart. *Adam.* The
# lemma does not speak of it; what we show here is measured, not derived.

# %% [markdown]
# ## Summary
#
# - Paper B's unused relation names are paper A's unseen tokens. Their rows get a common direction with decay or without, and lose
#   what is their own with decay.
# - They act as one, so 64 weighted rows can stand for them. Leaving them out gives a smaller loss, and somewhat less analogy.
# - In "many relations", the number in use weighs more than the size of the vocabulary, and cannot be told from "one relation a pair".

# %% [markdown]
# ## What would change our mind
#
# If worlds with fewer relations than pairs drew analogies once their vocabulary was large enough, the names would count
# after all. If unused rows got no common direction under plain gradient descent that learns the task as well, the drift would be
# Adam's; no such arm is run here.

# %% [markdown]
# ## Exercises
#
# **1. The mass of strangers** (easy, 15 minutes). Given logits and the ids of some names, what is the mean probability, over
# prompts, that the answer is one of them? Then use it on a model of this chapter, for all unused names, at the start and at
# the end. How much of the first loss is theirs?


# %%
def mass_of_names(logits, names):
    """Mean over prompts of the probability of all `names` together; `logits` are [prompts, tokens]."""


exercises.check_mass_of_names(mass_of_names)

# %% [markdown]
# **2. One row for all** (medium, 20 minutes). Train with `stand_ins=1`. One row has only itself to agree with. Where does the
# loss leave that of the exact softmax, and why there?
#
# Worked solutions stand on [their own page](../solutions/bridge_solutions.ipynb).

# %% [markdown]
# ## Next
#
# Paper A protects rows from training, paper B needs training to move them. Can one have both? That chapter is to come. The
# [claims ledger](claims.ipynb) has what is known so far.
