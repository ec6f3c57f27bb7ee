"""Sub-claims on the unused tokens of Gemma 3 270M (A13, A14, C3, C10), and their stored rows."""

from __future__ import annotations

import pandas as pd

from lib import results
from lib.claims import Effects, SubClaim
from lib.fine_tuning import SOLVED
from lib.ledger.arms import skill
from lib.ledger.collapse import SOLVED as SOLVED_TOY
from lib.ledger.collapse import per_seed

LENGTH = 12  # different symbols in a sequence


def rows_of(symbols: str) -> pd.DataFrame:
    """Geometry of a set of token rows, one row a seed."""
    frame = results.table("token_rows")
    return frame[frame["symbols"] == symbols].set_index("seed")


def continued(symbols: str, treatment: str = "none", length: int = LENGTH) -> pd.DataFrame:
    """Induction over a set of symbols with treated rows, one row a seed."""
    frame = results.table("induction")
    keep = (frame["symbols"] == symbols) & (frame["treatment"] == treatment)
    return frame[keep & (frame["length"] == length)].set_index("seed")


def tuned(symbols: str, treatment: str = "none") -> pd.DataFrame:
    """All rows of a fine-tuning arm. Raises ValueError when there are none."""
    frame = results.table("tuning")
    keep = (frame["symbols"] == symbols) & (frame["treatment"] == treatment)
    if not keep.any():
        raise ValueError(f"no {symbols!r}, {treatment!r}: run `python -m lib sweep tuning`")
    return frame[keep].reset_index(drop=True)


def steps_needed(symbols: str, treatment: str = "none") -> pd.Series:
    """Step of the first of two evaluations in a row with 90 % whole answers, by seed; a run that
    never has them counts with its last step, a lower bound."""
    needed = {}
    for seed, run in tuned(symbols, treatment).sort_values("step").groupby("seed"):
        good = (run["whole"] >= SOLVED) & (run["whole"].shift(-1) >= SOLVED)
        needed[seed] = int(run["step"][good].min() if good.any() else run["step"].max())
    return pd.Series(needed, dtype=float)


def _closer(one: str, other: str) -> Effects:
    return per_seed(rows_of(one)["cosine"] - rows_of(other)["cosine"])


def _gain(better: tuple[str, str], worse: tuple[str, str]) -> Effects:
    return per_seed(continued(*better)["right"] - continued(*worse)["right"])


def _times(slow: tuple[str, str], fast: tuple[str, str]) -> Effects:
    return per_seed((steps_needed(*slow) / steps_needed(*fast)).dropna())


def _in_the_toy() -> Effects:
    trained, repaired = skill("standard"), skill("standard", variant="mean_cov")
    return per_seed(repaired["all"] - trained["all"], trained["seen"])


UNUSED, WORDS, LETTERS = ("unused", "none"), ("words", "none"), ("letters", "none")
MEASURE = "12 symbols shown once and begun again, share continued right: "
STEPS = "steps to 90 % of held-out answers: "

A13 = (
    SubClaim(
        "A13.a",
        "mean pairwise cosine of rows: 99 unused tokens minus 99 used ones",
        0.3,
        lambda: _closer("all unused", "as many used"),
    ),
    SubClaim(
        "A13.b",
        "mean pairwise cosine of rows: 26 unused tokens minus 26 letters",
        0.2,
        lambda: _closer("unused", "letters"),
    ),
    SubClaim(
        "A13.c",
        "mean pairwise cosine of rows: 26 unused tokens minus 26 words",
        0.2,
        lambda: _closer("unused", "words"),
    ),
)
A14 = (
    SubClaim(
        "A14.a",
        STEPS + "unused tokens over words",
        5.0,
        lambda: _times(UNUSED, WORDS),
    ),
    SubClaim(
        "A14.b",
        STEPS + "unused tokens over letters",
        5.0,
        lambda: _times(UNUSED, LETTERS),
    ),
)
C3 = (
    SubClaim("C3.a", MEASURE + "words minus unused tokens", 0.4, lambda: _gain(WORDS, UNUSED)),
    SubClaim(
        "C3.b",
        MEASURE + "unused tokens, rows drawn with mean and covariance minus as they are",
        0.4,
        lambda: _gain(("unused", "mean_cov"), UNUSED),
    ),
    SubClaim(
        "C3.c",
        MEASURE + "unused tokens, mean and variances minus as they are",
        0.4,
        lambda: _gain(("unused", "mean_diag"), UNUSED),
    ),
    SubClaim(
        "C3.d",
        MEASURE + "unused tokens, mean and orthogonal directions minus as they are",
        0.4,
        lambda: _gain(("unused", "orthogonal"), UNUSED),
    ),
    SubClaim(
        "C3.e",
        MEASURE + "unused tokens, mean and covariance minus random directions",
        0.3,
        lambda: _gain(("unused", "mean_cov"), ("unused", "fresh")),
    ),
    SubClaim(
        "C3.f",
        MEASURE + "unused tokens, mean and covariance minus mean resizing",
        0.4,
        lambda: _gain(("unused", "mean_cov"), ("unused", "resized")),
    ),
    SubClaim(
        "C3.g",
        MEASURE + "words minus tokens whose rows only lie with the unused ones",
        0.4,
        lambda: _gain(WORDS, ("hidden", "none")),
    ),
    SubClaim(
        "C3.h",
        "toy, all unseen, 1000 names: rows drawn with mean and covariance after training minus as trained",
        0.5,
        _in_the_toy,
        SOLVED_TOY,
    ),
)
C10 = (
    SubClaim(
        "C10.a",
        STEPS + "unused tokens as they are over redrawn (mean and covariance)",
        3.0,
        lambda: _times(UNUSED, ("unused", "mean_cov")),
    ),
    SubClaim(
        "C10.b",
        STEPS + "words over redrawn unused tokens (mean and covariance)",
        0.5,
        lambda: _times(WORDS, ("unused", "mean_cov")),
    ),
    SubClaim(
        "C10.c",
        STEPS + "unused tokens as they are over redrawn (mean and variances)",
        3.0,
        lambda: _times(UNUSED, ("unused", "mean_diag")),
    ),
)
