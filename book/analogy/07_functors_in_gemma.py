# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Functors in Gemma
#
# - **You will be able to** read a language model's residual stream layer by layer, tell a trend from its control, and
#   say which relations between words can be one direction at all.
# - **Needs** [Alignment](04_alignment.ipynb) and [Applying the functor](05_applying_the_functor.ipynb), and the extra
#   `models` (see [The unused tokens of Gemma](../unseen/09_the_unused_tokens_of_gemma.ipynb)).
# - **Minutes** thirty-five to read, two to run.
# - **Memory** 3 GB.

# %%
try:
    from lib import claims, functors, ledger, relations, results
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd
import torch

from lib import exercises, geometry
from lib.generators import prompts, stream
from lib.language_models import load, positions, run, tokens
from lib.ledger.analogy import dynamics
from lib.model_sweeps import KINDS_OF_PROMPT
from lib.plotting import PALETTE, figure, say, show, style

style()
torch.set_num_threads(2)

# %% [markdown]
# ## From toys to Gemma
#
# Paper B {cite}`minegishi2026analogy` ends in pretrained models. It gives Gemma 2 with 2 and 9 billion parameters small
# made-up analogies in the prompt. From layer to layer, it says, two curves run against each other: the Dirichlet
# energy of matching entities falls, and the probability of the right answer rises, with a correlation between -0.67
# and -0.80 on normalised streams, and a positive one on raw streams (B12). The same in LLaMA, and for several numbers
# of entities (B13). A linear probe finds the answer in earlier layers than the logit lens (B14). Prompts can mislead
# (B16).
#
# Gemma 2 has to be asked for, and its weights are not on the package index. So we look at Gemma 3 270M and, for the
# LLaMA architecture, at SmolLM2 135M {cite}`allal2025smollm2`. They are much smaller. Expect trends and failures.
#
# :::{admonition} Predict before you run
# :class: predict
# 1. Three letters, three other letters, all relations spelled out, one analogy shown. How often does a model with 270
#    million parameters prefer the right letter to the two wrong ones? Chance is a third.
# 2. Does an energy that falls over layers show that the model aligns the categories?
# 3. `Paris - France + Japan`: how often is the nearest of 262,144 rows the right capital? And for opposites, `cold -
#    hot + big`?
# :::

# %%
model = load("gemma-3-270m")
config = prompts.PromptConfig(entities=3, shown=1)
asked = prompts.analogy_prompts(config, 12, stream(0, "chapter"))
print(asked[0].text, "_")
print(f"right: {asked[0].answer}   wrong: {', '.join(asked[0].candidates)}")

# %% [markdown]
# Every pair of entities that is related has a relation name of its own, a nonsense word, and the same name stands
# between their images. So the facts alone fix which map is meant. Where the answer stands in the prompt is balanced.
#
# ## Layer by layer
#
# One forward pass gives the residual stream at every depth. An entity is read at the last token of its last mention.
# The *lens* {cite}`nostalgebraist2020lens` reads the stream at the end of the prompt as if it were the last one.

# %% tags=["nbval-ignore-output"]
read = functors.read(model, asked)
table = pd.DataFrame(functors.table(read)).set_index("depth")
columns = ["energy", "control", "energy_queried", "control_queried"]
columns += ["probability", "rank", "among"]
print(table[columns].iloc[::2].map(lambda value: f"{value:.3f}").to_string())

# %% [markdown]
# `energy` is the paper's measure: matching pairs, streams scaled to length one. `control` pairs each source with
# *wrong* targets of the same prompt. And `queried` looks only at the source that is asked for. That one matters: a pair
# that the prompt has shown stands in one sentence, "A is to X", and two words of a sentence have much in common anyway.
# Only the pair that was never shown tells whether the model has *found* something.
#
# Paper B also shows pictures. Here is the first prompt's: entities at four depths, projected on their two main axes,
# partners joined. If the model aligned the categories, the joining lines would become short, or parallel.

