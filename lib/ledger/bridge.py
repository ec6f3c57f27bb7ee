"""Sub-claims where the two papers meet (C8, C9), and their stored rows."""

from __future__ import annotations

import pandas as pd

from lib import results
from lib.claims import Effects, SubClaim
from lib.ledger.arms import skill
from lib.ledger.collapse import LAST, SOLVED, per_seed
from lib.ledger.price import price


def cures(arm: str) -> pd.DataFrame:
    """All rows of a policy on the analogy task. Raises ValueError when there are none."""
    frame = results.table("cures")
    if arm not in set(frame["arm"]):
        raise ValueError(f"no arm {arm!r}: run `python -m lib sweep cures`")
    return frame[frame["arm"] == arm].reset_index(drop=True)


def at_end(arm: str, column: str) -> pd.Series:
    """A column of the sweep `cures` at the last step, by seed."""
    frame = cures(arm)
    return frame[frame["step"] == frame["step"].max()].set_index("seed")[column]


def _analogies(better: str, worse: str, column: str = "acc_ana_ood") -> Effects:
    return per_seed(at_end(better, column) - at_end(worse, column))


def _beside(
    arm: str, other: str, n_seen: int = 1000, variant: str = "as trained", measure: str = "all"
) -> Effects:
    """Whole answers of an arm minus those of another one, or of its repaired self, seed by seed."""
    mine, theirs = skill(arm, n_seen), skill(other, n_seen, variant)
    return per_seed(mine[measure] - theirs[measure], skill(other, n_seen)["seen"])


def _dearer_by_less_than(allowed: float) -> Effects:
    at = {
        arm: price(arm).query(f"step == {LAST}").set_index("seed")["loss_test"]
        for arm in ("refresh", "standard")
    }
    return per_seed(allowed - (at["refresh"] - at["standard"]))


C8 = (
    SubClaim(
        "C8.a",
        "held-out analogies right at the end: embedding learned minus frozen",
        0.5,
        lambda: _analogies("learn", "freeze"),
    ),
    SubClaim(
        "C8.b",
        "held-out analogies right at the end: embedding learned minus reset every 100 steps",
        0.5,
        lambda: _analogies("learn", "reset"),
    ),
    SubClaim(
        "C8.c",
        "held-out compositions right at the end: embedding frozen minus 0.8",
        0.0,
        lambda: per_seed(at_end("freeze", "acc_comp_ood") - 0.8),
    ),
    SubClaim(
        "C8.d",
        "logic, all unseen, 1000 names: embedding frozen minus learned",
        0.5,
        lambda: _beside("freeze", "standard"),
        SOLVED,
    ),
)
# interval and draw of `refresh` were chosen on seeds 0 and 1 (sweep `refresh_choice`)
C9 = (
    SubClaim(
        "C9.a",
        "logic, all unseen, 1000 names: refresh minus learn",
        0.5,
        lambda: _beside("refresh", "standard"),
        SOLVED,
    ),
    SubClaim(
        "C9.b",
        "the same with copy attention",
        0.5,
        lambda: _beside("refresh+copy", "copy"),
        SOLVED,
    ),
    SubClaim(
        "C9.c",
        "the same with copy attention and 50 names",
        0.5,
        lambda: _beside("refresh+copy", "copy", 50),
        SOLVED,
    ),
    SubClaim(
        "C9.d",
        "logic, all unseen, 1000 names: refresh minus freeze (no worse)",
        -0.05,
        lambda: _beside("refresh", "freeze"),
        SOLVED,
    ),
    SubClaim(
        "C9.e",
        "logic, all unseen, 1000 names: refresh minus reset",
        0.1,
        lambda: _beside("refresh", "reset"),
        SOLVED,
    ),
    SubClaim(
        "C9.f",
        "logic, all unseen, 1000 names: refresh minus learn with rows redrawn at the end (no worse)",
        -0.05,
        lambda: _beside("refresh", "standard", variant="mean_cov"),
        SOLVED,
    ),
    SubClaim(
        "C9.g",
        "held-out analogies right at the end: refresh minus learn (no worse)",
        -0.1,
        lambda: _analogies("refresh", "learn"),
    ),
    SubClaim(
        "C9.h",
        "test loss of a language model, nats a token: 0.05 minus what refresh costs beside learn",
        0.0,
        lambda: _dearer_by_less_than(0.05),
    ),
)
