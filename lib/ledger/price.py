"""Sub-claims A15, the price in language modelling, and their stored rows."""

from __future__ import annotations

import pandas as pd

from lib import results
from lib.claims import Effects, SubClaim
from lib.ledger.collapse import LAST, per_seed


def price(name: str) -> pd.DataFrame:
    """All rows of a policy in language modelling. Raises ValueError when there are none."""
    frame = results.table("price")
    if name not in set(frame["arm"]):
        raise ValueError(f"no {name!r} in the stored runs: run `python -m lib sweep price`")
    return frame[frame["arm"] == name].reset_index(drop=True)


def _at(name: str, column: str, step: int = LAST) -> pd.Series:
    frame = price(name)
    return frame[frame["step"] == step].set_index("seed")[column]


def _dearer(name: str) -> Effects:
    return per_seed(_at(name, "loss_test") - _at("standard", "loss_test"))


def _collapses_again() -> Effects:
    column = "W_U_unseen_cosine"
    return per_seed(_at("reset_half", column) - _at("reset_half", column, LAST // 2))


A15 = (
    SubClaim(
        "A15.a",
        "test loss of a language model, nats a token: frozen minus learned embedding",
        0.1,
        lambda: _dearer("freeze"),
    ),
    SubClaim(
        "A15.b",
        "test loss: embedding reset throughout minus learned",
        0.1,
        lambda: _dearer("reset"),
    ),
    SubClaim(
        "A15.c",
        "mean cosine of reserved rows, reset until half-way: at the end minus half-way",
        0.1,
        _collapses_again,
    ),
)
