"""Claims of our own on both tasks, read from small made-up tables and worked out again by hand."""

import itertools
import random

import pandas as pd
import pytest

from lib import results
from lib.analogy_sweeps import sensitivity_cells
from lib.ledger import bridge, models
from lib.ledger.collapse import LAST

FIVE, EIGHT = range(10, 15), range(10, 18)
ARMS = ("standard", "copy", "freeze", "freeze+copy", "reset", "refresh", "refresh+copy")
LEVELS = {"as trained": (float("nan"),), "mean_cov": (float("nan"),)}
LEVELS |= {"cosine": (0.0, 0.75), "norm": (1.0, 0.5)}
SUBCLAIMS = {sub.id: sub for n in (1, 2, 4, 6, 7, 8, 9) for sub in getattr(bridge, f"C{n}")} | {
    "C3.h": models.C3[-1]
}

# id -> (better cell, worse cell, whose seen names must be right); a cell: arm, names, variant, level
PLAIN, BEFORE = "as trained", None
LOGIC = {
    "C3.h": (("standard", 1000, "mean_cov", BEFORE), ("standard", 1000, PLAIN, BEFORE), "standard"),
    "C4.a": (("freeze", 1000, "cosine", 0.0), ("freeze", 1000, "cosine", 0.75), "freeze"),
    "C4.b": (
        ("freeze+copy", 1000, "cosine", 0.0),
        ("freeze+copy", 1000, "cosine", 0.75),
        "freeze+copy",
    ),
    "C4.c": (("freeze", 1000, "norm", 1.0), ("freeze", 1000, "norm", 0.5), "freeze"),
    "C8.d": (("freeze", 1000, PLAIN, BEFORE), ("standard", 1000, PLAIN, BEFORE), "standard"),
    "C9.a": (("refresh", 1000, PLAIN, BEFORE), ("standard", 1000, PLAIN, BEFORE), "standard"),
    "C9.b": (("refresh+copy", 1000, PLAIN, BEFORE), ("copy", 1000, PLAIN, BEFORE), "copy"),
    "C9.c": (("refresh+copy", 50, PLAIN, BEFORE), ("copy", 50, PLAIN, BEFORE), "copy"),
    "C9.d": (("refresh", 1000, PLAIN, BEFORE), ("freeze", 1000, PLAIN, BEFORE), "freeze"),
    "C9.e": (("refresh", 1000, PLAIN, BEFORE), ("reset", 1000, PLAIN, BEFORE), "reset"),
    "C9.f": (
        ("refresh", 1000, PLAIN, BEFORE),
        ("standard", 1000, "mean_cov", BEFORE),
        "standard",
    ),
}
CURES = {
    "C2.c": ("loss", 300, "learn", "dropped"),
    "C8.a": ("acc_ana_ood", 500, "learn", "freeze"),
    "C8.b": ("acc_ana_ood", 500, "learn", "reset"),
    "C9.g": ("acc_ana_ood", 500, "refresh", "learn"),
}


@pytest.fixture
def tables(monkeypatch):
    draw = random.Random(0)
    logic = [
        {
            "arm": arm, "n_seen": n, "depth": 2, "seed": seed, "variant": variant, "level": level,
            "step": step,
            **{f"whole_seen_{half}": 0.3 if seed == 12 else 0.95 for half in ("true", "false")},
            **{f"whole_all_unseen_{half}": draw.random() for half in ("true", "false")},
            "whole_query_unseen_true": draw.random(),
        }
        for arm, n, (variant, levels), seed, step in itertools.product(
            ARMS, (1000, 50), LEVELS.items(), FIVE, (1200, LAST)
        )
        for level in levels
        if step == LAST or variant == PLAIN
    ]  # fmt: skip
    cures = [
        {"arm": arm, "seed": seed, "step": step, "loss": draw.random()}
        | {f"acc_{kind}": draw.random() for kind in ("ana_ood", "comp_ood")}
        for arm in ("learn", "dropped", "freeze", "reset", "refresh")
        for seed in EIGHT
        for step in (300, 500)
    ]
    price = [
        {"arm": arm, "seed": seed, "step": step, "loss_test": draw.random()}
        for arm in ("standard", "refresh")
        for seed in FIVE
        for step in (1200, LAST)
    ]
    lemma = [
        {"arm": arm, "seed": seed, "step": step, "p": draw.random(), "worst_step": draw.random()}
        | {"bound": 1.0 if arm == "sgd_no_decay" else 0.9}
        for arm in ("sgd", "sgd_no_decay")
        for seed in FIVE
        for step in (0, 20, 40)
    ]
    dynamics = [
        {"arm": arm, "seed": seed, "step": step, "loss": draw.random()}
        | {f"acc_{kind}": step / 400 for kind in ("ana_ood", "comp_ood")}
        | {"W_E_energy_held_out": draw.random()}
        for arm in ("exact", "stand_ins", "untied")
        for seed in EIGHT
        for step in (0, 300, 400)
    ]
    columns = ("last_ana_ood", "W_E_energy_pairs", "W_E_energy_mismatched")
    sensitivity = [
        {"varied": cell.name, "value": cell.value, "seed": seed}
        | {column: draw.random() for column in columns}
        for cell in sensitivity_cells()
        for seed in EIGHT
    ]
    frames = {
        "arms": [row for row in logic if "refresh" not in row["arm"]],
        "refresh": [row for row in logic if "refresh" in row["arm"]],
        "cures": cures,
        "price": price,
        "lemma": lemma,
        "dynamics": dynamics,
        "sensitivity": sensitivity,
    }
    monkeypatch.setattr(results, "table", lambda name: pd.DataFrame(frames[name]))
    return frames


