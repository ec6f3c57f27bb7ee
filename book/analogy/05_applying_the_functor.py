# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Applying the functor
#
# - **You will be able to** take a trained model apart, say which part of it is needed for an analogy and which part
#   says which answer it is, and steer a model from one category to the other by adding a vector.
# - **Needs** [Three phases](02_three_phases.ipynb). Trains four models live on one processor core, and reads stored
#   runs.
# - **Minutes** thirty to read, about one to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, exercises, ledger, mechanism
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd
import torch
import torch.nn.functional as F

from lib.analogies import AnalogyRun, member_of, train_many
from lib.ensemble import Ensemble
from lib.ledger.analogy import dynamics, hits
from lib.ledger.mechanism import mechanism as stored
from lib.plotting import (
    BLUE,
    GREEN,
    ORANGE,
    VERMILLION,
    figure,
    look,
    say,
    show,
    style,
)

style()
torch.set_num_threads(1)

# %% [markdown]
# ## From where rows lie to what computes
#
# Rows of partners come closer while a model learns analogies. That is a fact about geometry. It does not say what
# the model *does* when it reads a source and the functor's token, and writes the partner.
#
# Paper B {cite}`minegishi2026analogy` answers with a picture. The functor attends to the source (B9). It adds itself:
# the difference $e_t - e_s$ between the rows of target and source becomes parallel to the row $f$ of the functor, so
# $e_t \approx e_s + f$ (B10). An analogy would be an addition.
#
# Both are correlations. Attention may rise without being used, and two vectors may be parallel without one being added
# to the other. We have the model on the table. We can cut.
#
# :::{admonition} Predict before you run
# :class: predict
# The prompt is `s f`. The functor's position sees two tokens, the source and itself. Suppose we force its attention
# to the source from what the model chose to 1. Will it answer better, equally, or worse?
# :::

# %% [markdown]
# ## Four models, live
#
# The laptop preset with stand-ins, seeds 0 to 3. The live cells below change these models for a moment, ask all fifteen
# analogies, ten known and five held out, and change them back.

# %% tags=["nbval-ignore-output"]
SEEDS = (0, 1, 2, 3)
runs = [AnalogyRun(stand_ins=64, eval_every=50, seed=seed) for seed in SEEDS]
members = [member_of(run) for run in runs]
models, history = train_many(runs)
solved = [rows[-1]["acc_ana_ood"] for rows in history]
assert sorted(solved)[1] >= 0.6
say(
    f"Share of held-out analogies right at step {history[0][-1]['step']}, by seed: "
    + ", ".join(f"{share:.1f}" for share in solved)
    + "."
)

# %% [markdown]
# ## How much the functor looks
#
# First the claim as the paper makes it. Attention has two places to go here, so it starts near one half. Thin lines
# are the eight stored seeds with the exact softmax, the bold one is their median. A tick marks the first step at which
# a seed has all its held-out analogies right.

# %% tags=["hide-input"]
exact = dynamics("exact")
first = hits(exact, "acc_ana_ood")
table = exact.pivot(index="step", columns="seed", values="attention_source")
fig, ax = figure()
ax.plot(table, color=BLUE, linewidth=0.6, alpha=0.4)
ax.plot(
    table.median(axis=1),
    **look("comp_ood").line,
    markevery=5,
    label="median of eight seeds",
)
for seed, step in first.items():
    ax.plot(step, table.at[step, seed], "|", color=VERMILLION, markersize=14)
ax.plot(
    [],
    [],
    "|",
    color=VERMILLION,
    markersize=14,
    label="held-out analogies right",
)
ax.set(xlabel="step", ylabel="attention to the source", ylim=(0.3, 0.75))
ax.legend(loc="lower right")
middle = table.median(axis=1)
show(
    fig,
    f"The functor's attention to the source over training, eight seeds. The median starts at {middle.iloc[0]:.2f}, has its "
    f"lowest value {middle.min():.2f} at step {middle.idxmin()} and ends at {middle.iloc[-1]:.2f}. Ticks at the first hits of held-out "
    "analogies lie on the rising part and after it.",
    "The functor's attention to the source dips, rises, and stays. Ticks: held-out analogies are first right.",
)

# %%
assert abs(middle.iloc[0] - 1 / 2) < 0.05 < middle.iloc[-1] - 1 / 2 < 1 / 6
B9 = next(claim for claim in ledger.LEDGER if claim.id == "B9")
say(claims.evidence(B9))

