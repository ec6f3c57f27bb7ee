"""The sub-claims on arms by diversity, read from a small made-up table instead of the stored one."""

import functools
import itertools
import random
import re

import pandas as pd
import pytest

from lib import claims, results
from lib.experiments import arms_cells
from lib.generators.logic import SPLITS
from lib.ledger import arms
from lib.ledger.collapse import LAST, LEARNED

SEEDS = range(10, 15)
TRAINED = "as trained"
# Each sub-claim by hand: a constant, then (sign, measure, arm, seen names, variant) to add to it.
BY_HAND = {
    "A6.a": (0, [(1, "query", "copy", 1000), (-1, "query", "standard", 1000)]),
    "A6.b": (0, [(1, "query", "copy", 9600), (-1, "query", "copy", 50)]),
    "A6.c": (1, [(-1, "all", "copy", 9600)]),
    "A6.d": (0, [(1, "query", "copy_slow", 1000), (-1, "query", "standard_slow", 1000)]),
    "A6.e": (1, [(-1, "all", "copy_slow", 1000)]),
    "A7.a": (0, [(1, "query", "standard", 9600), (-1, "query", "standard", 150)]),
    "A7.b": (0, [(1, "query", "copy", 9600), (-1, "query", "copy", 150)]),
    "A7.c": (0, [(1, "all", "freeze", 9600), (-1, "all", "freeze", 150)]),
    "A7.d": (0, [(1, "all", "freeze+copy", 9600), (-1, "all", "freeze+copy", 150)]),
    "A8.a": (0, [(1, "all", "freeze", 9600)]),
    "A8.b": (0, [(1, "all", "freeze+copy", 9600)]),
    "A8.c": (0, [(1, "all", "freeze", 9600), (-1, "all", "freeze", 50)]),
    "A9.a": (0, [(1, "all", "reset+copy", 9600)]),
    "A9.b": (0, [(1, "all", "reset+copy", 1000)]),
    "A9.c": (0, [(1, "all", "reset_half+copy", 1000)]),
    "A10.a": (0, [(1, "all", "freeze+copy", 1000), (-1, "all", "freeze", 1000)]),
    "A10.b": (0, [(1, "all", "freeze+copy", 1000), (-1, "all", "copy", 1000)]),
    "A10.c": (1, [(-1, "all", "standard", 9600)]),
    "A10.d": (1, [(-1, "all", "standard", 1000, "mean_cov")]),
    "A11.a": (1, [(-1, "all", "copy", 1000)]),
    "A11.b": (1, [(-1, "all", "copy", 9600)]),
    "A12.a": (0, [(1, "all", "reset", 1000), (-1, "all", "standard", 1000)]),
    "A12.b": (0, [(1, "all", "reset", 1000)]),
}
SUBCLAIMS = {
    sub.id: sub
    for name in sorted(vars(arms))
    if re.fullmatch(r"A\d+", name)
    for sub in getattr(arms, name)
}
# A world as paper A describes it: (query unseen, all unseen) right, where a sub-claim looks.
WORLD = {
    ("standard", 150): (0.1, 0.0),
    ("standard", 1000): (0.2, 0.05),
    ("standard", 9600): (0.4, 0.1),
    ("standard_slow", 1000): (0.2, 0.05),
    ("copy_slow", 1000): (0.9, 0.2),
    ("copy", 50): (0.3, 0.0),
    ("copy", 150): (0.5, 0.1),
    ("copy", 1000): (0.9, 0.2),
    ("copy", 9600): (0.95, 0.3),
    ("freeze", 50): (0.2, 0.1),
    ("freeze", 150): (0.3, 0.2),
    ("freeze", 1000): (0.5, 0.4),
    ("freeze", 9600): (0.95, 0.9),
    ("freeze+copy", 150): (0.5, 0.4),
    ("freeze+copy", 1000): (0.9, 0.8),
    ("freeze+copy", 9600): (0.95, 0.95),
    ("reset", 1000): (0.7, 0.6),
    ("reset+copy", 1000): (0.9, 0.85),
    ("reset+copy", 9600): (0.95, 0.9),
    ("reset_half+copy", 1000): (0.9, 0.85),
    ("standard", 1000, "mean_cov"): (0.3, 0.3),
}
each_subclaim = pytest.mark.parametrize("id", BY_HAND)


