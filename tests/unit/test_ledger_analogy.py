"""Sub-claims of paper B and of our own, read from small made-up tables by other paths than theirs."""

import math
import random

import pandas as pd
import pytest

from lib import results
from lib.analogies import first_hit
from lib.analogy_sweeps import sensitivity_cells
from lib.ledger import analogy, mechanism

SEEDS = (10, 11, 12)
STEPS = (0, 250, 500)


@pytest.fixture
def tables(monkeypatch):
    """Random tables with the columns that checks read; `results.table` gives them."""
    draw = random.Random(0)
    arms = ("exact", "untied", "stand_ins", "aligned_all", "aligned_known", "aligned_shuffled")
    measured = ["acc_comp_id", "acc_comp_ood", "acc_ana_ood", "attention_source", "W_E_matched"]
    measured += [
        f"W_E_{what}_{group}"
        for what in ("energy", "parallelism")
        for group in ("held_out", "mismatched")
    ]
    curves = [
        {"arm": arm, "seed": seed, "step": step} | {name: draw.random() for name in measured}
        for arm in arms
        for seed in SEEDS
        for step in STEPS
    ]
    once = [
        {"varied": cell.name, "value": cell.value, "seed": seed, "norm_at_hit": draw.random() + 0.5}
        | {f"{w}_{k}": draw.random() for w in ("last", "best") for k in ("ana_ood", "comp_ood")}
        | {"sustained_ana_ood": draw.choice([100.0, 400.0, math.nan])}
        for seed in SEEDS
        for cell in reversed(sensitivity_cells())
    ]
    asked = [
        ("prompt", "mean difference", 1.0, "held_out"),
        ("prompt", "random", 1.0, "held_out"),
        ("prompt", "functor", 1.0, "held_out"),
        ("components", "pattern", 0.0, "held_out"),
        ("components", "pattern", 0.5, "held_out"),
        *(
            ("components", change, math.nan, "held_out")
            for change in ("value, other", "pattern, other", "no MLP")
        ),
        *(
            ("short cut", change, math.nan, "held_out")
            for change in ("none", "first relation", "source", "category")
        ),
        *(
            (test, "blocks.0.resid_mid", math.nan, group)
            for test in ("linear", "lens")
            for group in ("held_out", "known")
        ),
    ]
    changes = [
        {"arm": arm, "seed": seed, "step": step, "test": test, "change": change, "level": level}
        | {"group": group, "right": draw.random(), "followed": draw.random()}
        for arm in ("one layer", "two layers", "three layers", "circle")
        for seed in SEEDS
        for step in STEPS
        for test, change, level, group in asked
    ]
    made = {"dynamics": curves, "sensitivity": once, "mechanism": changes}
    monkeypatch.setattr(results, "table", lambda name: pd.DataFrame(made[name]))
    return made


def one(rows, **wanted):
    (found,) = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    return found


def test_values_come_in_the_order_of_the_sweep(tables):
    for name in ("lr", "relations"):
        order = [cell.value for cell in sensitivity_cells() if cell.name == name]
        assert list(dict.fromkeys(analogy.varied(name)["value"])) == order
    assert list(analogy.varied("lr", "0.001").index) == list(SEEDS)
    with pytest.raises(ValueError, match="run `python -m lib sweep sensitivity`"):
        analogy.varied("lr", "7")
    with pytest.raises(ValueError, match="run `python -m lib sweep mechanism`"):
        mechanism.mechanism("prompt", "nothing")


def hit(rows, arm, seed):
    mine = [one(rows, arm=arm, seed=seed, step=step) for step in STEPS]
    found = first_hit(STEPS, [row["acc_ana_ood"] for row in mine])
    return mechanism.LATE if found is None else found


@pytest.mark.parametrize(
    ("id", "late", "soon"),
    [
        ("C12.a", "stand_ins", "aligned_all"),
        ("C12.b", "stand_ins", "aligned_known"),
        ("C12.c", "aligned_shuffled", "aligned_all"),
    ],
)
def test_alignment_counts_steps_saved(tables, id, late, soon):
    (sub,) = [sub for sub in mechanism.C12 if sub.id == id]
    rows = tables["dynamics"]
    assert sub.effects() == {s: hit(rows, late, s) - hit(rows, soon, s) for s in SEEDS}


