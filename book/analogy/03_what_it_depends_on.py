# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What it depends on
#
# - **You will be able to** say which settings decide whether analogies come, and which of them only delay within the steps
#   that we run, and explain what "composition" means in a world with a short cut, and in one without.
# - **Needs** [Three phases](02_three_phases.ipynb). Trains eight models live on one processor core, and reads stored
#   runs.
# - **Minutes** thirty-five to read, about one to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, exercises, ledger
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import numpy as np
import pandas as pd
import torch

from lib.analogies import AnalogyRun
from lib.analogy_sweeps import histories
from lib.generators import analogy
from lib.ledger.analogy import NEVER, varied
from lib.ledger.mechanism import mechanism as stored
from lib.plotting import figure, look, say, show, style

style()
torch.set_num_threads(1)

# %% [markdown]
# ## A recipe with many ingredients
#
# In the last chapter analogies came in nearly every seed. That was one setting: fifteen entities, 210 relations, a batch
# of 64, and so on. Change one thing and they may come later, or never, or come and go. Paper B
# {cite}`minegishi2026analogy` reports a list of such dependences (B2 to B7). We vary one thing at a time around our
# setting, with eight seeds each and a thousand steps for all
# but one world.
#
# Two questions are asked of each value. Do held-out analogies come right and *stay* right to the end? And if so, from which
# step?
#
# :::{admonition} Predict before you run
# :class: predict
# There are 15 entities. With 210 relations every pair of E1 has a relation of its own. With 30 relations each relation
# joins seven pairs. Everything else is equal: the same number of atomic facts, of compositions, of analogies. Will analogies come
# sooner, because there is less to learn, or later?
# :::

# %% [markdown]
# ## Live: few relations
#
# Four models with 30 relations and four with 210, 500 steps each.

# %% tags=["nbval-ignore-output"]
few = analogy.AnalogyConfig(relations=30)
runs = {
    "30 relations": AnalogyRun(task=few, stand_ins=64, eval_every=20),
    "210 relations": AnalogyRun(stand_ins=64, eval_every=20),
}
rows = []
for name, run in runs.items():
    for seed, history in histories(run, (0, 1, 2, 3)):
        rows += [{"run": name, "seed": seed, **row} for row in history]
live = pd.DataFrame(rows)
end = live[live["step"] == live["step"].max()]
print("share right at the last step, means of four seeds")
print(
    end.groupby("run")[
        [
            "acc_atomic",
            "acc_comp_id",
            "acc_comp_ood",
            "acc_ana_id",
            "acc_ana_ood",
        ]
    ]
    .mean()
    .round(2)
    .T
)

# %%
by_run = end.groupby("run")["acc_ana_ood"].mean()
assert by_run["210 relations"] > 0.6 > by_run["30 relations"] + 0.2
say(
    f"With 210 relations {by_run['210 relations']:.2f} of the held-out analogies are right, with 30 relations {by_run['30 relations']:.2f}. Known analogies are "
    "learned in both. It is not that there is too much to learn."
)

# %% [markdown]
# ## All settings
#
# Below, one panel a setting. Each column is a value, each field one seed, sorted. Its shade says from which step held-out
# analogies stay right to the end. Hatched fields never get there, or do not stay. Numbers above a column count the seeds that do.


# %% tags=["hide-input"]
def dates(name, kind="ana_ood"):
    """Sustained steps, one column a value, seeds sorted within it; NaN for never."""
    frame = varied(name)
    order = list(dict.fromkeys(frame["value"]))
    table = {
        value: sorted(
            frame[frame["value"] == value][f"sustained_{kind}"].astype(float),
            key=lambda step: (np.isnan(step), step),
        )
        for value in order
    }
    return pd.DataFrame(table)


PANELS = {
    "entities": "entities a category",
    "ana_ood": "analogies held out",
    "comp_ood": "compositions held out",
    "decay_adam_l2": "decay, Adam with L2",
    "decay_adamw": "decay, AdamW",
    "lr": "learning rate",
    "batch": "batch",
    "width": "width",
    "depth": "layers",
    "init": "initial standard deviation",
}