def cell(arm, n_seen, variant=TRAINED):
    return arm, n_seen, variant


def cells_of(id):
    return [cell(*term[2:]) for term in BY_HAND[id][1]]


@functools.cache
def _filled():
    """All cells, five seeds, two steps; every seen name learned, all else at random; and the same cells
    at another depth, which no sub-claim reads."""
    draw = random.Random(0)
    rows = []
    for arm, n_seen, variant in (cell(*key) for key in WORLD):
        for seed, depth in itertools.product(SEEDS, (2, 3)):
            for step in (0, LAST):
                row = {"arm": arm, "n_seen": n_seen, "variant": variant, "step": step, "seed": seed}
                row["depth"] = depth
                for split in SPLITS:
                    for half in ("true", "false"):
                        low = LEARNED if split == "seen" and step else 0
                        row[f"whole_{split}_{half}"] = draw.uniform(low, 1)
                rows.append(row)
    return pd.DataFrame(rows)


def filled():
    """A copy to change."""
    return _filled().copy()


def at(frame, arm, n_seen, variant, seed=None, step=LAST):
    found = frame["arm"].eq(arm) & frame["n_seen"].eq(n_seen) & frame["variant"].eq(variant)
    found &= frame["step"].eq(step) & frame["depth"].eq(2)
    return found if seed is None else found & frame["seed"].eq(seed)


def measured(frame, measure, *where, seed):
    (row,) = frame[at(frame, *where, seed=seed)].to_dict("records")
    if measure == "query":
        return row["whole_query_unseen_true"]
    return (row["whole_all_unseen_true"] + row["whole_all_unseen_false"]) / 2


@pytest.fixture
def stored(monkeypatch):
    """A made-up table in the place of the stored one; `stored(frame)` puts another one there."""

    def put(frame):
        monkeypatch.setattr(results, "table", lambda name: {"arms": frame}[name])
        return frame

    return put


def test_every_subclaim_is_written_out_here():
    assert list(SUBCLAIMS) == sorted(BY_HAND, key=lambda id: id.split(".")[0])
    for name in {id.split(".")[0] for id in BY_HAND}:
        ids = [sub.id for sub in getattr(arms, name)]
        assert ids == [f"{name}.{letter}" for letter in "abcdefgh"[: len(ids)]]


@each_subclaim
def test_each_check_by_hand(stored, id):
    frame = stored(filled())
    constant, terms = BY_HAND[id]
    want = {
        seed: constant + sum(t[0] * measured(frame, t[1], *cell(*t[2:]), seed=seed) for t in terms)
        for seed in SEEDS
    }
    assert SUBCLAIMS[id].effects() == pytest.approx(want)


@each_subclaim
def test_the_words_say_what_the_check_does(id):
    sub, (constant, terms) = SUBCLAIMS[id], BY_HAND[id]
    words = sub.measure
    start = {"query": "query unseen", "all": "all unseen"}
    assert all(words.startswith(start[term[1]]) for term in terms)
    assert ("wrong" in words) == (constant == 1)
    assert ("minus" in words) == (len(terms) == 2)
    assert all(str(term[3]) in words for term in terms)
    assert all(term[2].split("_")[0].split("+")[0] in words for term in terms)
    assert "seen names" in sub.precondition
    assert 0 < sub.smallest < 1


@pytest.mark.parametrize("mirrored", [False, True])
@each_subclaim
def test_in_the_papers_world_all_pass_and_in_its_mirror_none(stored, id, mirrored):
    frame = filled()
    for key, (query, all_unseen) in WORLD.items():
        here = at(frame, *cell(*key))
        for column, value in (("query_unseen", query), ("all_unseen", all_unseen)):
            for half in ("true", "false"):
                frame.loc[here, f"whole_{column}_{half}"] = 1 - value if mirrored else value
    stored(frame)
    outcome = claims.judge(SUBCLAIMS[id])
    assert (outcome.n, outcome.unjudged) == (5, 0)
    assert outcome.passes is not mirrored
    assert outcome.k == (0 if mirrored else 5)


