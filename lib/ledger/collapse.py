"""Sub-claims A1 to A5, failure and collapse, and the stored rows they are read from.

The sub-claims of a claim were fixed, and committed, before its sweep was run.
"""

from __future__ import annotations

import pandas as pd

from lib import results
from lib.claims import Effects, SubClaim
from lib.fixed_features import EVERY

LAST = 2400  # the step at which tables of the logic task are read, the same for every arm
LEARNED = 0.9  # whole answers right on seen names before a failure on unseen ones means anything


def arm(name: str) -> pd.DataFrame:
    """All stored rows of an arm of the sweep `logic`. Raises ValueError when there are none."""
    frame = results.table("logic")
    if name not in set(frame["arm"]):
        raise ValueError(
            f"arm {name!r} is not in the stored sweep: run `python -m lib sweep logic`"
        )
    return frame[frame["arm"] == name].reset_index(drop=True)


def final(name: str, step: int = LAST) -> pd.DataFrame:
    """One row per seed of an arm, read at `step`."""
    frame = arm(name)
    return frame[frame["step"] == step].set_index("seed")


def long() -> pd.DataFrame:
    """The arm `adamw_full` trained for about four times as long, all rows."""
    return results.table("logic_long")


def live(step: int) -> pd.DataFrame:
    """What bounds a live run: ten seeds at `step`, on one thread (from `logic`) and on two."""
    two = results.table("logic_live")
    one = arm("standard").assign(threads=1)
    end = pd.concat([frame[frame["step"] == step] for frame in (one, two)], ignore_index=True)
    return end.assign(whole_seen=halves(end, "whole_seen"))


def halves(frame: pd.DataFrame, measure: str) -> pd.Series:
    """A measure averaged over True and False problems."""
    return (frame[f"{measure}_true"] + frame[f"{measure}_false"]) / 2


def per_seed(effect: pd.Series, *skills: pd.Series) -> Effects:
    """The effect of each seed, or None where one of the skills it presupposes was not learned."""
    able = {s for s in effect.index if all(skill[s] >= LEARNED for skill in skills)}
    return {int(s): float(effect[s]) if s in able else None for s in effect.index}


def _drop(split: str, half: str | None = None) -> Effects:
    frame = final("standard")
    seen, unseen = (
        frame[f"whole_{s}_{half}"] if half else halves(frame, f"whole_{s}") for s in ("seen", split)
    )
    return per_seed(seen - unseen, halves(frame, "whole_seen"))


def _not_unseen(split: str) -> Effects:
    frame = final("standard")
    share = 1 - frame[f"writes_right_{split}"] - frame[f"writes_other_unseen_{split}"]
    return per_seed(share, halves(frame, "whole_seen"))


def _seen_instead() -> Effects:
    frame = final("standard")
    share = frame["writes_seen_here_query_unseen"] + frame["writes_seen_elsewhere_query_unseen"]
    return per_seed(share, halves(frame, "whole_seen"))


def _cosine_rise() -> Effects:
    return per_seed(
        final("standard")["W_U_unseen_cosine"] - final("standard", 0)["W_U_unseen_cosine"]
    )


def _cosine_at_end(name: str) -> Effects:
    return per_seed(final(name)["W_U_unseen_cosine"])


def _cosine_after_long() -> Effects:
    frame = long()
    end = frame[frame["step"] == frame["step"].max()].set_index("seed")
    return per_seed(end["W_U_unseen_cosine"])


def _more_than_seen() -> Effects:
    frame = final("standard")
    return per_seed(frame["W_U_unseen_cosine"] - frame["W_U_seen_cosine"])


def _individual_lost() -> Effects:
    column = "W_U_unseen_individual"
    return per_seed(1 - final("standard")[column] / final("standard", 0)[column])


def _of_untied_seeds() -> tuple[pd.DataFrame, pd.DataFrame]:
    untied = final("untied")
    return final("standard").loc[untied.index], untied


def _tied_cosine_gap() -> Effects:
    tied, untied = _of_untied_seeds()
    return per_seed(tied["W_E_unseen_cosine"] - untied["W_E_unseen_cosine"])


