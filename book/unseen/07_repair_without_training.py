# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Repair without training
#
# - **You will be able to** tell a model that has not learned a rule from one that has and cannot use it, mend the
#   second kind by hand, and choose controls for such a repair.
# - **Needs** [Watching the collapse](03_watching_the_collapse.ipynb). The question comes from
#   [Copying is not enough](05_copying_is_not_enough.ipynb).
# - **Minutes** thirty to read, one to run; a model trains for 800 steps.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, evaluation, exercises, ledger, repair
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

from functools import partial

import pandas as pd
import torch

from lib.experiments import logic_run
from lib.generators import stream
from lib.plotting import curves, figure, look, say, show, style
from lib.training import train

style()

# %% [markdown]
# ## Two ways to fail
#
# The standard model solves puzzles over seen names and fails on unseen ones. There are two stories about why.
#
# 1. *It never learned a rule.* It learned something about a thousand particular names. An unseen name is outside
#    of what it knows.
# 2. *It learned the rule, and cannot use it.* The blocks would work for any name. But a name enters and leaves
#    through its row of the embedding, and training has spoilt the rows of the unseen ones.
#
# Both fit every accuracy in the chapters so far. They part over one experiment. Keep the whole model as it is.
# Give the unseen names other rows. Train nothing.
#
# If story 1 is true, nothing changes: no gradient step ever saw these rows, old or new. If story 2 is true, the
# model should suddenly work.
#
# :::{admonition} Predict before you run
# :class: predict
# A standard model, no copy head, with whole answers near zero where all names are unseen. Fifty rows are replaced
# by random vectors. What share of whole answers is right now? Write down a number for each story, and your own.
# :::

# %% [markdown]
# ## Train one, break nothing, change fifty rows
#
# The model is the one of chapter 2: tied, AdamW, a thousand seen names.

# %% tags=["nbval-ignore-output"]
torch.set_num_threads(1)
config = logic_run(seed=10, steps=800, eval_every=400)
run = train(config, "cpu")
model, task = run.model, config.task


def scores():
    """Whole answers right: seen, query unseen (True half), all unseen."""
    row = evaluation.evaluate(model, task, 256, stream(config.seed, "test"))
    whole = {
        split: (row[f"whole_{split}_true"] + row[f"whole_{split}_false"]) / 2
        for split in ("seen", "all_unseen")
    }
    return whole["seen"], row["whole_query_unseen_true"], whole["all_unseen"]


as_trained = scores()
print("whole answers right  seen  query unseen  all unseen")
print(
    f"{'as trained':19} {as_trained[0]:5.2f} {as_trained[1]:13.2f} {as_trained[2]:11.2f}"
)

# %% [markdown]
# Now the repair. `repair.redraw` takes the embedding matrix and gives back a copy in which only the unseen rows
# differ. `repair.replaced` puts it into the model for the length of a `with` block, and then puts the old one back.
#
# First the most careless repair of all: fresh random rows, drawn as at the start of training.

# %% tags=["nbval-ignore-output"]
before = model.W_E.detach().clone()


def redrawn(method):
    """A function of the embedding matrix that redraws its unseen rows."""
    return partial(
        repair.redraw,
        seen=task.seen,
        unseen=task.unseen,
        method=method,
        generator=stream(config.seed, method),
    )


with repair.replaced(model, redrawn("fresh")):
    fresh = scores()
    changed = (model.W_E != before).any(dim=1).nonzero().flatten().tolist()
print(f"{'fresh rows':19} {fresh[0]:5.2f} {fresh[1]:13.2f} {fresh[2]:11.2f}")

# %%
assert changed == list(task.unseen)
assert torch.equal(model.W_E, before)
assert fresh[1] > as_trained[1] + 0.3 and fresh[2] > as_trained[2] + 0.1
say(
    "Only the unseen rows were touched, and the model is as before again. "
    "**It writes names that it has never seen, with rows that it has never seen.** "
    "So the second story holds: the rule was there, the rows were the fault."
)

# %% [markdown]
# ## Better rows, and two controls
#
# A fresh row looks like a seen row at the *start* of training. Since then the seen rows have moved. Better to draw
# rows that look like seen rows *now*: normal draws with the seen rows' mean and covariance. The covariance is drawn a
# little towards a multiple of the identity (weight $d / (n + d)$ for $n$ rows of dimension $d$), so that it works
# with fewer rows than dimensions too. Adding tokens to a language model with the mean and covariance of the old ones
# is common practice {cite}`hewitt2021init`. There, training follows. Here, none does.
#
# Two controls bound what any repair can do.
#
# - **Swapped.** The unseen names get the very rows of fifty seen names, which get theirs. These rows are as
#   good as rows can be. The unseen names should now do what seen names did.
# - **Copies.** The unseen names get copies of seen rows, and the seen names keep theirs. The rows are just
#   as good. But each exists twice, so no model can know which of the two names to write.

