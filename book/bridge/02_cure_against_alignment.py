# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Cure against alignment
#
# - **You will be able to** say what each way to protect embedding rows buys and costs, on a task that needs rows to stay and on one
#   that needs them to move, and judge a policy that tries for both.
# - **Needs** [Freezing and forgetting](../unseen/06_freezing_and_forgetting.ipynb), [Alignment](../analogy/04_alignment.ipynb)
#   and [One collapse, two papers](01_one_collapse_two_papers.ipynb). Trains twelve models live on one processor core.
# - **Minutes** twenty-five to read, about one to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import claims, exercises, ledger, results
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import dataclasses

import pandas as pd
import torch

from lib.analogies import AnalogyRun, train_many
from lib.ledger.analogy import hits
from lib.ledger.bridge import at_end, cures
from lib.ledger.price import price
from lib.plotting import curves, figure, say, show, style
from lib.policies import Refresh

style()
torch.set_num_threads(1)

# %% [markdown]
# ## Two wishes that do not agree
#
# Paper A {cite}`lazic2026unseen` protects rows: freeze them, or throw them away again and again, so that nothing can grow
# that serves only names in use. Paper B {cite}`minegishi2026analogy` needs rows to move: partners in two categories must come
# together, and that is learned. A symbol system should do both, take in new names and draw analogies between old ones.
#
# :::{admonition} Predict before you run
# :class: predict
# 1. With a frozen embedding, which of the three phases of [part II](../analogy/02_three_phases.ipynb) still come?
# 2. And with one that is drawn anew every hundred steps?
# 3. Only rows that *no batch has ever held* are the trouble. What if one redraws just these?
# :::
#
# ## Live: freeze, learn, refresh
#
# Four models a policy, with 64 rows that stand for all unused names.

# %% tags=["nbval-ignore-output"]
base = AnalogyRun(stand_ins=64, eval_every=50)
live = {}
for name, changes in {
    "learn": {},
    "freeze": {"frozen": True},
    "refresh": {"policy": Refresh()},
}.items():
    runs = [
        dataclasses.replace(base, seed=seed, **changes) for seed in range(4)
    ]
    last = [history[-1] for history in train_many(runs)[1]]
    live[name] = {
        kind: sum(row[f"acc_{kind}"] for row in last) / len(last)
        for kind in ("comp_ood", "ana_id", "ana_ood")
    }
    print(
        f"{name:8} held-out compositions {live[name]['comp_ood']:.2f}, known analogies {live[name]['ana_id']:.2f}, "
        f"held-out analogies {live[name]['ana_ood']:.2f}"
    )

# %%
assert live["learn"]["ana_ood"] > live["freeze"]["ana_ood"] + 0.4
say(
    "**A frozen embedding memorises analogies and composes, and does not draw a single new analogy, or hardly one.** Partners "
    "cannot come together if no row may move."
)

# %% [markdown]
# ## Every policy on the analogy task
#
# Stored runs, eight seeds, a row for every name. *Freeze rows* keeps the rows of names that never occur, and lets the others
# learn. *Refresh* is ours; it is explained below. A reset is due right *after* the look of its step.

# %% tags=["hide-input"]
ANALOGY = ("learn", "freeze", "reset", "reset half", "freeze rows", "refresh")
fig, axes = figure("wide", cols=2, aspect=0.8)
told = []
LOOKS = dict(
    zip(
        ANALOGY,
        (
            "standard",
            "freeze",
            "reset",
            "reset_half",
            "freeze_rows",
            "refresh",
        ),
    )
)
for arm in ANALOGY:
    frame = cures(arm)
    curves(axes[0], frame, "step", "acc_ana_ood", LOOKS[arm], label=arm)
    curves(axes[1], frame, "step", "unused_cosine", LOOKS[arm], label=arm)
    told.append(
        f"{arm}: analogies {at_end(arm, 'acc_ana_ood').median():.2f}, cosine {at_end(arm, 'unused_cosine').median():.2f}"
    )
axes[0].set(
    xlabel="step", ylabel="held-out analogies right", ylim=(-0.02, 1.02)
)
axes[1].set(
    xlabel="step", ylabel="mean cosine of unused names", ylim=(-0.05, 1.02)
)
axes[0].legend(fontsize=7)
show(
    fig,
    "Held-out analogies and the mean cosine of unused names over training under six policies. Medians at the end: "
    + "; ".join(told)
    + ".",
    "Six policies on the analogy task; eight seeds each.",
)


# %%
def spread(values):
    """Median, lowest and highest."""
    low, middle, high = (
        round(v, 2) + 0.0
        for v in (values.min(), values.median(), values.max())
    )
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