# %% [markdown]
# So B9 holds here: attention rises before the answers are right. It is a rise from one half to less than two thirds.
# The model does not *turn to* the source. It weighs the source against the functor a little more.

# %% [markdown]
# ## Cut one: how much attention?
#
# The attention that a model chose is a number between 0 and 1. We replace it by a number of our own, the same for every
# source, and ask again. Pale marks are the stored seeds, the live models are printed.

# %% tags=["nbval-ignore-output"]
parts = mechanism.components(models, members)
live = pd.concat(
    [
        pd.DataFrame(rows).assign(seed=seed)
        for seed, rows in zip(SEEDS, parts, strict=True)
    ]
)
held = live[live["group"] == "held_out"]
pattern = held[held["change"] == "pattern"].groupby("level")["right"].mean()
print("live, attention set to: share of held-out analogies right")
for level, share in pattern.items():
    print(f"{level:6.2f} {share:6.2f}")

# %% tags=["hide-input"]
LEVELS = mechanism.LEVELS
fig, ax = figure()
told = []
for group, mark in (("known", look("ana_id")), ("held_out", look("ana_ood"))):
    tables = {
        level: stored("components", "pattern", level, group=group)["right"]
        for level in LEVELS
    }
    means = [tables[level].mean() for level in LEVELS]
    for level in LEVELS:
        ax.plot(
            [level] * len(tables[level]),
            tables[level],
            mark.marker,
            color=mark.color,
            alpha=0.25,
            markersize=7,
        )
    ax.plot(LEVELS, means, label=mark.label, **mark.line)
    told.append(
        f"{mark.label}: " + ", ".join(f"{share:.2f}" for share in means)
    )
chosen = exact[exact["step"] == exact["step"].max()]["attention_source"]
ax.axvspan(chosen.min(), chosen.max(), color="#DDDDDD", zorder=0)
ax.set(
    xlabel="attention to the source, set by us",
    ylabel="share right",
    ylim=(-0.05, 1.05),
)
ax.legend()
show(
    fig,
    f"Share of analogies right when the attention to the source is set to {', '.join(f'{v:g}' for v in LEVELS)}. Means over eight "
    f"seeds: {'; '.join(told)}. A grey band from {chosen.min():.2f} to {chosen.max():.2f} marks what the models choose.",
    "Analogies need the right amount of attention, not much of it. Grey: what the models choose at the end.",
)

# %%
half, full, none = (
    stored("components", "pattern", level)["right"]
    for level in (0.5, 1.0, 0.0)
)
assert half.mean() > 0.5 > full.mean() and none.mean() < 0.5
say(
    f"With the attention that the models choose all is well. At one half {half.mean():.2f} of the held-out analogies are right, at 1 "
    f"{full.mean():.2f}, at 0 {none.mean():.2f} (means of eight seeds)."
)

# %% [markdown]
# More is not better. At 1 the functor's value is gone, and its row alone, which is still in the stream, does not do. At 0 the
# source is gone. What is needed is a mixture of two values in about the proportion that training has found.

# %% [markdown]
# ## Cut two: the pattern or the value?
#
# Attention has two outputs. The *pattern* says how much comes from where. The *value* says what comes. We exchange
# them one at a time: every source gets the pattern of the next source in the list, or its value. A model that is given
# the value of source $s'$ may do three things. It may still answer $F(s)$, it may follow and answer $F(s')$, or
# neither.

# %% tags=["hide-input"]
CUTS = {
    "none": "nothing changed",
    "pattern, other": "pattern of the next source",
    "value, other": "value of the next source",
    "value, mean": "mean value of all sources",
    "value, 0": "source's value 0",
    "functor value, 0": "functor's value 0",
    "no MLP": "no MLP",
}
lines = [
    "| change | still F(s), held out | F(s'), held out | still F(s), known | live, held out: F(s), F(s') |",
    "|---|---|---|---|---|",
]
for change, name in CUTS.items():
    out, known = (
        stored("components", change, group=group)
        for group in ("held_out", "known")
    )
    mine = held[held["change"] == change][["right", "followed"]].mean()
    lines.append(
        f"| {name} | {out['right'].mean():.2f} [{out['right'].min():.1f}, {out['right'].max():.1f}] "
        f"| {out['followed'].mean():.2f} [{out['followed'].min():.1f}, {out['followed'].max():.1f}] "
        f"| {known['right'].mean():.2f} | {mine['right']:.2f}, {mine['followed']:.2f} |"
    )