# %% tags=["nbval-ignore-output"]
live = {}
for method, meaning in repair.METHODS.items():
    with repair.replaced(model, redrawn(method)):
        live[method] = scores()
    seen, query, everything = live[method]
    print(
        f"{method:20} {seen:5.2f} {query:6.2f} {everything:6.2f}   {meaning}"
    )

# %%
assert live["mean_cov"][2] > as_trained[2] + 0.2
assert live["duplicates"][1] < 0.1 and live["duplicates"][2] < 0.1
assert live["swapped"][2] > 0.5
say(
    "The controls do what they should. Copies fail, so it is not enough that a row lies where seen rows lie: it "
    "must be the only one there. Swapped rows work, so nothing about a name's *number* matters, only its row."
)

# %% [markdown]
# ## Every checkpoint, five seeds
#
# The same repairs, all through training and for every stored seed. After each measurement the trained rows were put
# back, so that training went on as if nobody had looked.

# %% tags=["hide-input"]
SHOWN = (
    "as trained",
    "fresh",
    "mean_cov",
    "stretched",
    "duplicates",
    "swapped",
)


def repairs_over_time(arm, n_seen):
    """Query unseen and all unseen over training, one line a repair."""
    fig, axes = figure("wide", cols=2, aspect=0.85, sharey=True)
    told = []
    for variant in SHOWN:
        frame = ledger.grid(arm, n_seen, variant)
        frame = frame.assign(
            everything=ledger.halves(frame, "whole_all_unseen")
        )
        probed = set(ledger.grid(arm, n_seen, "fresh")["step"])
        frame = frame[frame["step"].isin(probed)]
        curves(axes[0], frame, "step", "whole_query_unseen_true", variant)
        curves(axes[1], frame, "step", "everything", variant)
        end = ledger.skill(arm, n_seen, variant)
        told.append(
            f"{look(variant).label} {end['query'].median():.2f} and {end['all'].median():.2f}"
        )
    axes[0].set(title="query unseen, True half", xlabel="step")
    axes[1].set(title="all unseen", xlabel="step")
    axes[0].set_ylabel("whole answers right")
    fig.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
    )
    seeds = frame["seed"].nunique()
    return show(
        fig,
        f"Arm {arm}, {n_seen} seen names, {seeds} seeds: whole answers right over training for each repair. "
        f"At the last step, query unseen and all unseen: {'; '.join(told)}.",
        f"Arm '{arm}', {n_seen} seen names: unseen rows redrawn at checkpoints, nothing trained; {seeds} seeds.",
    )


repairs_over_time("standard", 1000)

# %%
trained = ledger.skill("standard")
mended = ledger.skill("standard", variant="mean_cov")
first = ledger.skill("standard", variant="fresh")
assert (trained["all"] < 0.1).all() and (mended["all"] > 0.5).all()
say(
    f"Standard model, all unseen, {len(mended)} seeds: as trained {trained['all'].median():.2f} "
    f"[{trained['all'].min():.2f}, {trained['all'].max():.2f}]; fresh rows {first['all'].median():.2f} "
    f"[{first['all'].min():.2f}, {first['all'].max():.2f}]; rows with the seen rows' mean and covariance "
    f"{mended['all'].median():.2f} [{mended['all'].min():.2f}, {mended['all'].max():.2f}], "
    f"beside {mended['seen'].median():.2f} on seen names. "
    "**A standard transformer, without any copy head, solves puzzles in which every name is new, once the rows are usable.**"
)

# %% [markdown]
# With a copy head the picture is the same.

# %% tags=["hide-input"]
repairs_over_time("copy", 1000)

# %% [markdown]
# And with few names? With fifty seen names a model could learn them one by one. Here the two stories could
# change places.

# %% tags=["hide-input"]
repairs_over_time("standard", 50)

# %% tags=["hide-input"]
repairs_over_time("copy", 50)

# %%
few = ledger.skill("standard", 50, "mean_cov")
few_copy = ledger.skill("copy", 50, "mean_cov")
gap = mended["all"].median() - few["all"].median()
assert gap > 0.2
say(
    f"With fifty seen names the repaired standard model gets {few['all'].median():.2f} "
    f"[{few['all'].min():.2f}, {few['all'].max():.2f}] of all-unseen puzzles right, and with a copy head "
    f"{few_copy['all'].median():.2f} [{few_copy['all'].min():.2f}, {few_copy['all'].max():.2f}]. "
    "So diversity does buy something that no repair can: a rule that does not lean on the names it was learned from."
)