lines = [
    "| policy | held-out compositions | known analogies | held-out analogies | first right (step) | energy, partners | mismatched |",
    "|---" * 7 + "|",
]
for arm in ANALOGY:
    date = hits(cures(arm), "acc_ana_ood")
    when = (
        f"{date.median():.0f}, {int(date.notna().sum())} of {len(date)}"
        if date.notna().any()
        else "never"
    )
    cells = [
        spread(at_end(arm, f"acc_{kind}"))
        for kind in ("comp_ood", "ana_id", "ana_ood")
    ]
    cells += [when] + [
        spread(at_end(arm, f"W_E_energy_{pairs}"))
        for pairs in ("held_out", "mismatched")
    ]
    lines.append(f"| {arm} | {' | '.join(cells)} |")
say("\n".join(lines))

# %%
right = {arm: at_end(arm, "acc_ana_ood") for arm in ANALOGY}
assert right["freeze"].max() <= 0.2 < 0.5 < right["learn"].median()
say(
    f"Frozen, {right['freeze'].mean():.2f} of held-out analogies are right at the end, reset throughout {right['reset'].mean():.2f}, reset until "
    f"half-way {right['reset half'].mean():.2f}; learned {right['learn'].mean():.2f}. Keeping only the *unused* rows costs "
    f"{right['learn'].mean() - right['freeze rows'].mean():.2f}, redrawing them {right['learn'].mean() - right['refresh'].mean():.2f} (means over eight seeds)."
)

# %% [markdown]
# So paper A's two cures take away what paper B needs, and the reason is plain: they stop *all* rows, and only those of names that never
# occur had to be stopped.
#
# ## A policy that leaves used rows alone
#
# [Repair without training](../unseen/07_repair_without_training.ipynb) redrew unseen rows once, at the end. But a model that
# learns while they collapse never has to tell strangers apart, and may come to rely on that. So redraw them *while* it learns:
#
# - note which tokens any batch has held so far;
# - every so many steps, give all other rows new values, drawn with mean and covariance of the rows in use, and clear their
#   moments;
# - let everything else learn.
#
# We call it *refresh*. Its parts are known. Resets come from active forgetting {cite}`anand2025structural`, draws from
# how rows are added to a vocabulary {cite}`hewitt2021init`. What is new is to use them on the rows without evidence only, and
# all the time.
#
# ### How often, and from which draw?
#
# Chosen on one cell, 1000 names without a copy head, with seeds 0 and 1, which no other number of this chapter uses.

# %%
choice = results.table("refresh_choice")
choice = choice[choice["step"] == choice["step"].max()]
WHOLE = ["whole_seen", "whole_query_unseen", "whole_all_unseen"]
scores = pd.DataFrame(
    {
        "seen": ledger.halves(
            choice.set_index(["arm", "seed"]), "whole_seen"
        ),
        "query": choice.set_index(["arm", "seed"])["whole_query_unseen_true"],
        "all": ledger.halves(
            choice.set_index(["arm", "seed"]), "whole_all_unseen"
        ),
    }
)
by_way = scores.groupby("arm").mean()
by_way["mean"] = by_way.mean(axis=1)
print(
    "draw / steps between; whole answers right at the end, means over two seeds"
)
print(
    by_way.sort_values("mean", ascending=False)
    .map(lambda share: f"{share:.2f}")
    .to_string()
)

# %%
chosen = Refresh()
assert (
    by_way.loc[f"{chosen.method}/{chosen.every}", "mean"]
    >= by_way["mean"].max() - 0.01
)
say(
    f"We take `{chosen.method}` every {chosen.every} steps, and change it no more."
)

# %% [markdown]
# ## On the logic task
#
# Five fresh seeds, two diversities, with and without a copy head. Whole answers right at the last step.

# %% tags=["hide-input"]
ARMS = {
    "learn": ("standard", "copy", "as trained"),
    "learn, rows redrawn at the end": ("standard", "copy", "mean_cov"),
    "freeze": ("freeze", "freeze+copy", "as trained"),
    "reset": ("reset", "reset+copy", "as trained"),
    "freeze rows": ("freeze_rows", "freeze_rows+copy", "as trained"),
    "refresh": ("refresh", "refresh+copy", "as trained"),
}
skills = {}
for n in (1000, 50):
    for name, (plain, copy, variant) in ARMS.items():
        for head, arm in (("no copy", plain), ("copy", copy)):
            try:
                skills[n, head, name] = ledger.skill(arm, n, variant)
            except ValueError:  # reset was not run with 50 names
                continue
for n in (1000, 50):
    lines = [
        "| policy | copy head | seen | query unseen | all unseen |",
        "|---" * 5 + "|",
    ]
    for (names, head, name), skill in skills.items():
        if names == n:
            cells = " | ".join(
                spread(skill[part]) for part in ("seen", "query", "all")
            )
            lines.append(f"| {name} | {head} | {cells} |")
    say(f"{n} names:\n\n" + "\n".join(lines))

