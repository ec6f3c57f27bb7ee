"""The sub-claims on Gemma's unused tokens, read from small made-up tables."""

import random

import pandas as pd
import pytest

from lib import claims, results
from lib.ledger import models

SEEDS = range(10, 15)
# Each sub-claim by hand: (set, treatment) of the minuend and of the subtrahend.
GAINS = {
    "C3.a": (("words", "none"), ("unused", "none")),
    "C3.b": (("unused", "mean_cov"), ("unused", "none")),
    "C3.c": (("unused", "mean_diag"), ("unused", "none")),
    "C3.d": (("unused", "orthogonal"), ("unused", "none")),
    "C3.e": (("unused", "mean_cov"), ("unused", "fresh")),
    "C3.f": (("unused", "mean_cov"), ("unused", "resized")),
    "C3.g": (("words", "none"), ("hidden", "none")),
}
CLOSER = {
    "A13.a": ("all unused", "as many used"),
    "A13.b": ("unused", "letters"),
    "A13.c": ("unused", "words"),
}
TIMES = {
    "A14.a": (("unused", "none"), ("words", "none")),
    "A14.b": (("unused", "none"), ("letters", "none")),
    "C10.a": (("unused", "none"), ("unused", "mean_cov")),
    "C10.b": (("words", "none"), ("unused", "mean_cov")),
    "C10.c": (("unused", "none"), ("unused", "mean_diag")),
}
SUBCLAIMS = {sub.id: sub for name in ("A13", "A14", "C3", "C10") for sub in getattr(models, name)}
del SUBCLAIMS["C3.h"]  # of a toy: see test_ledger_bridge


@pytest.fixture
def tables(monkeypatch):
    """Three made-up tables: what stands at (table, who, seed) is drawn at random and kept."""
    draw = random.Random(0)
    pairs = sorted({p for both in (*GAINS.values(), *TIMES.values()) for p in both})
    right = {(p, s, n): draw.random() for p in pairs for s in SEEDS for n in (4, 12)}
    induction = [
        {"symbols": p[0], "treatment": p[1], "seed": s, "length": n, "right": value}
        for (p, s, n), value in right.items()
    ]
    sets = sorted({name for both in CLOSER.values() for name in both})
    cosine = {(name, s): draw.random() for name in sets for s in SEEDS}
    rows = [{"symbols": name, "seed": s, "cosine": c} for (name, s), c in cosine.items()]
    needed = {(p, s): 5 * draw.randint(1, 20) for p in pairs for s in SEEDS}
    tuning = [
        # good once too early, then for good from the step wanted on
        {
            "symbols": p[0],
            "treatment": p[1],
            "seed": s,
            "step": step,
            "whole": 0.95 if step >= want or step == want - 10 else 0.5,
        }
        for (p, s), want in needed.items()
        for step in range(0, want + 10, 5)
    ]
    frames = {"induction": induction, "token_rows": rows, "tuning": tuning}
    monkeypatch.setattr(results, "table", lambda name: pd.DataFrame(frames[name]))
    return right, cosine, needed


@pytest.mark.parametrize("id", SUBCLAIMS)
def test_effects_by_hand(id, tables):
    right, cosine, needed = tables
    if id in GAINS:
        more, less = GAINS[id]
        wanted = {s: right[more, s, 12] - right[less, s, 12] for s in SEEDS}
    elif id in CLOSER:
        more, less = CLOSER[id]
        wanted = {s: cosine[more, s] - cosine[less, s] for s in SEEDS}
    else:
        slow, fast = TIMES[id]
        wanted = {s: needed[slow, s] / needed[fast, s] for s in SEEDS}
    assert SUBCLAIMS[id].effects() == pytest.approx(wanted)


def test_unsolved_run_counts_with_its_last_step(monkeypatch):
    whole = {10: [0, 0.95, 0.5, 0.6], 11: [0, 0.5, 0.95, 0.95], 12: [0, 0, 0, 0.95]}
    frame = pd.DataFrame(
        [
            {"symbols": "unused", "treatment": "none", "seed": s, "step": 5 * i, "whole": w}
            for s, values in whole.items()
            for i, w in enumerate(values)
        ]
    )
    monkeypatch.setattr(results, "table", lambda name: frame.sample(frac=1, random_state=0))
    assert models.steps_needed("unused").to_dict() == {10: 15, 11: 10, 12: 15}
    with pytest.raises(ValueError, match="lib sweep tuning"):
        models.tuned("words")


def test_a_part_that_is_not_tested_is_a_condition():
    passes = claims.SubClaim("X.a", "m", 0.5, lambda: dict.fromkeys(range(5), 1.0))
    whole = claims.Claim("X", "A", "s", "unseen/x", (passes,))
    part = claims.Claim("X", "A", "s", "unseen/x", (passes,), why_not="no weights")
    assert claims.verdict(whole)[0] == "reproduced"
    assert claims.verdict(part)[0] == "reproduced with a condition"
    assert "reproduced with a condition (a part is not tested)" in claims.markdown([part])
    assert claims.evidence(part).endswith("Not tested: no weights.")
    fails = claims.SubClaim("X.b", "m", 2.0, passes.effects)
    both = claims.Claim("X", "A", "s", "unseen/x", (passes, fails), why_not="no weights")
    assert "(not X.b; a part is not tested)" in claims.markdown([both])