say(
    "Shares: mean [lowest, highest] of eight stored seeds, exact softmax, step 500.\n\n"
    + "\n".join(lines)
)

# %%
swap = stored("components", "value, other")
same = stored("components", "pattern, other")
assert swap["followed"].mean() > 0.8 and same["right"].mean() > 0.8
assert held[held["change"] == "value, other"]["followed"].mean() > 0.6
say(
    f"Another source's pattern changes nothing: {same['right'].mean():.2f} stay right. Another source's value changes everything: "
    f"{swap['right'].mean():.2f} stay right and {swap['followed'].mean():.2f} follow to the partner of the source whose value it was."
)

# %% [markdown]
# So the answer travels in the value. The pattern is nearly the same for all sources, a constant of the model. And the
# MLP is needed as well: what attention hands over is not yet the partner's row.

# %%
C13 = next(claim for claim in ledger.LEDGER if claim.id == "C13")
say(claims.evidence(C13))

# %% [markdown]
# ## Is it an addition?
#
# Now $e_t \approx e_s + f$. Measure the cosine between each difference $e_t - e_s$ and the functor's row $f$. The
# control pairs each source with the wrong targets. If targets as a whole lay in the direction of $f$, both would be
# large.

# %% tags=["hide-input"]
end = exact[exact["step"] == exact["step"].max()]
lines = ["| pairs | cosine of $e_t - e_s$ and $f$ |", "|---|---|"]
for group, name in (
    ("held_out", "held out"),
    ("pairs", "all"),
    ("mismatched", "mismatched"),
):
    values = end[f"W_E_parallelism_{group}"]
    lines.append(
        f"| {name} | {values.median():.2f} [{values.min():.2f}, {values.max():.2f}] |"
    )
say(
    "Median [lowest, highest] of eight seeds at the last step.\n\n"
    + "\n".join(lines)
)

# %%
B10 = next(claim for claim in ledger.LEDGER if claim.id == "B10")
said, _ = claims.verdict(B10)
say(f"B10: **{said}**.\n\n" + claims.evidence(B10))

# %% [markdown]
# The cosine is far from 1, and true partners have no more of it than wrong ones. With a tied matrix a row has two jobs:
# the functor's row is read as a word, and it is also pushed away as a wrong answer. Its direction need not be the
# direction in which it moves others.
#
# But the idea may be right where the letter is wrong. What if there *is* one vector that leads from sources to
# partners, and it is not the row of `f`?

# %% [markdown]
# ## Steering
#
# Take the mean of $e_t - e_s$ over known pairs and call it $d$. Add $d$ to the row of a held-out source, and ask an
# ordinary atomic fact, `s r`. No functor stands in this prompt. The answer is $b$, the entity that $r$ leads to. If $s + d$ is
# as good as $F(s)$, the model should walk the same relation in the other category and say $F(b)$. It never saw `s + d`.
#
# Controls: the functor's own row $f$, and a random direction as long as $d$.
#
# :::{admonition} Predict before you run
# :class: predict
# Which of the three moves a source into the other category when it is added once? Which when it is added four times?
# :::

# %% tags=["nbval-ignore-output"]
moves = pd.concat(
    [
        pd.DataFrame(rows).assign(seed=seed)
        for seed, rows in zip(
            SEEDS, mechanism.steering(models, members, SEEDS), strict=True
        )
    ]
)
moves = moves[(moves["group"] == "held_out") & (moves["test"] == "prompt")]
print("live, held-out sources: share of answers b that became F(b)")
print(
    moves.pivot_table(
        index="level", columns="change", values="followed"
    ).round(2)
)