# %% [markdown]
# ### Wins, ties, losses
#
# Seed by seed. It *wins* where at least four of five seeds are better by more than 0.05, *loses* where four are worse by as
# much, and *ties* else.


# %%
def compared(mine, theirs):
    """Wins, ties or loses, and the median difference."""
    gap = (mine - theirs).dropna()
    if (gap > 0.05).mean() >= 0.8:
        word = "wins"
    else:
        word = "loses" if (gap < -0.05).mean() >= 0.8 else "ties"
    return f"{word} ({gap.median() + 0.0:+.2f})"


lines = [
    "| refresh against | names | copy head | seen | query unseen | all unseen |",
    "|---" * 6 + "|",
]
counts = {"wins": 0, "ties": 0, "loses": 0}
for (n, head, name), skill in skills.items():
    if name == "refresh":
        continue
    ours = skills[n, head, "refresh"]
    cells = [
        compared(ours[part], skill[part]) for part in ("seen", "query", "all")
    ]
    for cell in cells:
        counts[cell.split()[0]] += 1
    lines.append(f"| {name} | {n} | {head} | {' | '.join(cells)} |")
say("\n".join(lines))
say(
    f"In all {counts['wins']} wins, {counts['ties']} ties and {counts['loses']} losses."
)

# %% [markdown]
# ## In language modelling
#
# [The price](../unseen/08_the_price.ipynb) of a frozen table, or of one that is reset, was a tenth of a nat and more. Refresh
# touches rows of reserved tokens and of words that no file has held so far.

# %%
rows = {}
for arm in ("standard", "freeze", "reset", "refresh"):
    frame = price(arm)
    end = frame[frame["step"] == frame["step"].max()].set_index("seed")
    rows[arm] = end
    print(
        f"{arm:9} test loss {spread(end['loss_test'])}, cosine of reserved rows {spread(end['W_U_unseen_cosine'])}"
    )

# %%
cost = rows["refresh"]["loss_test"] - rows["standard"]["loss_test"]
say(
    f"Refresh costs {cost.median() + 0.0:.3f} nats a token (median over {len(cost)} seeds, from {cost.min() + 0.0:.3f} to {cost.max() + 0.0:.3f})."
)

# %% [markdown]
# ## The verdicts

# %%
for id in ("C8", "C9"):
    claim = next(c for c in ledger.LEDGER if c.id == id)
    say(
        f"**{id}** {claim.statement}: **{claims.verdict(claim)[0]}**.\n\n{claims.evidence(claim)}"
    )

# %% [markdown]
# ## Doubts
#
# *One toy each.* Two tasks of laptop size, one optimiser each. *Known in advance.* Refresh counts a row as used once any batch has
# held it. A rare word that occurs once and never again is left alone from then on, and may collapse after all; we did not test
# a rule that forgets. *It needs the running batch.* In distributed training, all workers must agree on which tokens were seen.
# *Old names under new rows.* A row that is redrawn again and again means nothing to the model until somebody uses it. That is the
# point, and a cost for anyone who hoped to find something there.

# %% [markdown]
# ## Summary
#
# - A frozen embedding composes and memorises analogies, and draws no new one. An embedding that is reset throughout does even
#   less.
# - Only rows without evidence have to be protected. Keeping or redrawing these costs little or nothing of analogy.
# - What refresh wins, ties and loses stands in the table above, by seed.

# %% [markdown]
# ## What would change our mind
#
# If larger models, with longer training, drew analogies with frozen rows, the conflict would be one of small size. If refresh lost to one
# repair at the end on most seeds, it would be work for nothing. And if rare words suffered in a real language model, the rule "never
# used" would be too simple.

# %% [markdown]
# ## Exercises
#
# **1. Which rows?** (easy, 10 minutes). Given the batches so far, which rows should be redrawn?


# %%
def rows_to_refresh(batches, d_vocab):
    """Ids of all rows that no batch has held, as a set; `batches` is a list of tensors of token ids."""


exercises.check_rows_to_refresh(rows_to_refresh)

# %% [markdown]
# **2. Forgetting slowly** (hard, 45 minutes). Write a policy that counts a token as used only if one of the last hundred batches held
# it. Subclass `Refresh` and change `saw`. What happens to names that occur in one batch of a thousand?
#
# **3. Reset half of the rows** (medium, 25 minutes). On the analogy task, reset the rows of *targets* only, every hundred steps. Which of
# the phases comes, and why?
#
# Worked solutions stand on [their own page](../solutions/bridge_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [Advice](03_advice.ipynb): what follows for a model of your own.