# %% tags=["nbval-ignore-output"]
(prompt, *_) = asked
text = tokens(model, prompt.text)
names = (*prompt.sources, *prompt.targets)
last_mention = [positions(model, prompt.text, name)[-1][-1] for name in names]
DEPTHS = (0, 6, 12, 18)
hooks = [
    f"blocks.{depth - 1}.hook_resid_post"
    if depth
    else "blocks.0.hook_resid_pre"
    for depth in DEPTHS
]
streams = run(model, text, hooks)
fig, axes = figure("wide", cols=4, aspect=1.0)
n = len(prompt.sources)
for ax, depth, hook in zip(axes, DEPTHS, hooks):
    x = streams[hook][0, last_mention]
    x = x / x.norm(dim=1, keepdim=True)
    mean, main = geometry.principal_axes(x)
    at = (x - mean) @ main
    for s, t in zip(at[:n], at[n:]):
        ax.plot([s[0], t[0]], [s[1], t[1]], color="grey", linewidth=0.8)
    ax.scatter(*at[:n].T, color=PALETTE[0], marker="o", label="sources")
    ax.scatter(*at[n:].T, color=PALETTE[1], marker="s", label="targets")
    for name, (a, b) in zip(names, at.tolist()):
        ax.annotate(
            name,
            (a, b),
            textcoords="offset points",
            xytext=(3, 3),
            fontsize=7,
        )
    ax.set(title=f"depth {depth}", xticks=[], yticks=[])
axes[0].legend(fontsize=6)
show(
    fig,
    "Six entities of one prompt at four depths in two dimensions, each source joined to its target by a line.",
    "One prompt's entities, streams of length one, two main axes of each depth.",
)

# %% [markdown]
# A picture of six points in two dimensions can show almost anything. So we count.
#
# ## Hundreds of prompts
#
# Stored runs: five seeds, of 200 prompts for this kind and 40 for each other kind.

# %%
NAMES = {"gemma-3-270m": "Gemma 3 270M", "smollm2-135m": "SmolLM2 135M"}
stored = results.table("in_context")
top = stored[
    stored["depth"] == stored.groupby("model")["depth"].transform("max")
]
lines = [
    "| model | prompts | one of n | shown ruled out | beats the other candidates | likeliest of all tokens | correlation, normalised | its control | raw |",
    "|---" * 9 + "|",
]


def told(values):
    """Median over seeds, lowest and highest."""
    numbers = (
        round(v, 2) + 0.0
        for v in (values.median(), values.min(), values.max())
    )
    return "{:.2f} [{:.2f}, {:.2f}]".format(*numbers)


for (model_name, prompt), rows in top.groupby(
    ["model", "prompt"], sort=False
):
    kind = KINDS_OF_PROMPT[prompt]
    by_chance = (
        f"{1 / kind.entities:.2f} | {1 / (kind.entities - kind.shown):.2f}"
    )
    columns = (
        "among",
        "first",
        "correlation_energy",
        "correlation_control",
        "correlation_energy_raw",
    )
    cells = " | ".join(told(rows[column]) for column in columns)
    lines.append(
        f"| {NAMES[model_name]} | {prompt} | {by_chance} | {cells} |"
    )
say("\n".join(lines))

# %% [markdown]
# Read the columns one by one.
#
# - *Does the model solve them?* Compare with two kinds of luck: any of the n candidates, or any that the prompt has not shown
#   as somebody's target. The base shows one analogy of three, with letters. With two shown the answer can be had by
#   elimination, and with two entities too.
# - *Do the curves run against each other?* The correlation is taken over depths, in each prompt, and then averaged.
#   Beside it stands the same correlation with the energy of *mismatched* pairs. What the control shows as well cannot be
#   about the analogy.