# %% tags=["hide-input"]
DIRECTIONS = {
    "mean difference": ("mean of e_t - e_s, known pairs", BLUE, "s", "-"),
    "functor": ("the functor's row", ORANGE, "^", "--"),
    "random": ("random, as long", GREEN, "o", ":"),
}
fig, axes = figure("wide", cols=2, aspect=0.85)
told = []
for change, (name, color, marker, line) in DIRECTIONS.items():
    for ax, test in zip(axes, ("prompt", "row"), strict=True):
        seeds = pd.DataFrame(
            {
                level: stored(test, change, level)["followed"]
                for level in mechanism.STRENGTHS
            }
        )
        ax.plot(seeds.columns, seeds.T, color=color, linewidth=0.6, alpha=0.3)
        ax.plot(
            seeds.columns,
            seeds.mean(),
            color=color,
            marker=marker,
            linestyle=line,
            label=name,
        )
        what = (
            "answers that become F(b)"
            if test == "prompt"
            else "nearest rows that are F(s)"
        )
        told.append(
            f"{what}, {name}: "
            + ", ".join(f"{value:.2f}" for value in seeds.mean())
        )
for ax, title in zip(
    axes,
    ("answers to `s r` that become F(b)", "nearest row is F(s)"),
    strict=True,
):
    ax.set_xscale("log", base=2)
    ax.set_xticks(
        mechanism.STRENGTHS, [f"{v:g}" for v in mechanism.STRENGTHS]
    )
    ax.set(xlabel="times the direction", ylim=(-0.05, 1.05), title=title)
axes[0].legend(fontsize=8)
show(
    fig,
    f"Held-out sources moved by {', '.join(f'{v:g}' for v in mechanism.STRENGTHS)} times a direction. Means over eight seeds. "
    + "; ".join(told)
    + ".",
    "Left: what the model answers when the source is moved. Right: which row lies nearest to the moved source.",
)

# %%
once = {
    change: stored("prompt", change, 1.0)["followed"] for change in DIRECTIONS
}
assert once["mean difference"].mean() > 0.8 > 0.2 > once["random"].mean()
live_once = moves[moves["level"] == 1].groupby("change")["followed"].mean()
assert live_once["mean difference"] > live_once["random"] + 0.4
say(
    f"Added once, the mean difference turns {once['mean difference'].mean():.2f} of the answers into their partners, the functor's row "
    f"{once['functor'].mean():.2f}, a random direction {once['random'].mean():.2f}."
)

# %%
C14 = next(claim for claim in ledger.LEDGER if claim.id == "C14")
say(claims.evidence(C14))

# %% tags=["nbval-ignore-output"]
asked = mechanism.ask(members)
lengths, cosines = [], []
for i, member in enumerate(members):
    W, out = models.W_E[i].detach(), asked.held[i]
    s, t = W[member.world.entity[0]], W[member.world.entity[1]]
    d, f = (t - s)[~out].mean(dim=0), W[member.world.functor[0]]
    lengths.append(float(f.norm() / d.norm()))
    cosines.append(float(F.cosine_similarity(d, f, dim=0)))
say(
    f"Live: the functor's row is {min(lengths):.2f} to {max(lengths):.2f} times as long as $d$, and its cosine with $d$ is {min(cosines):.2f} to "
    f"{max(cosines):.2f}. It points a little that way, and so it takes four of it."
)

# %% [markdown]
# So the model's two categories do differ by one vector, well enough that the *rest of the model* takes a moved source
# for its partner. Paper B's equation describes the geometry when $f$ stands for that vector, and not when it stands
# for the functor's own row.
#
# Mind what this shows. A prompt `s r` needs to know the category, and which relation is asked. It does not need to know
# *which* source it is, for the relation alone fixes $\{b, F(b)\}$. Steering may move the category and lose the individual.
# On the right the moved row should lie nearest to its own partner, of all rows there are. It does so less often; and partners
# are near to begin with, so that the controls do not fail either.

# %% [markdown]
# ## Steering backwards
#
# So ask a question in which the individual counts. Put the row $F(s) - d$ in the source's place, and the functor's token
# after it. If $F(s) - d$ is as good as $s$, and not just some member of E1, the answer is $F(s)$. Controls: the row $F(s)$
# itself, which is no source of this functor, and $F(s)$ moved by a random direction as long as $d$. Only known pairs make $d$.