# %% [markdown]
# ## What is wrong with the rows?
#
# Three repairs change less, and so say more. *Stretched* keeps each name's own direction and only makes the individual
# parts as long as those of seen rows. *Recentred* keeps the individual parts and exchanges the common part. The third
# does both.

# %% tags=["hide-input"]
rows = []
for variant in (
    "as trained",
    "recentred",
    "stretched",
    "recentred_stretched",
    "fresh",
    "mean_cov",
):
    end = ledger.grid("standard", 1000, variant)
    end = end[end["step"] == ledger.LAST]
    score = ledger.skill("standard", 1000, variant)
    rows.append(
        {
            "rows": look(variant).label,
            "cosine": end["W_U_unseen_cosine"].median(),
            "norm": end["W_U_unseen_norm"].median(),
            "individual part": end["W_U_unseen_individual"].median(),
            "query unseen": score["query"].median(),
            "all unseen": score["all"].median(),
        }
    )
seen_rows = end["W_U_seen_individual"].median()
print(
    f"medians over {len(end)} seeds at step {ledger.LAST}; individual part of seen rows {seen_rows:.2f}"
)
print(
    pd.DataFrame(rows).to_string(
        index=False, float_format=lambda x: f"{x + 0.0:.2f}"
    )
)

# %%
alone = ledger.skill("standard", variant="recentred")
longer = ledger.skill("standard", variant="stretched")
both = ledger.skill("standard", variant="recentred_stretched")
assert (longer["query"] > alone["query"]).all()
assert (mended["query"] > both["query"]).all()
say(
    f"Exchanging the common part does little (query unseen {alone['query'].median():.2f}). Length does more "
    f"({longer['query'].median():.2f}). The rest is direction: with the same mean and the same length, own directions "
    f"reach {both['query'].median():.2f} and drawn ones {mended['query'].median():.2f}."
)

# %% [markdown]
# Why would directions go bad? A row that happens to point along the features gets more probability $p_k$, and so
# a stronger push away from them. What survives is what the features do not use. Chapter 3 called the individual part
# what a row has of its own. After training, what an unseen row has of its own is what nobody listens to.
#
# This is a different picture from "all rows are one vector". In these runs the rows are far from one vector, and the
# model fails all the same.

# %% [markdown]
# ## The way back
#
# A repair shows that good rows are enough. Does *collapse* break a model that works? Take the models whose embedding was
# frozen, which solve all-unseen puzzles. Turn their unseen rows towards one common direction, by degrees, and keep
# every length. Then, apart from that, keep every direction and change the length.

# %% tags=["hide-input"]
fig, axes = figure("wide", cols=2, aspect=0.8, sharey=True)
told = []
for ax, (variant, title) in zip(
    axes,
    (
        ("cosine", "mean cosine, lengths kept"),
        ("norm", "length, directions kept"),
    ),
    strict=True,
):
    for arm in ("freeze", "freeze+copy"):
        frame = ledger.grid(arm, 1000, variant)
        frame = frame.assign(
            everything=ledger.halves(frame, "whole_all_unseen")
        )
        curves(ax, frame, "level", "everything", arm)
        middle = frame.groupby("level")["everything"].median()
        told.append(
            f"{arm}, {variant}: "
            + ", ".join(
                f"{level:g}: {value:.2f}" for level, value in middle.items()
            )
        )
    ax.set(xlabel=title)
axes[0].set_ylabel("whole answers right, all unseen")
axes[0].legend(loc="lower left")
axes[1].set_xlabel("length of unseen rows over length at the start")
show(
    fig,
    "Frozen models with their unseen rows made worse by degrees. "
    + "; ".join(told)
    + ".",
    "Unseen rows of frozen models, turned towards one direction (left) or scaled (right); five seeds.",
)

# %%
able = ledger.skill("freeze")["seen"] >= ledger.LEARNED


def by_level(variant):
    """All unseen by level, one row for each seed that solves seen names."""
    frame = ledger.grid("freeze", 1000, variant)
    frame = frame.assign(everything=ledger.halves(frame, "whole_all_unseen"))
    table = frame.pivot(index="seed", columns="level", values="everything")
    return table[able]