def lasting(table):
    """How many seeds get there and stay, and their median step, by value."""
    told = []
    for value, steps in table.items():
        middle = steps.fillna(NEVER).quantile(0.5, interpolation="higher")
        when = "never" if middle >= NEVER else f"step {middle:.0f}"
        told.append(
            f"{value} {steps.notna().sum()} of {len(steps)}, median {when}"
        )
    return "; ".join(told)


def field(ax, table, title):
    """Seeds as shaded fields, a column for each value; hatched where analogies do not last."""
    shades = ax.imshow(
        table, aspect="auto", vmin=0, vmax=1000, origin="lower"
    )
    ax.patch.set(hatch="////", facecolor="white", edgecolor="#999999")
    for x, steps in enumerate(table.to_numpy().T):
        ax.text(
            x,
            len(table) - 0.4,
            int(np.isfinite(steps).sum()),
            ha="center",
            va="bottom",
            fontsize=8,
        )
    ax.set_xticks(range(table.shape[1]), list(table), fontsize=7)
    ax.set_yticks([])
    ax.set_title(title, fontsize=9, pad=14)
    ax.grid(False)
    return shades


def with_bar(fig, shades, axes):
    """The figure with the bar that says what a shade means."""
    fig.colorbar(
        shades,
        ax=axes,
        location="bottom",
        shrink=0.5,
        label="step from which held-out analogies stay right",
    )
    return fig


fig, axes = figure("wide", rows=5, cols=2, aspect=0.42)
told = []
for ax, (name, title) in zip(axes.flat, PANELS.items(), strict=True):
    shades = field(ax, dates(name), title)
    told.append(f"{title}: {lasting(dates(name))}")
show(
    with_bar(fig, shades, axes),
    f"Seeds in which held-out analogies come and stay, of 1000 steps. {'. '.join(told)}.",
    "One panel a setting, one column a value, one field a seed; hatched: never, or not lasting. Numbers: seeds that last.",
)


# %%
def lasts(name):
    """How many seeds have lasting analogies, by value."""
    return dates(name).notna().sum()


batches, starts = dates("batch").fillna(NEVER).median(), lasts("init")
assert list(batches) == sorted(batches, reverse=True)
assert starts["0.05"] == starts["usual"] == 0 < starts["0.02"]
assert lasts("entities")["5"] == lasts("ana_ood")["0.90"] == 0
assert lasts("width").idxmax() in ("128", "256")
assert lasts("depth").idxmax() == "1"

# %% [markdown]
# Look at the panels in three groups.
#
# **Data.** More entities make more facts, and known analogies rarer among them. With five entities only three analogies are
# known, too few. The more analogies are held out, the less
# is left to notice them by. Held-out compositions work the other way: the fewer of them are shown, the larger the share of
# known analogies in a batch.
#
# **Optimisation.** Larger steps and larger batches are sooner, up to where steps are too large. Decay is the famous one; we
# come back to it.
#
# **Size and start.** Width and depth have a best value, and the largest is not it. And the start decides: with a standard
# deviation of 0.05, or the usual $1/\sqrt{d}$ of a matrix with $d$ inputs, no seed gets there. (The reasons that we name are
# likely ones, not measured ones.)

# %% [markdown]
# ## Relations used, and names there are
#
# The paper varies the number of relations. Two numbers hide in that: how many relations *occur*, and how many names the
# vocabulary has for them. The names that never occur are still wrong answers, thousands of them. So vary both.