# %% tags=["nbval-ignore-output"]
back = []
for i, member in enumerate(members):
    W, out = models.W_E[i].detach(), asked.held[i]
    s, t = W[member.world.entity[0]], W[member.world.entity[1]]
    d = (t - s)[~out].mean(dim=0)
    noise = torch.randn(t.shape, generator=torch.Generator().manual_seed(i))
    starts = {
        "F(s) - d": t - d,
        "F(s)": t,
        "F(s) - random": t - F.normalize(noise, dim=1) * d.norm(),
    }
    alone = Ensemble([models.member(i)])
    f = W[member.world.functor].expand_as(s)
    for name, start in starts.items():
        with torch.no_grad():
            logits = alone.logits(
                asked.prompts[i : i + 1, :, 1:],
                torch.stack([start, f], dim=1)[None],
            )
        right = logits[0].argmax(dim=-1) == asked.answers[i]
        back.append(
            {
                "start": name,
                "seed": SEEDS[i],
                "held out": float(right[out].float().mean()),
                "known": float(right[~out].float().mean()),
            }
        )
back = pd.DataFrame(back)
print("live: share of answers F(s)")
print(
    back.groupby("start", sort=False)[["held out", "known"]].mean().round(2)
)

# %%
means = back.groupby("start")["held out"].mean()
assert means["F(s) - d"] > 0.6 > means["F(s)"]
assert means["F(s) - d"] > means["F(s) - random"] + 0.3
say(
    f"One vector, made from known pairs, leads {means['F(s) - d']:.2f} of the held-out partners back to a row that works as their source. "
    f"Without it {means['F(s)']:.2f} work, with a random one {means['F(s) - random']:.2f}."
)

# %% [markdown]
# So the individual survives. Half of B10 stands: there is a translation between the categories, the same for pairs that
# training never joined. What fails is the name that the paper gives it.

# %% [markdown]
# ## Where can the answer be read?
#
# In larger models it is costly to cut every part. One reads: the *logit lens* applies the final norm and the unembedding to
# the stream of an earlier layer, a *linear probe* is a regression from that stream to the answer. Paper B finds that a
# probe sees the answer in earlier layers than the lens (B14).
#
# A probe can cheat by learning what it should only read. So ours never sees an analogy. It is fitted on atomic facts and
# trained compositions, and then reads the functor's position. The *control task* is to read random answers to the same
# facts: what a probe reaches there, it memorises.

# %% tags=["hide-input"]
SITES = {
    "one layer": ["blocks.0.resid_mid", "blocks.0.resid_post"],
    "two layers": [
        f"blocks.{i}.resid_{part}"
        for i in range(2)
        for part in ("mid", "post")
    ],
    "three layers": [
        f"blocks.{i}.resid_{part}"
        for i in range(3)
        for part in ("mid", "post")
    ],
}
lines = [
    "| model | place in the stream | known: lens | known: linear | held out: lens | held out: linear | held out: bilinear | fitted: real answers | fitted: random |",
    "|---|---|---|---|---|---|---|---|---|",
]
for arm, sites in SITES.items():
    for site in sites:
        row = [
            stored(test, site, arm=arm, group=group)["right"].mean()
            for test, group in (
                ("lens", "known"),
                ("linear", "known"),
                ("lens", "held_out"),
                ("linear", "held_out"),
                ("bilinear", "held_out"),
                ("linear", "fitted"),
                ("random answers", "fitted"),
            )
        ]
        _, layer, part = site.split(".")
        where = f"layer {int(layer) + 1}, after {'attention' if part == 'resid_mid' else 'the MLP'}"
        lines.append(
            f"| {arm} | {where} | "
            + " | ".join(f"{v:.2f}" for v in row)
            + " |"
        )
say(
    "Shares read right, means of eight seeds at the last step.\n\n"
    + "\n".join(lines)
)


# %%
def lead(arm, site, group="held_out"):
    """Mean share read by the linear probe minus that read by the lens."""
    linear, lens = (
        stored(test, site, arm=arm, group=group)["right"].mean()
        for test in ("linear", "lens")
    )
    return linear - lens


early = {arm: lead(arm, "blocks.0.resid_mid") for arm in SITES}
assert min(early.values()) > 0 and max(early, key=early.get) == "one layer"
assert lead("two layers", "blocks.0.resid_post") < 0
assert lead("two layers", "blocks.1.resid_mid") < 0
B14 = next(claim for claim in ledger.LEDGER if claim.id == "B14")
said, _ = claims.verdict(B14)
say(
    f"B14, the toys' part and Gemma's: **{said}**.\n\n" + claims.evidence(B14)
)