# %%
base = top[(top["model"] == "gemma-3-270m") & (top["prompt"] == "base")]
none = top[
    (top["model"] == "gemma-3-270m") & (top["prompt"] == "no analogy shown")
]
own, control = base["correlation_energy"], base["correlation_control"]
raw = base["correlation_energy_raw"]
scaled = base["correlation_energy_scaled"]
assert scaled.max() < 0
assert base["among"].max() < 1 / 3 and (own - control).abs().max() < 0.1
assert raw.min() > 0.3
say(
    f"**Gemma 3 270M does not solve them.** Of the base, {told(base['among'])} of answers beat the other candidates, less than the third "
    f"that luck gives. With none shown it has {told(none['among'])}, so it seems to repeat the target that was shown. The curves run "
    f"against each other hardly at all ({told(own)}), and those of mismatched pairs as much ({told(control)}). With raw streams the "
    f"correlation is large and positive ({told(raw)}), as paper B reports. But raw energies grow with the length of the streams. "
    f"Divided by their squared length they give {told(scaled)}."
)

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.75)
here = stored[
    (stored["model"] == "gemma-3-270m") & (stored["prompt"] == "base")
]
LINES = {
    "energy_queried": ("its own target", PALETTE[0], "o"),
    "control_queried": ("wrong targets", PALETTE[1], "s"),
}
for column, (label, color, mark) in LINES.items():
    for _, one in here.groupby("seed"):
        axes[0].plot(
            one["depth"], one[column], color=color, linewidth=0.7, alpha=0.5
        )
    middle = here.groupby("depth")[column].median()
    axes[0].plot(
        middle.index,
        middle,
        color=color,
        marker=mark,
        markevery=3,
        label=label,
    )
axes[0].set(xlabel="depth", ylabel="energy of the queried source")
axes[0].legend()
for column, label, color, mark in (
    ("probability", "lens: answer's probability", PALETTE[2], "^"),
    ("among", "lens: beats the candidates", PALETTE[0], "o"),
    ("probe", "linear probe", PALETTE[3], "v"),
    ("lens", "lens, same 26 letters", PALETTE[4], "D"),
):
    middle = here.groupby("depth")[column].median()
    axes[1].plot(
        middle.index,
        middle,
        color=color,
        marker=mark,
        markevery=3,
        label=label,
    )
axes[1].set(
    xlabel="depth", ylabel="share, or probability", ylim=(-0.02, 1.02)
)
axes[1].legend(fontsize=7)
at = here.groupby("depth")[
    [*LINES, "probability", "among", "probe", "lens"]
].median()
last = at.iloc[-1]
show(
    fig,
    "Left: energy of the queried source with its own and with wrong targets over depth. Right: the lens's probability, "
    "share of answers that beat the candidates, and a linear probe over depth. At the last depth: "
    + ", ".join(f"{name} {value:.2f}" for name, value in last.items())
    + ".",
    "Gemma 3 270M on the base prompts; medians over five seeds, thin lines single seeds.",
)

# %% [markdown]
# One more trap. In these prompts one wrong target has just been shown in an analogy, and the right one never is. So "nearer than
# wrong ones" may only mean "not in that sentence". Prompts with *no* analogy shown treat all targets alike.

# %%
gaps = {}
for prompt in ("base", "no analogy shown"):
    one = stored[
        (stored["model"] == "gemma-3-270m") & (stored["prompt"] == prompt)
    ]
    gap = (
        (one["control_queried"] - one["energy_queried"])
        .groupby([one["seed"], one["depth"]])
        .mean()
    )
    gaps[prompt] = gap.unstack("depth")
toy = dynamics("exact").query("step == step.max()")
toy = toy["W_E_energy_mismatched"] - toy["W_E_energy_held_out"]
where = gaps["no analogy shown"].median().idxmax()
plain = gaps["no analogy shown"][where]
assert 0 < plain.min() and plain.max() < toy.min()
say(
    f"With none shown, the queried source lies nearer to its own target than to wrong ones by {told(plain)} (energy of unit vectors) at depth "
    f"{where}, the best one; in the base prompts by {told(gaps['base'][where])} there. In the rows of the toy of part II the same difference "
    f"was {told(toy)}."
)

# %% [markdown]
# And where does the last position look, that of "to", which plays the functor's part? For each entity the best head's
# weight on all its mentions, averaged over prompts with no analogy shown.