# %% tags=["hide-input"]
two_way = varied("relations")
parts = two_way["value"].str.split("/", expand=True).astype(int)
two_way = two_way.assign(used=parts[0], names=parts[1])
last = two_way.pivot_table(
    index="names", columns="used", values="last_ana_ood"
)
composed = two_way.pivot_table(
    index="names", columns="used", values="last_comp_ood"
)
fig, axes = figure("wide", cols=2, aspect=0.5, sharey=True)
told = []
for ax, table, title in zip(
    axes,
    (last, composed),
    ("analogies, held out", "compositions, held out"),
    strict=True,
):
    ax.imshow(table, vmin=0, vmax=1, aspect="auto", origin="lower")
    for (y, x), share in np.ndenumerate(table.to_numpy()):
        color = "black" if share > 0.6 else "white"
        ax.text(x, y, f"{share:.2f}", ha="center", va="center", color=color)
    ax.set_xticks(range(table.shape[1]), table.columns)
    ax.set_yticks(range(table.shape[0]), [f"{n:,}" for n in table.index])
    ax.set(xlabel="relations that occur", title=title)
    ax.grid(False)
    told += [
        f"{title}, {n} names, {k} relations: {table.at[n, k]:.2f}"
        for n in table.index
        for k in table.columns
    ]
axes[0].set_ylabel("names")
show(
    fig,
    f"Mean shares right at step 1000. {'; '.join(told)}.",
    "Shares right at the last step, means of eight seeds, by relations that occur and names in the vocabulary.",
)

# %%
gap_used = (last[210] - last[105]).mean()
gap_names = (last.loc[10_000] - last.loc[500]).abs().max()
dates_of = {
    n: varied("relations", f"210/{n}")["sustained_ana_ood"].fillna(NEVER)
    for n in (500, 10_000)
}
assert gap_used > 0.5 > 0.2 > gap_names
say(
    f"From 105 relations to 210 the share of analogies changes by {gap_used:+.2f}. Between 500 and 10,000 names it changes by at most "
    f"{gap_names:.2f} in any column. Names that never occur do move the date: with 210 relations analogies last from a median step of "
    f"{dates_of[500].median():.0f} with 500 names and of {dates_of[10_000].median():.0f} with 10,000."
)

# %% [markdown]
# Not the number of names decides, and not how many relations there are to learn. The step is from 105 to 210: from two pairs
# a relation to one. And the right panel says what else fails there. Where relations are shared, held-out *compositions* are not
# solved either, within these steps.

# %% [markdown]
# ## Composition without composing
#
# Why should it matter that each pair has a relation of its own? Go back to the short cut of
# [chapter 1](01_categories_and_functors.ipynb). Where every pair of E1 has a relation of its own, $r_2$ alone leaves two
# answers, $c$ and $F(c)$. The source says only in which category. Ask the trained models whether they take it. In held-out
# compositions `a r1 r2` we put another relation in place of $r_1$, or another source.

# %% tags=["hide-input"]
lines = [
    "| asked | still c | partner of c | on a circle: still c | on a circle: partner of c |",
    "|---|---|---|---|---|",
]
for change, name in (
    ("none", "as they are"),
    ("first relation", "another r1"),
    ("source", "another source, same category"),
    ("category", "the source's partner"),
):
    cells = []
    for arm in ("one layer", "circle"):
        one = stored("short cut", change, arm=arm)
        if arm == "circle":
            plain = stored("short cut", "none", arm=arm)["right"]
            one = one[plain >= ledger.LEARNED]
        cells += [
            f"{one[c].mean():.2f} [{one[c].min():.2f}, {one[c].max():.2f}]"
            for c in ("right", "followed")
        ]
    lines.append(f"| {name} | {' | '.join(cells)} |")
circle = stored("short cut", "none", arm="circle")["right"]
say(
    "Mean [lowest, highest] over eight seeds with the exact softmax. On the circle, with stand-ins: the "
    f"{int((circle >= ledger.LEARNED).sum())} of {len(circle)} seeds that solve held-out compositions.\n\n"
    + "\n".join(lines)
)

# %%
C5 = next(claim for claim in ledger.LEDGER if claim.id == "C5")
say(claims.evidence(C5))

# %% [markdown]
# The first relation is not read. So "compositional generalisation" in this world is a statement about the last token and a
# category. On a circle no token fixes the answer, and there another $r_1$ changes it. (One in fourteen of the relations drawn there
# is the old one.) There, models compose: held-out compositions are right, and all of the prompt is read.
#
# What does it take? Four times the steps, and more compositions to learn from.

