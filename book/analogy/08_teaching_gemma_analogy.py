# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Teaching Gemma analogy
#
# - **You will be able to** fine-tune a language model on a made-up task, test it on symbols that training never had, and
#   tell the form of an answer from the answer.
# - **Needs** [Functors in Gemma](07_functors_in_gemma.ipynb). Nothing is trained live: the run took longer than a chapter may.
# - **Minutes** twenty to read, a few seconds to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import results
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd

from lib.plotting import PALETTE, figure, say, show, style

style()

# %% [markdown]
# ## One model, one run
#
# The toy of part II learns analogies in an order: it memorises, then composes, then draws analogies, and its energies fall
# before the last step ([Three phases](02_three_phases.ipynb), [Alignment](04_alignment.ipynb)). Gemma 3 270M does not solve
# our made-up prompts. So we can *teach* it, and watch whether the same order shows.
#
# Prompts have three entities in each of two categories and show one analogy. In training the entities are *words*. The test
# has new prompts in words, and prompts in *letters*, which training never has. All weights learn.
#
# :::{admonition} Predict before you run
# :class: predict
# 1. Does a skill that is learned on words carry over to letters?
# 2. Which comes first over the steps: answers that are right, or matching entities that lie closer than others?
# 3. In which layers?
# :::

# %%
stored = results.table("teaching")
(record,) = results.manifest()["runs"]["teaching"].values()
tuning = record["config"]["tuning"]
print(
    f"{tuning['model']}, {tuning['steps']} steps of {tuning['batch']} prompts, lr {tuning['lr']:g}, seed {tuning['seed']}"
)
print(
    f"looked at every {tuning['eval_every']} steps: {record['config']['prompts']} prompts an alphabet"
)
print(f"made on {record['device']} in {record['seconds'] / 60:.0f} minutes")

# %% [markdown]
# It is a single run. It can show that something is possible. It cannot show that something always happens.
#
# ## The skill

# %% tags=["hide-input"]
depths = stored["depth"].max()
top = stored[stored["depth"] == depths]
fig, axes = figure("wide", cols=2, aspect=0.7, sharex=True)
for alphabet, color, mark in zip(("words", "letters"), PALETTE, ("o", "s")):
    one = top[top["alphabet"] == alphabet]
    axes[0].plot(
        one["step"], one["among"], color=color, marker=mark, label=alphabet
    )
    axes[1].plot(
        one["step"], one["first"], color=color, marker=mark, label=alphabet
    )
axes[0].axhline(1 / 3, color="black", linestyle=":", label="one of three")
axes[0].axhline(
    1 / 2, color="black", linestyle="--", label="the shown one ruled out"
)
for ax, title in zip(
    axes, ("beats the other candidates", "likeliest of all tokens")
):
    ax.set(title=title, xlabel="step", ylim=(-0.02, 1.02))
axes[0].set_ylabel("share of prompts")
axes[0].legend()
ends = top[top["step"].isin([0, top["step"].max()])]
show(
    fig,
    "Share of right answers over steps of fine-tuning, in words and in letters. "
    + "; ".join(
        f"{row.alphabet} at step {row.step}: {row.among:.2f} beat the candidates, {row.first:.2f} are likeliest of all"
        for row in ends.itertuples()
    )
    + ".",
    "What Gemma learns: words are trained on, letters are not.",
)

# %%
at = top.set_index(["alphabet", "step"])
last_step = top["step"].max()
first = {
    alphabet: at.loc[(alphabet, 0), "first"]
    for alphabet in ("words", "letters")
}
end = {
    alphabet: at.loc[(alphabet, last_step), "first"]
    for alphabet in ("words", "letters")
}
among = {
    alphabet: at.loc[(alphabet, last_step), "among"]
    for alphabet in ("words", "letters")
}
n = record["config"]["prompts"]
ruled_out = 1 / 2
margin = 2 * (ruled_out * (1 - ruled_out) / n) ** 0.5  # two standard errors
learned = {
    alphabet: share > ruled_out + margin for alphabet, share in among.items()
}
assert all(abs(at.loc[(a, 0), "among"] - among[a]) > 0.2 for a in among)
say(
    f"First of the whole vocabulary: words {first['words']:.2f} to {end['words']:.2f}, letters {first['letters']:.2f} to "
    f"{end['letters']:.2f}. Among the three candidates at the end: words {among['words']:.2f}, letters "
    f"{among['letters']:.2f}. "
    + (
        "So it has learned the analogy, and in letters too."
        if all(learned.values())
        else "So it has learned the analogy in words, and not in letters."
        if learned["words"]
        else f"But who only rules out the target that the prompt has shown is right half of the time, and with {n} prompts "
        f"anything below {ruled_out + margin:.2f} may be just that. **So it has learned the form of an answer, and not the "
        "analogy**, and it has learned the form in letters too, which training never showed."
    )
)