# %%
none_shown = stored[
    (stored["model"] == "gemma-3-270m")
    & (stored["prompt"] == "no analogy shown")
]
looks = none_shown.groupby("depth")[
    ["attention_source", "attention_target", "attention_other"]
].median()
print(
    "layer that ends at depth; weight on the queried source, its target, each other target"
)
print(
    looks.dropna().iloc[::2].map(lambda weight: f"{weight:.2f}").to_string()
)

# %%
difference = (
    (looks["attention_target"] - looks["attention_other"]).abs().max()
)
assert difference < 0.05
say(
    f"The best head on the source gives it {looks['attention_source'].max():.2f}. Its target and another target get the same, to within "
    f"{difference:.2f}."
)

# %% [markdown]
# What alignment there is at this size is small, at one depth, and leads to no right answer. And the control has taught something for any
# size. Every prompt's entities come closer in some layers and part in others, whether they match or not. A claim about
# *alignment* has to show that matching pairs do so *more*, and on pairs that the prompt has not put side by side.
#
# Ask Gemma 2 yourself, if you have access to it:
#
#     python -c "
#     from lib import functors, language_models
#     from lib.generators import prompts, stream
#     model = language_models.load('google/gemma-2-2b')
#     asked = prompts.analogy_prompts(prompts.PromptConfig(entities=3, shown=1), 100, stream(0, 'mine'))
#     for row in functors.by_layer(model, asked): print(row)"
#
# We have not run it, so no number of it stands here.


# %%
def verdicts(ids):
    """Verdict and evidence of some claims, as Markdown."""
    chosen = [claim for claim in ledger.LEDGER if claim.id in ids]
    return "\n\n".join(
        f"**{claim.id}** {claim.statement}: **{claims.verdict(claim)[0]}**.\n\n{claims.evidence(claim)}"
        for claim in chosen
    )


say(verdicts(("B12", "B13", "B14", "B16")))

# %% [markdown]
# ## Where the model is able
#
# Made-up analogies ask for much. But a language model knows that Paris belongs to France. Is *that* relation one
# direction, e_t ~ e_s + f, as paper B says of its functor? Mikolov and others asked this of word vectors
# {cite}`mikolov2013regularities`. We ask it of Gemma's own embedding, over its whole vocabulary.
#
# For this book we wrote pairs of words in sixteen relations, and keep those whose words are one token each.

# %%
pairs = prompts.word_pairs()
kept, counts = prompts.single_tokens(
    pairs, lambda text: model.tokenizer.encode(text, add_special_tokens=False)
)
print(f"{len(kept)} of {len(pairs)} pairs have one token a word")
for relation, (written, single) in sorted(counts.items()):
    example = next(p for p in kept if p.relation == relation)
    print(
        f"{relation:13} {single:3} of {written}   {prompts.RELATIONS[relation]:12} {example.source} : {example.target}"
    )

# %% [markdown]
# Before looking at data, think. If e_t = e_s + f holds for every pair of a relation, then
#
# - two sources with one target must have one embedding: a *many-to-one* relation is out;
# - if the relation is its own inverse, e_s = e_t + f as well, so f = 0: *opposites* are out.
#
# Only one-to-one relations can be a translation. And one control is a must: how often is the target the source's nearest neighbour
# anyway, without any f {cite}`linzen2016issues`?
#
# For each pair, f is the mean of e_t - e_s over the *other* pairs (those
# that share no word with it). Then we look for the row nearest to e_s + f, the source left out. Live, for capitals:

# %% tags=["nbval-ignore-output"]
capitals = [p for p in kept if p.relation == "capital"]
ids = [
    tuple(
        model.tokenizer.encode(f" {word}", add_special_tokens=False)[0]
        for word in p[1:]
    )
    for p in capitals
]
live = pd.DataFrame(
    relations.in_embedding(
        model.W_E.detach(), ids, stream(0, "chapter"), n=12
    )
)
for row in live[live["direction"] == "mean difference"].itertuples():
    source, target, nearest = (
        model.tokenizer.decode([i]).strip()
        for i in (row.source, row.target, row.nearest)
    )
    print(
        f"{source:12} -> {nearest:12} {'' if row.right else f'not {target}, which has rank {row.rank}'}"
    )