# %% tags=["hide-input"]
on_circle = varied("short_cut", "no")
usual = varied("relations", "210/10000")
lines = [
    "| world | seed | held-out compositions: first hit | last from | held-out analogies: first hit | last from | right at the end |",
    "|---" * 7 + "|",
]


def step(value):
    """A step, or a dash for never."""
    return "-" if pd.isna(value) else f"{value:.0f}"


for name, frame in (("short cut", usual), ("circle", on_circle)):
    for seed, row in frame.iterrows():
        cells = (
            step(row[f"{when}_{kind}"])
            for kind in ("comp_ood", "ana_ood")
            for when in ("first", "sustained")
        )
        lines.append(
            f"| {name} | {seed} | {' | '.join(cells)} | {row['last_ana_ood']:.2f} |"
        )
say("\n".join(lines))

# %%
composed = on_circle["last_comp_ood"] >= 0.9
drawn = on_circle["last_ana_ood"] >= 0.9
apart = (on_circle["first_ana_ood"] - on_circle["first_comp_ood"]).dropna()
assert apart.abs().max() <= 400 and apart.min() < 0
say(
    f"On the circle {int(composed.sum())} of {len(on_circle)} seeds solve held-out compositions within 4000 steps, and {int(drawn.sum())} held-out "
    f"analogies; {int((composed & drawn).sum())} do both at the end. In the {len(apart)} seeds that ever have both, analogies are first right "
    f"{apart.min():.0f} to {apart.max():.0f} steps after compositions (a minus: before)."
)

# %% [markdown]
# The circle can be turned: fifteen maps carry its relations over, and nothing but the known analogies says which one is $F$.
# By first hits the two come close together, and in some seeds analogies are even first. They do not all stay.

# %% [markdown]
# ## Decay, and which optimiser
#
# Paper B says that moderate weight decay speeds analogies up and that strong decay prevents them, while compositions stay
# (B5). Adam with L2 puts the decay into the gradient, where Adam divides it by the gradient's size. AdamW takes
# $\eta\lambda$ of the weight off at each step. The same $\lambda$ means different things. So AdamW is taken further.

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.7, sharey=True)
told = []
for ax, name, title in zip(
    axes,
    ("decay_adam_l2", "decay_adamw"),
    ("Adam with L2", "AdamW"),
    strict=True,
):
    frame = varied(name)
    order = list(dict.fromkeys(frame["value"]))
    for kind in ("comp_ood", "ana_ood"):
        mark = look(kind)
        means = [
            frame[frame["value"] == v][f"last_{kind}"].mean() for v in order
        ]
        for x, v in enumerate(order):
            seeds = frame[frame["value"] == v][f"last_{kind}"]
            ax.plot(
                [x] * len(seeds),
                seeds,
                mark.marker,
                color=mark.color,
                alpha=0.25,
            )
        ax.plot(range(len(order)), means, label=mark.label, **mark.line)
        told.append(
            f"{title}, {mark.label}: "
            + ", ".join(
                f"{v} {m:.2f}" for v, m in zip(order, means, strict=True)
            )
        )
    ax.set_xticks(range(len(order)), order)
    ax.set(xlabel="weight decay", title=title, ylim=(-0.05, 1.05))
axes[0].set_ylabel("share right at step 1000")
axes[0].legend(fontsize=8, loc="lower left")
show(
    fig,
    f"Share right at the last step by weight decay. {'; '.join(told)}.",
    "Pale marks are seeds, lines are means.",
)

# %% tags=["hide-input"]
lines = [
    "| optimiser | decay | first hit, median (seeds) | seeds that last | compositions at the end | analogies at the end |",
    "|---" * 6 + "|",
]
for name, title in (
    ("decay_adam_l2", "Adam with L2"),
    ("decay_adamw", "AdamW"),
):
    for value in dict.fromkeys(varied(name)["value"]):
        one = varied(name, value)
        first = one["first_ana_ood"]
        middle = first.fillna(NEVER).median()
        when = "never" if middle >= NEVER else f"{middle:.0f}"
        lines.append(
            f"| {title} | {value} | {when} ({first.notna().sum()}) | {one['sustained_ana_ood'].notna().sum()} | "
            f"{one['last_comp_ood'].mean():.2f} | {one['last_ana_ood'].mean():.2f} |"
        )