# %% [markdown]
# Keep three skills apart. To make the answer the likeliest of all tokens, it is enough to learn that one of the second category's
# entities has to follow. To be right half of the time, it is enough to know that the shown target is taken. Only for more do the
# relations have to be used. And mind step 0: before any training the model is *below* one in three, as if it repeated the
# target that was shown.
#
# ## The geometry
#
# Is the queried source closer to its own target than to the wrong ones? Energy with wrong targets minus energy with its own,
# by depth and step. Above zero: aligned.

# %% tags=["hide-input"]
stored["gap"] = stored["control_queried"] - stored["energy_queried"]
fig, axes = figure("wide", cols=2, aspect=0.85, sharey=True)
bound = float(stored["gap"].abs().max())
for ax, alphabet in zip(axes, ("words", "letters")):
    grid = stored[stored["alphabet"] == alphabet].pivot(
        index="depth", columns="step", values="gap"
    )
    image = ax.pcolormesh(
        grid.columns,
        grid.index,
        grid,
        cmap="PuOr_r",
        vmin=-bound,
        vmax=bound,
        shading="nearest",
    )
    ax.set(title=alphabet, xlabel="step")
    ax.grid(False)
axes[0].set_ylabel("depth")
fig.colorbar(image, ax=axes, label="energy: wrong minus own")
untrained = results.table("in_context")
untrained = untrained[
    (untrained["model"] == tuning["model"])
    & (untrained["prompt"] == "no analogy shown")
]
gap = untrained["control_queried"] - untrained["energy_queried"]
DEPTH = int(gap.groupby(untrained["depth"]).mean().idxmax())
there = stored[stored["depth"] == DEPTH].set_index(["alphabet", "step"])[
    "gap"
]
show(
    fig,
    f"Energy with wrong targets minus energy with the own target, by depth and step, in words and in letters. At depth {DEPTH}: "
    + "; ".join(
        f"{alphabet} {there[alphabet, step]:.2f} at step {step}"
        for alphabet in ("words", "letters")
        for step in (0, last_step)
    )
    + ".",
    "Where and when the queried source lies nearer to its own target.",
)

# %% [markdown]
# The stripe at depth 0 in letters is no alignment: these are embeddings of the letters that happened to be drawn. We look at the
# depth at which the last chapter found the largest difference before any training.

# %%
history = pd.DataFrame(
    {
        (alphabet, what): series
        for alphabet in ("words", "letters")
        for what, series in (
            ("beats", at.loc[alphabet]["among"]),
            (f"gap at depth {DEPTH}", there[alphabet]),
        )
    }
)
print(history.map(lambda value: f"{value + 0.0:.2f}").to_string())

# %%
move = {
    a: float(there[a, last_step] - there[a, 0]) for a in ("words", "letters")
}
assert max(move.values()) < 0.05
say(
    f"From the first to the last look the gap changes by {move['words']:+.2f} in words and {move['letters']:+.2f} in letters, and the share that "
    f"beats the candidates by {among['words'] - at.loc[('words', 0), 'among']:+.2f} and {among['letters'] - at.loc[('letters', 0), 'among']:+.2f}. "
    "**What is learned here comes without any alignment**, and so the toy's order, energy first and then answers, does not show. There is no "
    "analogy yet that it could come before."
)

# %% [markdown]
# ## Doubts
#
# A hundred steps of eight prompts are little. The toy took hundreds of steps of sixty-four facts, for one world whose relations
# stay the same; here each prompt is a world of its own, and the map has to be found anew each time. That is a harder
# skill. The step size was not searched. The gap has the trap of the last chapter: one wrong target has been shown, the right one has not. With
# a GPU more steps are cheap, and may tell another story:
#
#     python -m lib tune --preset analogy --device cuda
#
# trains longer and with larger batches, and `python -m lib sweep teaching --device cuda` makes the run of this chapter.

# %% [markdown]
# ## Summary
#
# - A hundred steps teach the *form* of an answer, and not the analogy. Measure both.
# - The form carries over to symbols that training never had. So a test on new symbols alone would not have told the two apart.
# - One run shows what is possible, and no more.

# %% [markdown]
# ## What would change our mind
#
# Longer runs, several seeds, in which the share among the candidates rises on held-out symbols, would show that the model can
# learn the analogy. If the gap of energies then rises before the share in most seeds, paper B's order would hold here.

# %% [markdown]
# ## Exercises
#
# **1. A fair chance** (easy, 10 minutes). With $n$ entities and $k$ shown analogies, what share is right for a model that knows
# the category and rules out what was shown? For which $k$ does a right answer say nothing about analogy?
#
# **2. Copying** (medium, 20 minutes). A lazy model answers with the target it has seen last. Draw prompts with
# `prompts.analogy_prompts` and compute its share. Why is it what it is? (Read how the prompts are balanced.)
#
# Worked solutions stand on [their own page](../solutions/analogy_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [The ledger](../bridge/claims.ipynb) has every claim with its evidence.