@each_subclaim
def test_a_seed_that_learned_too_little_is_left_out(stored, id):
    for where in {(arm, n, TRAINED) for arm, n, _ in cells_of(id)}:
        frame = filled()
        frame.loc[at(frame, *where, seed=12), ["whole_seen_true", "whole_seen_false"]] = 0.89
        stored(frame)
        effects = SUBCLAIMS[id].effects()
        assert [seed for seed, effect in effects.items() if effect is None] == [12]
        assert list(effects) == list(SEEDS)
        outcome = claims.judge(SUBCLAIMS[id])
        assert (outcome.n, outcome.unjudged) == (4, 1)


@each_subclaim
def test_what_other_cells_and_other_steps_learned_does_not_matter(stored, id):
    whole = stored(filled())
    want = SUBCLAIMS[id].effects()
    mine = pd.Series(False, index=whole.index)
    for arm, n, variant in cells_of(id):
        mine |= at(whole, arm, n, variant) | at(whole, arm, n, TRAINED)
    frame = whole.copy()
    frame.loc[~mine, [c for c in frame if c.startswith("whole_")]] = 0.0
    assert (~mine).any()
    stored(frame)
    assert SUBCLAIMS[id].effects() == want


def test_the_precondition_is_the_mean_of_both_halves(stored):
    frame = filled()
    frame.loc[at(frame, *cell("reset", 1000), seed=11), "whole_seen_true"] = 0.5
    frame.loc[at(frame, *cell("reset", 1000), seed=12), "whole_seen_true"] = 0.85
    frame.loc[at(frame, *cell("reset", 1000), seed=12), "whole_seen_false"] = 1.0
    stored(frame)
    effects = SUBCLAIMS["A12.b"].effects()
    assert [seed for seed, effect in effects.items() if effect is None] == [11]


def test_when_most_seeds_learned_too_little_it_cannot_be_judged(stored):
    frame = filled()
    frame.loc[frame["arm"].eq("reset") & frame["seed"].gt(11), "whole_seen_true"] = 0.0
    stored(frame)
    assert claims.judge(SUBCLAIMS["A12.b"]).passes is None


@each_subclaim
def test_a_missing_cell_is_named(stored, id):
    for where in cells_of(id):
        frame, (arm, n, variant) = filled(), where
        stored(frame[~(at(frame, *where) | at(frame, *where, step=0))])
        said = f"no {arm!r} with {n} names, {variant!r}, depth 2: run `python -m lib sweep arms`"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            SUBCLAIMS[id].effects()


def test_the_grid_holds_all_steps_of_one_cell(stored):
    stored(filled())
    frame = arms.grid("standard", variant="mean_cov")
    assert set(frame["arm"]) == {"standard"} and set(frame["n_seen"]) == {1000}
    assert set(frame["variant"]) == {"mean_cov"} and set(frame["step"]) == {0, LAST}
    assert set(frame["depth"]) == {2}
    assert list(frame.index) == list(range(2 * len(SEEDS)))
    assert set(arms.grid("standard", variant="mean_cov", depth=3)["depth"]) == {3}


def test_skill_reads_one_step(stored):
    frame = stored(filled())
    for step in (0, LAST):
        skill = arms.skill("copy", 50, step=step)
        assert list(skill.columns) == ["seen", "query", "all"] and list(skill.index) == list(SEEDS)
        (row,) = frame[at(frame, *cell("copy", 50), seed=13, step=step)].to_dict("records")
        assert skill.loc[13, "seen"] == (row["whole_seen_true"] + row["whole_seen_false"]) / 2
        assert skill.loc[13, "query"] == row["whole_query_unseen_true"]


def test_the_sweep_makes_every_cell_that_is_read():
    made = {(c.arm, c.run.task.n_seen) for c in arms_cells() if c.run.task.depth == 2}
    read = {(arm, n) for id in BY_HAND for arm, n, _ in cells_of(id)}
    assert read <= made and {c.run.steps for c in arms_cells()} == {LAST}
