"""Sub-claims on what makes the analogy: B14 in the toy, and our own; and their stored rows."""

from __future__ import annotations

import pandas as pd

from lib import results
from lib.analogies import AnalogyRun
from lib.claims import Effects, SubClaim
from lib.ledger.analogy import dynamics, hits
from lib.ledger.collapse import per_seed

LATE = AnalogyRun().steps + AnalogyRun().eval_every  # one evaluation after the last


def mechanism(
    test: str,
    change: str,
    level: float | None = None,
    arm: str = "one layer",
    group: str = "held_out",
) -> pd.DataFrame:
    """One row a seed, at the last step, of the sweep `mechanism`. Raises ValueError when there are none."""
    frame = results.table("mechanism")
    frame = frame[(frame["arm"] == arm) & (frame["test"] == test) & (frame["change"] == change)]
    frame = frame[(frame["group"] == group) & (frame["step"] == frame["step"].max())]
    if level is not None:
        frame = frame[frame["level"] == level]
    if frame.empty:
        raise ValueError(f"no {test!r}, {change!r}: run `python -m lib sweep mechanism`")
    return frame.set_index("seed")


def _right(test: str, change: str, level: float | None = None) -> Effects:
    return per_seed(mechanism(test, change, level)["right"])


def _wrong(test: str, change: str, level: float | None = None) -> Effects:
    return per_seed(1 - mechanism(test, change, level)["right"])


def _followed(test: str, change: str, level: float | None = None) -> Effects:
    return per_seed(mechanism(test, change, level)["followed"])


def _sooner(aligned: str, reference: str = "stand_ins") -> Effects:
    """First hits of held-out analogies, same seeds, same worlds: reference minus aligned."""
    late, soon = (
        hits(dynamics(arm), "acc_ana_ood").fillna(LATE) for arm in (reference, f"aligned_{aligned}")
    )
    return per_seed(late - soon)


def _ahead(level: float = 1.0) -> Effects:
    moved = mechanism("prompt", "mean difference", level)["followed"]
    return per_seed(moved - mechanism("prompt", "random", level)["followed"])


def _earlier(arm: str, group: str) -> Effects:
    """After the first attention: share read by the linear probe minus that by the lens."""
    linear, lens = (
        mechanism(test, "blocks.0.resid_mid", arm=arm, group=group)["right"]
        for test in ("linear", "lens")
    )
    return per_seed(linear - lens)


def _changed_on_circle() -> Effects:
    """Where composing is needed and learned: share of answers that another first relation changes."""
    plain, other = (
        mechanism("short cut", c, arm="circle")["right"] for c in ("none", "first relation")
    )
    return per_seed(1 - other, plain)


B14 = (
    SubClaim(
        "B14.a",
        "two layers, after the first attention, known analogies: share read by a linear probe minus "
        "share read by the logit lens",
        0.2,
        lambda: _earlier("two layers", "known"),
    ),
    SubClaim(
        "B14.b", "the same for held-out analogies", 0.2, lambda: _earlier("two layers", "held_out")
    ),
    SubClaim(
        "B14.c", "three layers, known analogies", 0.2, lambda: _earlier("three layers", "known")
    ),
)
C5 = (
    SubClaim(
        "C5.a",
        "held-out compositions with another first relation: share that still gets the old answer",
        0.9,
        lambda: _right("short cut", "first relation"),
    ),
    SubClaim(
        "C5.b",
        "the same with another source of the same category",
        0.9,
        lambda: _right("short cut", "source"),
    ),
    SubClaim(
        "C5.c",
        "with a source of the other category: share that gets the answer's partner",
        0.9,
        lambda: _followed("short cut", "category"),
    ),
    SubClaim(
        "C5.d",
        "on a circle, where no token fixes the answer: share that another first relation makes wrong",
        0.8,
        _changed_on_circle,
        "held-out compositions are solved",
    ),
)
C12 = (
    SubClaim(
        "C12.a",
        "steps until held-out analogies are first right: default minus all pairs aligned by hand",
        50.0,
        lambda: _sooner("all"),
    ),
    SubClaim("C12.b", "the same, known pairs aligned", 50.0, lambda: _sooner("known")),
    SubClaim(
        "C12.c",
        "all pairs aligned minus wrong partners aligned: steps that wrong ones take longer",
        50.0,
        lambda: _sooner("all", "aligned_shuffled"),
    ),
)
C13 = (
    SubClaim(
        "C13.a",
        "the next source's value in place of its own: share that gets the next source's partner",
        0.8,
        lambda: _followed("components", "value, other"),
    ),
    SubClaim(
        "C13.b",
        "the next source's attention pattern: share still right",
        0.8,
        lambda: _right("components", "pattern, other"),
    ),
    SubClaim(
        "C13.c",
        "attention to the source set to one half: share still right",
        0.8,
        lambda: _right("components", "pattern", 0.5),
    ),
    SubClaim(
        "C13.d",
        "attention to the source set to 0: share wrong",
        0.8,
        lambda: _wrong("components", "pattern", 0.0),
    ),
    SubClaim("C13.e", "no MLP: share wrong", 0.5, lambda: _wrong("components", "no MLP")),
)
C14 = (
    SubClaim(
        "C14.a",
        "mean e_t - e_s of known pairs added to a held-out source in `s r`: share of answers b that "
        "become F(b)",
        0.8,
        lambda: _followed("prompt", "mean difference", 1.0),
    ),
    SubClaim("C14.b", "the same minus a random direction as long", 0.5, _ahead),
    SubClaim(
        "C14.c",
        "the functor's own row added once: share that become F(b)",
        0.5,
        lambda: _followed("prompt", "functor", 1.0),
    ),
)