level, length = by_level("cosine"), by_level("norm")
assert (level[0.99] < level[0.0] - 0.3).all()
say(
    f"Without a copy head, {len(level)} seeds that solve seen names, all unseen: {level[0.0].median():.2f} at cosine 0, "
    f"{level[0.5].median():.2f} at 0.5, {level[0.75].median():.2f} at 0.75, {level[0.9].median():.2f} at 0.9, "
    f"{level[0.99].median():.2f} at 0.99. At three quarters of the length {length[0.75].median():.2f}, at half "
    f"{length[0.5].median():.2f}."
)

# %%
C4 = next(claim for claim in ledger.LEDGER if claim.id == "C4")
say(
    f"**C4** {C4.statement}: **{claims.verdict(C4)[0]}**.\n\n{claims.evidence(C4)}"
)

# %% [markdown]
# (C4 sums up what these runs had shown; no run was made for it.)
#
# ## What this says about a copy path
#
# Paper A concludes that a copy path and the absence of collapse are *both* needed (claim A10), and so that a copying
# change alone must fail at several unseen names (A11). Put the repaired standard model beside the cures.

# %% tags=["hide-input"]
table = []
for name, arm, variant in (
    ("standard", "standard", "as trained"),
    ("standard, rows redrawn after training", "standard", "mean_cov"),
    ("copy", "copy", "as trained"),
    ("copy, rows redrawn after training", "copy", "mean_cov"),
    ("freeze", "freeze", "as trained"),
    ("freeze + copy", "freeze+copy", "as trained"),
):
    s = ledger.skill(arm, 1000, variant)
    table.append(
        [name]
        + [
            f"{s[c].median():.2f} [{s[c].min():.2f}, {s[c].max():.2f}]"
            for c in ("seen", "query", "all")
        ]
    )
lines = [
    "| 1000 seen names | seen | query unseen | all unseen |",
    "|---|---|---|---|",
]
lines += ["| " + " | ".join(row) + " |" for row in table]
say("\n".join(lines))

# %% [markdown]
# In our setting the answer is: usable rows are needed, a copy path is not. A copy path helps where rows are a bit worse
# than they could be. That goes further than the paper, and it is our own claim, at our size.

# %% [markdown]
# ## Doubts
#
# *Is it really without training?* Mean and covariance of the seen rows come from training, of course. Fresh draws use
# nothing of it, and work too, less well.
#
# *Does the repair choose rows by their score?* No. Rows are drawn once for each checkpoint, from a stream that
# depends on the seed alone, and measured whatever they give.
#
# *Would it work in a real model?* A toy has one kind of token. A real vocabulary has many, and a draw
# from the mean of all of them is no word in particular. A later chapter tries it on a real model.

# %% [markdown]
# ## Summary
#
# - A model may have learned a rule and be unable to apply it. Change the rows, train nothing, and see.
# - Here the rule was learned all along, with and without a copy head.
# - Good rows lie where seen rows lie, are long enough, and are the only ones at their place.
# - Training shortens unseen rows and turns them out of the directions that features use. It does so long before
#   they are one vector.
# - With few names the repair helps much less: then the rule itself leans on the names.

# %% [markdown]
# ## What would change our mind
#
# If fresh rows failed at every checkpoint while swapped rows worked, the model would know its seen rows and not a
# rule. If the repair worked with fifty names as well as with a thousand, diversity would be about rows only. If larger
# models stayed broken after the repair, this chapter would be about small ones.

# %% [markdown]
# ## Exercises
#
# **1. Draw more of the same** (medium, 20 minutes). Write the heart of the repair: given some rows, draw `n` new
# ones from a normal distribution with their mean and covariance. Hint: if $C = L L^\top$ and $z$ is standard
# normal, what is the covariance of $L z$?


# %%
def my_draws(x, n, generator):
    """n draws, a tensor [n, d], with mean and covariance of the rows of x, a tensor [rows, d]."""


exercises.check_draws(my_draws)

# %% [markdown]
# **2. How far must one stretch?** (easy, 15 minutes). Stretch the individual parts of the unseen rows by other factors
# than the one chosen above. Is there one that does as well as fresh rows? What does this say about directions?
#
# **3. Reading or writing?** (hard, 40 minutes). The model is tied, so the repair mends the input and the output
# side at once. Untie it after training and redraw one side at a time. Predict first: which one was broken? Then explain
# what you see. What does a tied model take for granted?
#
# Worked solutions stand on [their own page](../solutions/unseen_solutions.ipynb).

# %% [markdown]
# ## Next
#
# Cures and repairs cost something where tokens have meaning. [The price](08_the_price.ipynb) measures it.