say("\n".join(lines))

# %%
zero, some, more = (
    varied("decay_adam_l2", value) for value in ("0", "0.01", "0.1")
)
early = [one["first_ana_ood"].fillna(NEVER).median() for one in (zero, some)]
assert early[1] < early[0] and more["last_comp_ood"].mean() > 0.9
assert more["last_ana_ood"].mean() < 0.5
adamw = {
    v: dates("decay_adamw")[v].fillna(NEVER) for v in dates("decay_adamw")
}
assert (adamw["10"] == NEVER).all() and (adamw["1"] < NEVER).all()
assert abs(adamw["0"].median() - adamw["1"].median()) < 150
say(
    f"With Adam and L2 a decay of 0.01 brings the first hit forward, from a median step of {early[0]:.0f} to {early[1]:.0f}. But analogies do not "
    f"stay: at the end {some['last_ana_ood'].mean():.2f} are right, and with 0.1 {more['last_ana_ood'].mean():.2f}, while compositions are at "
    f"{more['last_comp_ood'].mean():.2f}. The first half of B5 is so seen by another measure than we had registered, first hits in place of analogies that last, "
    "and the second at another value, 0.1, and as loss: most seeds have had analogies. At a decay of 1 nothing at all is learned."
)

# %% [markdown]
# With AdamW decays of 0.01 and 1 make little difference, and 10 spoils everything; we did not look between. A guess at why the two
# optimisers differ: L2 adds the decay to the gradient, and Adam divides by the size of the sum. Where the gradient is small the
# decay is then all there is. AdamW takes the same share of all rows.

# %% [markdown]
# ## Is it the length of rows?
#
# Could all of this be the length of rows? Suppose that rows have to reach a certain length. Then analogies would
# come at one and the same length, whatever the decay (B11).

# %% tags=["hide-input"]
norms = varied("decay_adam_l2").pivot(
    index="seed", columns="value", values="norm_at_hit"
)
order = list(dict.fromkeys(varied("decay_adam_l2")["value"]))
lines = [
    "| decay | seeds that ever get there | length of entity rows then |",
    "|---|---|---|",
]
for value in order:
    x = norms[value].dropna()
    told = (
        f"{x.median():.2f} [{x.min():.2f}, {x.max():.2f}]" if len(x) else "-"
    )
    lines.append(f"| {value} | {len(x)} | {told} |")
say("\n".join(lines))

# %%
elsewhere = {}
for name in ("lr", "batch", "comp_ood", "entities", "width"):
    for value in dict.fromkeys(varied(name)["value"]):
        x = varied(name, value)["norm_at_hit"].dropna()
        if len(x) >= 5:
            elsewhere[f"{PANELS[name]} {value}"] = x.median()
low, high = (
    pick(elsewhere, key=elsewhere.__getitem__) for pick in (min, max)
)
say(
    f"Across decays the length at that moment hardly changes: the test that we registered goes against B11. A comparison that we did not register speaks "
    f"for it. Across all other settings "
    f"medians go from {elsewhere[low]:.2f} ({low}) to {elsewhere[high]:.2f} ({high}). There is no one length at which analogies come."
)

# %% [markdown]
# ## Wider, deeper
#
# Width 512 and three layers are worse than the default (B7). Is that the size, or is it that a step size chosen for a small
# model is wrong for a large one? A small sweep of learning rate and decay at these two sizes:

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.5)
told = []
for ax, (name, title) in zip(
    axes,
    {"width_512": "width 512", "depth_3": "three layers"}.items(),
    strict=True,
):
    shades = field(ax, dates(name), f"{title}: learning rate / decay")
    told.append(f"{title}: {lasting(dates(name))}")
show(
    with_bar(fig, shades, axes),
    f"Large models under four settings. {'. '.join(told)}.",
    "Eight seeds a column; hatched: never, or not lasting; numbers: seeds that last.",
)