# %% tags=["nbval-ignore-output"]
share = live.groupby("direction")["right"].mean()
assert share["mean difference"] > 0.5 > share["none"]
say(
    f"{share['mean difference']:.0%} right over the whole vocabulary, with no f {share['none']:.0%}, with a random direction of "
    f"equal length {share['random']:.0%}."
)

# %% [markdown]
# All relations:

# %% tags=["hide-input"]
near = results.table("relations_embedding")
shares = near.groupby(["relation", "direction"])["right"].mean().unstack()
parallel = (
    near.groupby(["relation", "direction"])["parallelism"].mean().unstack()
)
order = sorted(
    shares.index,
    key=lambda r: (
        prompts.RELATIONS[r] != "one-to-one",
        -shares.loc[r, "mean difference"],
    ),
)
lines = [
    "| relation | kind | nearest is the target | without f | random direction | cosine with f | shuffled pairs |",
    "|---" * 7 + "|",
]
for r in order:
    if r == "opposite":  # both ways in the list, so that f is 0: see below
        continue
    hit = " | ".join(
        f"{shares.loc[r, way]:.2f}"
        for way in ("mean difference", "none", "random")
    )
    cosine = " | ".join(
        f"{parallel.loc[r, way] + 0.0:.2f}"
        for way in ("mean difference", "shuffled")
    )
    lines.append(f"| {r} | {prompts.RELATIONS[r]} | {hit} | {cosine} |")
say("\n".join(lines))

# %%
spoken = pd.Series(
    [p.target for p in kept if p.relation == "language"]
).value_counts()
one_to_one = [r for r in order if prompts.RELATIONS[r] == "one-to-one"]
hit = shares.loc[one_to_one, "mean difference"]
beyond = hit - shares.loc[one_to_one, "none"]
assert (hit > 0.7).sum() >= 5 and hit.min() < 0.1
say(
    f"Of {len(hit)} one-to-one relations {(hit > 0.7).sum()} have more than 0.7 of their targets nearest, and {(hit < 0.25).sum()} less than a "
    f"quarter. Without f some would do well anyway: what f adds is {beyond.median():.2f} in the median, from {beyond.min():.2f} to "
    f"{beyond.max():.2f}. And *language* of a country, which is many-to-one, has {shares.loc['language', 'mean difference']:.2f}; "
    f"{(spoken == 1).sum()} of its {spoken.sum()} pairs share the language with no other country of the list."
)

# %% [markdown]
# So the kind of a relation does not decide. An exact translation cannot be many-to-one, but a nearest row only asks for a translation
# that is good enough, and most pairs of that list share no target. Nor is one-to-one enough: French words are not one step
# away, and an actor is not where "act" + f points to.
#
# Be careful with the last columns, too. Shuffling the targets leaves the *mean* difference nearly as it was, from all countries to
# all capitals. So a cosine with shuffled pairs far above zero says: this is the way from one category to the other. What the
# right pairing adds is the difference of the two columns.
#
# And opposites? Our list holds each couple both ways, so that f is zero, and nothing can be learned from that. A fair try turns all
# couples one way, from less of something to more:

# %% tags=["nbval-ignore-output"]
MORE = "good big hot light up wet late full true fast last hard high old rich tall strong".split()
opposites = [p for p in kept if p.relation == "opposite" and p.target in MORE]
ids = [
    tuple(
        model.tokenizer.encode(f" {word}", add_special_tokens=False)[0]
        for word in p[1:]
    )
    for p in opposites
]
one_way = pd.DataFrame(
    relations.in_embedding(model.W_E.detach(), ids, stream(0, "chapter"))
)
by_way = one_way.groupby("direction")[["right", "parallelism"]].mean()
print(
    f"{len(opposites)} couples, from less to more: share of targets nearest, and cosine with f"
)
print(
    by_way.loc[["mean difference", "none"]]
    .map(lambda value: f"{value + 0.0:.2f}")
    .to_string()
)

# %%
assert by_way.loc["mean difference", "right"] < 0.3
assert by_way.loc["mean difference", "parallelism"] < 0.2