def _told_apart_gap() -> Effects:
    tied, untied = _of_untied_seeds()
    gap = halves(untied, "verdict_all_unseen") - halves(tied, "verdict_all_unseen")
    return per_seed(gap, halves(tied, "verdict_seen"), halves(untied, "verdict_seen"))


def lemma(name: str) -> pd.DataFrame:
    """All rows of one arm of the sweep `lemma`."""
    frame = results.table("lemma")
    return frame[frame["arm"] == name].reset_index(drop=True)


def bound_kept(name: str) -> Effects:
    """How far the worst step of any pair stays below 1 - lr x decay (0: it just reaches it)."""
    runs = lemma(name)
    allowed = runs[runs["step"] == EVERY].set_index("seed")["bound"] ** (1 / EVERY)
    return per_seed(allowed - runs.groupby("seed")["worst_step"].max())


def _bound_at_end(name: str) -> Effects:
    end = lemma(name)
    end = end[end["step"] == end["step"].max()].set_index("seed")
    return per_seed(end["bound"] - end["distance"])


SOLVED = "at least .9 of whole answers right on seen names"

A1 = (
    SubClaim(
        "A1.a",
        "whole answers right, True half: all names seen minus query unseen",
        0.5,
        lambda: _drop("query_unseen", "true"),
        SOLVED,
    ),
    SubClaim(
        "A1.b",
        "whole answers right: all names seen minus all unseen",
        0.5,
        lambda: _drop("all_unseen"),
        SOLVED,
    ),
)
A2 = (
    SubClaim(
        "A2.a",
        "query unseen: share of due unseen names in whose place no unseen name is written",
        0.95,
        lambda: _not_unseen("query_unseen"),
        SOLVED,
    ),
    SubClaim(
        "A2.b",
        "all unseen: share of due unseen names in whose place no unseen name is written",
        0.95,
        lambda: _not_unseen("all_unseen"),
        SOLVED,
    ),
    SubClaim(
        "A2.c",
        "query unseen: share of due unseen names replaced by a seen name",
        0.5,
        _seen_instead,
        SOLVED,
    ),
)
A3 = (
    SubClaim(
        "A3.a",
        "rise of the mean cosine of unseen unembedding rows over training",
        0.3,
        _cosine_rise,
    ),
    SubClaim(
        "A3.b",
        "mean cosine of unseen unembedding rows at the end",
        0.9,
        lambda: _cosine_at_end("standard"),
    ),
    SubClaim("A3.c", "mean cosine at the end: unseen minus seen rows", 0.2, _more_than_seen),
    SubClaim(
        "A3.d", "share of the individual part of unseen rows that is lost", 0.5, _individual_lost
    ),
    SubClaim(
        "A3.e",
        "the same as A3.b when the embedding learns with the full step size",
        0.9,
        lambda: _cosine_at_end("adamw_full"),
    ),
    # registered after A3.a to A3.e had failed, and before the longer runs were made
    SubClaim(
        "A3.f",
        "the same as A3.e after 10,000 steps instead of 2400",
        0.9,
        _cosine_after_long,
    ),
)
A4 = (
    SubClaim(
        "A4.a",
        "SGD, fixed features: how far the worst step of any pair stays below 1 - lr x decay",
        -1e-6,  # the stored numbers have six digits
        lambda: bound_kept("sgd"),
        share=1.0,
    ),
    SubClaim(
        "A4.b",
        "SGD: (1 - lr x decay)^steps minus the share of the distance that is left",
        0.0,
        lambda: _bound_at_end("sgd"),
        share=1.0,
    ),
    SubClaim(
        "A4.c",
        "the same as A4.a for AdamW, the optimiser that is used",
        -1e-6,
        lambda: bound_kept("adamw"),
        share=1.0,
    ),
)
A5 = (
    SubClaim(
        "A5.a",
        "mean cosine of unseen input rows at the end: tied minus untied",
        0.2,
        _tied_cosine_gap,
    ),
    SubClaim(
        "A5.b",
        "verdicts right with all names unseen and the derived names given: untied minus tied",
        0.1,
        _told_apart_gap,
        "at least .9 of verdicts right on seen names, tied and untied",
    ),
)