# %%
best = {
    name: max(
        (int(dates(name)[value].notna().sum()), value)
        for value in dates(name)
    )
    for name in ("width_512", "depth_3")
}
wide, deep = varied("width", "512"), varied("depth", "3")
assert best["width_512"][0] >= 6 > 3 > best["depth_3"][0]
say(
    f"At width 512 analogies last in {best['width_512'][0]} of 8 seeds with learning rate / decay {best['width_512'][1]}. So it was the optimisation. "
    f"With three layers the best of the four settings has {best['depth_3'][0]} of 8: we did not recover depth. Under default settings the share "
    f"right at the end is {wide['last_ana_ood'].mean():.2f} at width 512 and {deep['last_ana_ood'].mean():.2f} with three layers, against {varied('width', '128')['last_ana_ood'].mean():.2f} for the default. "
    "That is worse, and not as bad as our registered checks asked for."
)

# %% [markdown]
# ## The verdicts
#
# C7 is ours, and was written down after these runs.

# %%
ids = ("B2", "B3", "B4", "B5", "B6", "B7", "B11", "C7")
by_id = {claim.id: claim for claim in ledger.LEDGER}
say(
    "\n\n".join(
        f"**{id}** {by_id[id].statement}: **{claims.verdict(by_id[id])[0]}**.\n\n{claims.evidence(by_id[id])}"
        for id in ids
    )
)

# %% [markdown]
# ## Replication notes
#
# Some details of paper B's released code matter here, and are easy to miss.
#
# - Its configuration writes the learning rate as `1e-4`. PyYAML reads that as text, and Adam raises an error; `1.0e-4` works.
# - It has two layers by default, the text one. By the panel above that is not a detail.
# - Its default is five entities and one held-out pair, so that a seed scores 0 or 1. We hold out five of fifteen.
# - Its "distinct" relations are distinct for each head entity only, so one relation may join several pairs. By the two-way table
#   that is not a detail either.
# - The held-out ratio is inverted twice on its way, and so means what the text says.
# - Seed 0 is dropped from the averages.

# %% [markdown]
# ## Doubts
#
# *A thousand steps.* "Never" means not in a thousand steps. Few relations may get there in a hundred thousand.
#
# *One at a time.* We vary around one point. Two settings together may do what neither does alone, as the sweep at width 512
# shows.
#
# *Many comparisons.* Seven claims, most with several parts, are judged here with eight seeds. Some verdict may be chance.

# %% [markdown]
# ## Summary
#
# - Whether analogies come depends on data, optimisation and size. Many changes delay; about
#   as many leave nothing within a thousand steps.
# - Analogies came where each pair has a relation of its own, and not where relations are shared. Names that never occur
#   move the date only.
# - With one relation a pair, compositions have a short cut, and models take it. On a circle they compose.
# - Decay with L2 brings analogies sooner and then loses them again. AdamW's did
#   neither at the values that we tried.
# - Width 512 wants a smaller step and more decay. Three layers want something that we did not find.

# %% [markdown]
# ## What would change our mind
#
# If few relations led to analogies in longer runs, they would delay and not prevent. If
# models on the circle drew analogies without composing, our reading of the phases would be wrong.

# %% [markdown]
# ## Exercises
#
# **1. What the last relation says** (easy, 15 minutes). `facts` lists atomic facts (a, r, b) of both categories. Return
# all entities that may be the end of a composition whose last relation is `r2`.


# %%
def my_ends(facts, r2):
    """The set of entities in which a composition with last relation r2 may end."""


exercises.check_ends(my_ends)

# %% [markdown]
# **2. How rare is an analogy?** (medium, 15 minutes). Count training facts for 5, 10, 15, 20 and 25 entities at the default
# shares. How many known analogies does an average batch of 64 hold? Compare with the dates in the panel "entities".
#
# **3. Delayed or prevented?** (hard, 40 minutes, most of it waiting). Train 30 relations for 5000 steps, with seeds 0 to 3.
# Does a single held-out analogy come right? What does the energy of pairs do meanwhile?
#
# Worked solutions stand on [their own page](../solutions/analogy_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [Alignment](04_alignment.ipynb) looks at what the rows do when analogies come right.
