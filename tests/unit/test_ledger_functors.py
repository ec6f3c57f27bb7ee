"""The sub-claims on analogies in real models, read from small made-up tables."""

import math
import random

import pandas as pd
import pytest

from lib import results
from lib.generators.prompts import RELATIONS
from lib.ledger import functors
from lib.model_sweeps import DEFAULT, KINDS_OF_PROMPT, LLAMA
from lib.relation_sweeps import STEERED

SEEDS, DEPTHS = range(10, 15), range(4)
COLUMNS = (
    *("energy", "control", "energy_queried", "control_queried", "among", "probe", "lens"),
    *("correlation_energy", "correlation_energy_raw"),
)
SUBCLAIMS = {
    sub.id: sub for name in ("B12", "B13", "B14", "B16", "C11") for sub in getattr(functors, name)
}
ONE_TO_ONE = [name for name in sorted(RELATIONS) if RELATIONS[name] == "one-to-one"]


@pytest.fixture
def made_up(monkeypatch):
    """Random numbers where the sub-claims look, and a way to look them up."""
    draw = random.Random(0)
    value = {
        (model, prompt, seed, depth, column): draw.random()
        for model in (DEFAULT, LLAMA)
        for prompt in KINDS_OF_PROMPT
        for seed in SEEDS
        for depth in DEPTHS
        for column in COLUMNS
    }
    for (m, p, s, d, c), v in value.items():  # a mean over prompts stands at every depth
        if c.startswith("correlation"):
            value[m, p, s, d, c] = value[m, p, s, 0, c] if d else v
    rows = [
        {"model": m, "prompt": p, "seed": s, "depth": d}
        | {c: value[m, p, s, d, c] for c in COLUMNS}
        for m in (DEFAULT, LLAMA)
        for p in KINDS_OF_PROMPT
        for s in SEEDS
        for d in DEPTHS
    ]
    near = [
        {"relation": r, "direction": way, "source": i, "right": draw.randint(0, 1)}
        | {"parallelism": draw.random()}
        for r in RELATIONS
        for way in ("mean difference", "shuffled", "random", "none")
        for i in range(6)
    ]
    steered = [
        {"relation": r, "direction": way, "depth": depth, "dose": dose, "source": i}
        | {"p": draw.uniform(0.1, 0.9)}
        for r in STEERED
        for way in ("mean difference", "other relation", "random")
        for depth in (3, 6)
        for dose in (0.0, 1.0, 2.0)
        for i in range(3)
    ]
    for row in steered:  # dose 0 is the model as it is, whatever the direction
        if row["dose"] == 0:
            row["p"] = 0.05 + (row["source"] + len(row["relation"])) / 40
    tables = {
        "in_context": rows,
        "relations_embedding": near,
        "relations_steering": steered,
    }
    monkeypatch.setattr(results, "table", lambda name: pd.DataFrame(tables[name]))
    return value, near, steered


def by_seed(effect):
    return {seed: effect(seed) for seed in SEEDS}


@pytest.mark.parametrize(
    ("id", "model", "prompt", "column", "sign"),
    [
        ("B12.a", DEFAULT, "base", "correlation_energy", -1),
        ("B12.b", DEFAULT, "base", "correlation_energy_raw", 1),
        ("B13.a", LLAMA, "base", "correlation_energy", -1),
        ("B13.c", DEFAULT, "2 entities", "correlation_energy", -1),
        ("B13.d", DEFAULT, "4 entities", "correlation_energy", -1),
        ("B13.e", DEFAULT, "5 entities", "correlation_energy", -1),
    ],
)
def test_correlations(id, model, prompt, column, sign, made_up):
    value, *_ = made_up
    wanted = by_seed(lambda s: sign * value[model, prompt, s, 3, column])
    assert SUBCLAIMS[id].effects() == pytest.approx(wanted)


def test_energy_of_the_queried_pair_at_the_best_depth(made_up):
    value, *_ = made_up
    wanted = by_seed(
        lambda s: max(
            value[DEFAULT, "base", s, d, "control_queried"]
            - value[DEFAULT, "base", s, d, "energy_queried"]
            for d in DEPTHS
        )
    )
    assert SUBCLAIMS["B12.c"].effects() == pytest.approx(wanted)


@pytest.mark.parametrize(("id", "model"), [("B12.d", DEFAULT), ("B13.b", LLAMA)])
def test_answers_above_chance(id, model, made_up):
    value, *_ = made_up
    wanted = by_seed(lambda s: value[model, "base", s, 3, "among"] - 1 / 3)
    assert SUBCLAIMS[id].effects() == pytest.approx(wanted)


def test_probe_before_lens(made_up):
    value, *_ = made_up

    def effect(seed):
        first = [
            next((d for d in DEPTHS if value[DEFAULT, "base", seed, d, who] >= 0.5), None)
            for who in ("probe", "lens")
        ]
        return None if None in first else first[1] - first[0]

    assert SUBCLAIMS["B14.d"].effects() == by_seed(effect)


@pytest.mark.parametrize(
    ("id", "more", "less"),
    [
        ("B16.a", "letters, short cut", "base"),
        ("B16.b", "digits, short cut", "digits"),
        ("B16.c", "words, token shared", "words"),
    ],
)
def test_prompts_that_help(id, more, less, made_up):
    value, *_ = made_up
    wanted = by_seed(
        lambda s: value[DEFAULT, more, s, 3, "among"] - value[DEFAULT, less, s, 3, "among"]
    )
    assert SUBCLAIMS[id].effects() == pytest.approx(wanted)


def test_relations_in_the_embedding(made_up):
    _, near, _ = made_up

    def mean(relation, way, column):
        values = [
            row[column] for row in near if (row["relation"], row["direction"]) == (relation, way)
        ]
        return sum(values) / len(values)

    own, shuffled = "mean difference", "shuffled"
    wanted = {
        "C11.a": [mean(r, own, "right") for r in ONE_TO_ONE],
        "C11.b": [mean(r, own, "right") - mean(r, "none", "right") for r in ONE_TO_ONE],
        "C11.c": [
            mean(r, own, "parallelism") - mean(r, shuffled, "parallelism") for r in ONE_TO_ONE
        ],
    }
    for id, values in wanted.items():
        assert SUBCLAIMS[id].effects() == pytest.approx(dict(enumerate(values)))
    assert len(ONE_TO_ONE) == 11


def test_steering_leaves_out_what_depth_and_dose_were_chosen_on(made_up):
    *_, steered = made_up
    p = {
        (r["relation"], r["direction"], r["depth"], r["dose"], r["source"]): r["p"] for r in steered
    }

    def gain(relation, way):
        at = [(relation, way, 6, dose) for dose in (1.0, 0.0)]
        return sum(math.log(p[*at[0], i] / p[*at[1], i]) for i in range(3)) / 3

    names = [n for n in STEERED if n not in ("capital", "opposite")]
    wanted = {
        i: gain(name, "mean difference") - gain(name, "other relation")
        for i, name in enumerate(names)
    }
    assert SUBCLAIMS["C11.d"].effects() == pytest.approx(wanted)
    assert len(wanted) == 5


def test_every_subclaim_is_looked_at_here():
    tested = {"B12.a", "B12.b", "B12.c", "B12.d", "B14.d"}
    tested |= {f"B13.{c}" for c in "abcde"} | {f"B16.{c}" for c in "abc"}
    assert set(SUBCLAIMS) == tested | {f"C11.{c}" for c in "abcd"}