BY_HAND = {
    "C5.a": ("one layer", "short cut", "first relation", None, "right", 1),
    "C5.b": ("one layer", "short cut", "source", None, "right", 1),
    "C5.c": ("one layer", "short cut", "category", None, "followed", 1),
    "C13.a": ("one layer", "components", "value, other", None, "followed", 1),
    "C13.b": ("one layer", "components", "pattern, other", None, "right", 1),
    "C13.c": ("one layer", "components", "pattern", 0.5, "right", 1),
    "C13.d": ("one layer", "components", "pattern", 0.0, "right", -1),
    "C13.e": ("one layer", "components", "no MLP", None, "right", -1),
    "C14.a": ("one layer", "prompt", "mean difference", 1.0, "followed", 1),
    "C14.c": ("one layer", "prompt", "functor", 1.0, "followed", 1),
}


@pytest.mark.parametrize("id", BY_HAND)
def test_shares_come_from_the_last_step(tables, id):
    arm, test, change, level, column, sign = BY_HAND[id]
    subs = (*mechanism.C5, *mechanism.C13, *mechanism.C14)
    (sub,) = [sub for sub in subs if sub.id == id]
    for seed, effect in sub.effects().items():
        where = {"arm": arm, "test": test, "change": change, "seed": seed, "step": STEPS[-1]}
        row = one(tables["mechanism"], **where, **({} if level is None else {"level": level}))
        assert effect == pytest.approx(row[column] if sign > 0 else 1 - row[column])


def test_probe_and_steering_effects_are_differences(tables):
    rows = tables["mechanism"]

    def share(seed, column, **where):
        return one(rows, seed=seed, step=STEPS[-1], **where)[column]

    for sub, arm, group in zip(
        mechanism.B14,
        ("two layers", "two layers", "three layers"),
        ("known", "held_out", "known"),
        strict=True,
    ):
        for seed, effect in sub.effects().items():
            linear, lens = (
                share(seed, "right", arm=arm, test=t, group=group) for t in ("linear", "lens")
            )
            assert effect == pytest.approx(linear - lens)
    for seed, effect in mechanism.C14[1].effects().items():
        far, random_ = (
            share(seed, "followed", arm="one layer", test="prompt", change=c)
            for c in ("mean difference", "random")
        )
        assert effect == pytest.approx(far - random_)
    for seed, effect in mechanism.C5[3].effects().items():
        plain, other = (
            share(seed, "right", arm="circle", test="short cut", change=c)
            for c in ("none", "first relation")
        )
        assert effect is None if plain < 0.9 else effect == pytest.approx(1 - other)


LATER = {
    "B2.a": ("entities", "20", "10"),
    "B2.b": ("entities", "25", "15"),
    "B5.a": ("decay_adam_l2", "0", "0.01"),
    "B5.d": ("decay_adamw", "0", "10"),
    "B6.a": ("batch", "16", "256"),
}


def test_sensitivities_equal_a_loop_over_rows(tables):
    rows = tables["sensitivity"]
    subs = {
        sub.id: sub
        for name in ("B2", "B3", "B4", "B5", "B6", "B7", "B11", "B15")
        for sub in getattr(analogy, name)
    }

    def lasts(name, value, seed):
        step = one(rows, varied=name, value=value, seed=seed)["sustained_ana_ood"]
        return analogy.NEVER if math.isnan(step) else step

    for id, (name, slow, fast) in LATER.items():
        want = {s: lasts(name, slow, s) - lasts(name, fast, s) for s in SEEDS}
        assert subs[id].effects() == want
    for seed, effect in subs["B3.c"].effects().items():
        row = one(rows, varied="relations", value="210/10000", seed=seed)
        assert effect == pytest.approx(row["best_ana_ood"] - row["last_ana_ood"])
    for id, (name, value) in {"B4.a": ("ana_ood", "0.90"), "B7.b": ("depth", "3")}.items():
        for seed, effect in subs[id].effects().items():
            row = one(rows, varied=name, value=value, seed=seed)
            assert effect == pytest.approx(1 - row["last_ana_ood"])
    for seed, effect in subs["B11.a"].effects().items():
        norms = [
            r["norm_at_hit"] for r in rows if r["varied"] == "decay_adam_l2" and r["seed"] == seed
        ]
        assert effect == pytest.approx(max(norms) / min(norms))
    for seed, effect in subs["B15.c"].effects().items():
        named, shown = (
            one(rows, varied=n, value=v, seed=seed)["last_ana_ood"]
            for n, v in (("functors", "1"), ("implicit", "yes"))
        )
        assert effect == pytest.approx(named - shown)