def one(rows, **wanted):
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def whole(tables, cell, seed):
    arm, n, variant, level = cell
    rows = tables["refresh" if "refresh" in arm else "arms"]
    wanted = {"arm": arm, "n_seen": n, "variant": variant, "seed": seed, "step": LAST}
    row = one(rows, **wanted, **({} if level is None else {"level": level}))
    return (row["whole_all_unseen_true"] + row["whole_all_unseen_false"]) / 2


@pytest.mark.parametrize("id", LOGIC)
def test_whole_answers_by_hand(id, tables):
    more, less, _ = LOGIC[id]
    wanted = {
        seed: None if seed == 12 else whole(tables, more, seed) - whole(tables, less, seed)
        for seed in FIVE
    }
    assert SUBCLAIMS[id].effects() == pytest.approx(wanted)


@pytest.mark.parametrize("id", CURES)
def test_policies_on_analogies_by_hand(id, tables):
    column, step, more, less = CURES[id]
    at = lambda arm, seed: one(tables["cures"], arm=arm, seed=seed, step=step)[column]  # noqa: E731
    assert SUBCLAIMS[id].effects() == pytest.approx({s: at(more, s) - at(less, s) for s in EIGHT})


def test_the_others_by_hand(tables):
    def at(name, seed, column, **wanted):
        return one(tables[name], seed=seed, **wanted)[column]

    def varied(name, value, seed, column):
        return at("sensitivity", seed, column, varied=name, value=value)

    wanted = {
        "C1.a": {
            s: 1
            - max(
                r["worst_step"]
                for r in tables["lemma"]
                if (r["arm"], r["seed"]) == ("sgd_no_decay", s)
            )
            for s in FIVE
        },
        "C1.b": {s: at("lemma", s, "p", arm="sgd", step=0) * 32 / 0.01 for s in FIVE},
        "C2.a": {
            s: 0.1
            - abs(
                at("dynamics", s, "loss", arm="stand_ins", step=300)
                / at("dynamics", s, "loss", arm="exact", step=300)
                - 1
            )
            for s in EIGHT
        },
        "C2.b": dict.fromkeys(EIGHT, 30),
        "C6.a": {
            s: varied("relations", "30/10000", s, "W_E_energy_mismatched")
            - varied("relations", "30/10000", s, "W_E_energy_pairs")
            for s in EIGHT
        },
        "C6.b": {s: 1 - varied("relations", "30/10000", s, "last_ana_ood") for s in EIGHT},
        "C6.c": {
            s: at("dynamics", s, "W_E_energy_held_out", arm="untied", step=400)
            - at("dynamics", s, "W_E_energy_held_out", arm="untied", step=0)
            for s in EIGHT
        },
        "C7.a": {
            s: varied("decay_adamw", "0.01", s, "last_ana_ood")
            - varied("decay_adam_l2", "0.01", s, "last_ana_ood")
            for s in EIGHT
        },
        "C7.b": {
            s: varied("decay_adamw", "1", s, "last_ana_ood")
            - varied("decay_adam_l2", "1", s, "last_ana_ood")
            for s in EIGHT
        },
        "C7.c": {s: 1 - varied("decay_adamw", "10", s, "last_ana_ood") for s in EIGHT},
        "C8.c": {s: at("cures", s, "acc_comp_ood", arm="freeze", step=500) - 0.8 for s in EIGHT},
        "C9.h": {
            s: 0.05
            + at("price", s, "loss_test", arm="standard", step=LAST)
            - at("price", s, "loss_test", arm="refresh", step=LAST)
            for s in FIVE
        },
    }
    assert set(wanted) | set(LOGIC) | set(CURES) == set(SUBCLAIMS)
    for id, effects in wanted.items():
        assert SUBCLAIMS[id].effects() == pytest.approx(effects), id


def test_a_sweep_that_was_not_run_is_named(monkeypatch):
    monkeypatch.setattr(results, "table", lambda name: pd.DataFrame({"arm": ["learn"]}))
    with pytest.raises(ValueError, match="sweep cures"):
        bridge.cures("refresh")