# %% [markdown]
# ### By layer
#
# The same cosine in the residual stream, at the last token of "The word: France".

# %% tags=["hide-input"]
layers = results.table("relations_layers")
fig, axes = figure("wide", cols=2, aspect=0.75, sharey=True)
chosen = ("capital", "plural", "past", "comparative", "demonym")
marks = ("o", "s", "^", "v", "D")
told_layers = []
for ax, way, title in zip(
    axes,
    ("mean difference", "shuffled"),
    ("pairs as they are", "shuffled pairs"),
):
    for name, color, mark in zip(chosen, PALETTE, marks):
        one = layers[
            (layers["relation"] == name) & (layers["direction"] == way)
        ]
        ax.plot(
            one["depth"],
            one["parallelism"],
            color=color,
            marker=mark,
            markevery=3,
            label=name,
        )
        told_layers.append(
            f"{title}, {name}: at most {one['parallelism'].max():.2f}"
        )
    ax.set(title=title, xlabel="depth")
axes[0].set_ylabel("cosine of e_t - e_s with f")
axes[0].legend(fontsize=7)
show(
    fig,
    f"Cosine of differences with the mean difference of other pairs, by depth. {'; '.join(told_layers)}.",
    "Is a relation one direction? By depth, for five relations.",
)

# %% [markdown]
# ## Does the direction do anything?
#
# A direction that is *there* need not be *used*. Chapter 5 added the mean difference to the source's stream in a toy. Here
# is the same in Gemma. The prompt is "The word: France. The word:", which asks for nothing. We add f at the source's place
# and see what happens to the probability of "Paris". Depth and dose were chosen on capitals, which the numbers below leave out. The
# control is the direction of another relation, from verbs to their third person, at equal length.

# %% tags=["hide-input"]
steer = results.table("relations_steering")
plain = steer[steer["dose"] == 0].set_index(
    ["relation", "depth", "direction", "source"]
)["p"]
keys = pd.MultiIndex.from_frame(
    steer[["relation", "depth", "direction", "source"]]
)
steer["log gain"] = (
    torch.tensor(steer["p"].to_numpy() / plain.loc[keys].to_numpy())
    .log()
    .numpy()
)
curve = (
    steer[steer["depth"] == 6]
    .groupby(["direction", "relation", "dose"])["log gain"]
    .mean()
)
fig, axes = figure("wide", cols=2, aspect=0.75, sharey=True)
for ax, way in zip(axes, ("mean difference", "other relation")):
    for name, color, mark in zip(chosen, PALETTE, marks):
        one = curve[way][name]
        ax.plot(one.index, one, color=color, marker=mark, label=name)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(title=way, xlabel="dose")
axes[0].set_ylabel("gain of log p(target)")
axes[0].legend(fontsize=7)
at_one = curve.unstack("dose")[1.0]
show(
    fig,
    "Gain of the target's log probability over the dose of f added at depth 6, for five relations; left the relation's own f, "
    "right that of another relation. At dose 1: "
    + "; ".join(
        f"{name} {at_one['mean difference'][name]:.2f} and {at_one['other relation'][name]:.2f}"
        for name in chosen
    )
    + ".",
    "Steering: means over pairs. A direction at random of equal length lowers the probability.",
)

# %%
fresh = at_one.unstack("direction").drop(["capital", "opposite"])
assert (fresh["mean difference"] > fresh["other relation"]).all()
assert (fresh["random"] < fresh["mean difference"]).all()
first = steer[
    (steer["depth"] == 6)
    & (steer["dose"] == 1)
    & ~steer["relation"].isin(["capital", "opposite"])
]
first = first.groupby(["direction", "relation"])["right"].mean().unstack()
say(
    f"At dose 1 the own f raises log p of the target by {fresh['mean difference'].median():.2f} (median over {len(fresh)} relations), another "
    f"relation's f by {fresh['other relation'].median():.2f}, a random direction by {fresh['random'].median():.2f}. The target becomes the likeliest "
    f"of all tokens in {first.loc['mean difference'].min():.2f} to {first.loc['mean difference'].max():.2f} of the pairs, by relation; with another "
    f"relation's f in {first.loc['other relation'].max():.2f} at most."
)