# %% [markdown]
# Read the table by site. After the first attention a probe is ahead of the lens, most clearly in one layer, also for held-out
# analogies. In deeper models that lead is less reliable for held-out ones. Later in the stream of two layers the *lens* is ahead for
# them: what a probe learned on other facts does not carry over. An early probe shows that the answer *can be computed* from a
# stream. It need not show that the model has computed it. (Deeper models also leave more held-out analogies wrong, so there is less
# to be read.)

# %% [markdown]
# ## Needed, or telling?

# %%
lines = [
    "| part | without it (pattern: one half for all), held out | exchanged with the next source's |",
    "|---|---|---|",
]
for name, missing, swapped in (
    ("the source's value", "value, 0", "value, other"),
    ("the functor's value", "functor value, 0", None),
    ("attention's pattern", None, "pattern, other"),
    ("the MLP", "no MLP", None),
):
    if missing is None:
        gone = stored("components", "pattern", 0.5)["right"].mean()
    else:
        gone = stored("components", missing)["right"].mean()
    which = (
        "-"
        if swapped is None
        else f"{stored('components', swapped)['followed'].mean():.2f} follow"
    )
    lines.append(f"| {name} | {gone:.2f} right | {which} |")
say("\n".join(lines))

# %% [markdown]
# Both values are needed, the MLP for most, and the learned pattern in part. Only the source's value says *which* partner. (In one
# layer it could hardly be otherwise: a source reaches this position as value times pattern, and by no other way.) In particular,
# "the functor attends to the source" is a condition and not an explanation.

# %% [markdown]
# ## Replication notes
#
# Paper B's released code trains an untied output matrix, while the notebooks behind its figures on this mechanism tie
# the two. It matters for what a row can mean, so we say it: all numbers above are for tied models. The paper's cosine may
# be higher where the learning rate is, or where decay is strong: in the arm with decay 1 of
# [the ledger's runs](../bridge/claims.ipynb) it is, and there nothing is learned, not even atomic facts.

# %%
strong = dynamics("decay_1")
strong = strong[strong["step"] == strong["step"].max()]
say(
    f"Decay 1: cosine {strong['W_E_parallelism_held_out'].median():.2f} for held-out pairs and {strong['W_E_parallelism_mismatched'].median():.2f} for "
    f"mismatched ones; {strong['acc_ana_ood'].mean():.2f} of the held-out analogies are right. A large cosine alone proves nothing."
)

# %% [markdown]
# ## Summary
#
# - Attention to the source rises before analogies come right, from one half to less than two thirds. Set to 1, it
#   destroys them.
# - The source's value carries the answer; the pattern is nearly the same for all sources; the MLP is needed.
# - $e_t - e_s$ is not parallel to the functor's row. Yet the mean difference of known pairs, added to a held-out source,
#   makes the model answer in the other category.
# - The same vector, taken off a held-out partner, gives a row that works as its source.
# - After the first attention a probe that never saw an analogy reads more than the lens. For held-out analogies in deeper models
#   it does so less reliably, and later in the stream the lens reads more.

# %% [markdown]
# ## What would change our mind
#
# If in larger models of this kind another source's pattern changed the answer, we would
# take attention for more than a mixer. If steering failed where the answer depends on the individual source, we would
# call it a switch of category and no functor.

# %% [markdown]
# ## Exercises
#
# **1. Steer by hand** (easy, 10 minutes). `W` holds one row per token. Return $d$, the mean of $e_t - e_s$ over the pairs
# (source, target) in `known`, leaving out the pair whose source is `left_out`.


# %%
def my_direction(W, known, left_out):
    """Mean of W[t] - W[s] over known pairs, without the one of source `left_out`."""


exercises.check_direction(my_direction)

# %% [markdown]
# **2. How much is a mixture?** (medium, 20 minutes). With two tokens in view the functor's attention writes
# $p\,v_s + (1-p)\,v_f$. Set $p$ to twenty values between 0.3 and 0.9 in the live models and find the interval in which
# at least half of the held-out analogies stay right. Does it contain one half in every model?
#
# **3. Which comes first?** (hard, 25 minutes). The stored runs were steered every hundred steps. Is the translation there
# before held-out analogies come right, or after? Use `results.table("mechanism")`.
#
# Worked solutions stand on [their own page](../solutions/analogy_solutions.ipynb).

# %% [markdown]
# ## Next
#
# So far the two categories agreed perfectly, there was one functor, and it had a name. [What if not?](06_variants.ipynb)