# %% [markdown]
# So the direction is used. Whether it leads to *this* target or to any word of its category, the gain alone does not say. That the target
# comes out first of all, in most pairs of some relations, does.
#
# ## Where is the source needed?
#
# Last, the question of paper B's mechanism: does the answer take its way through the source? In a few-shot prompt we put in
# what another source has in its place, at one depth and one position, and ask whether the answer follows.

# %%
patch = results.table("relations_patching")
able = patch[patch["both"] == 1]
queries = able.groupby("relation")["source"].nunique()
print("queries of which both prompts are answered right:", queries.to_dict())
for what, column in (
    ("follows the patch", "followed"),
    ("stays as it was", "right"),
):
    shown_share = able.groupby(["position", "depth"])[column].mean().unstack()
    print(f"\nshare of answers that {what}")
    print(shown_share.map(lambda value: f"{value:.2f}").to_string())

# %%
inner = able[
    able["depth"].between(3, 15)
]  # the first and the last depth are as they are by construction
follow = inner.groupby(["position", "depth"])["followed"].mean().unstack()
stays = inner[inner["position"] == "shown"].groupby("depth")["right"].mean()
assert follow.loc["shown"].max() < 0.2 and stays.min() > 0.7
assert follow.loc["source", 9] > 0.5 > follow.loc["source", 15]
assert follow.loc["last", 15] > 0.5 > follow.loc["last", 9]
say(
    "In early and middle layers the answer follows the source's place, in late layers the last one: in between, the model has "
    f"carried it over. Patching the place of a source that was *shown* never makes the answer follow, and leaves it right in {stays.min():.2f} or more."
)

# %%
say(verdicts(("C11",)))

# %% [markdown]
# ## Doubts
#
# *One size, one family.* Paper B looked at models ten to thirty times as large. What a model cannot do, it cannot do by a
# functor. *Quantised weights.* The embedding has 8 bits, the blocks about 4. *Word pairs of our own.* They were written
# before anything was measured, and none was left out afterwards but for its tokens. But they are common words. *Nearest
# row* counts a plural in capitals as a miss, and is unkind to the model. E-KAR, the benchmark behind B17, cannot be had
# here, so B17 is not tested.

# %% [markdown]
# ## Summary
#
# - Made-up analogies in context are hard for small models. Curves of energy need their control.
# - In Gemma's embedding about half of our one-to-one relations between words are near enough to one translation to be found by it. Others
#   are not at all.
# - Adding the direction makes the right word likelier, more than another relation's direction does, and often the likeliest.
# - The answer goes through the source's place early, and through the last place late.

# %% [markdown]
# ## What would change our mind
#
# If a larger model solved the made-up prompts and its energies fell for unseen pairs more than for mismatched ones, B12
# would hold where we could not test it. If word pairs drawn from a frequency list did much worse than ours, we would have
# picked easy ones.

# %% [markdown]
# ## Exercises
#
# **1. Can it be a translation?** (easy, 10 minutes). Given pairs (source, target) of a relation, say whether e_t = e_s + f
# with one f that is not zero, and with different rows for different words, is possible at all. Mind cycles: what if a
# leads to b, b to c, and c to a?


# %%
def can_be_translation(pairs):
    """True if one vector f, not zero, could lead from every source to its target."""


exercises.check_can_be_translation(can_be_translation)

# %% [markdown]
# **2. A relation of your own** (medium, 30 minutes). Write fifteen pairs of a relation that is not in our list. Forecast the
# share that `relations.in_embedding` finds, from its kind. Then measure.
#
# **3. Why it misses** (medium, 20 minutes). The table `near` has the nearest row of every pair. For each relation, which share of the
# misses is the *source* itself in another writing, such as "King" for "king"? What does this say about the search that we made?
#
# Worked solutions stand on [their own page](../solutions/analogy_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [Teaching Gemma analogy](08_teaching_gemma_analogy.ipynb) fine-tunes the model on such prompts, and watches.
