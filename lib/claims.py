"""The ledger: every claim of both papers, how it is checked on stored results, and its verdict.

A claim has sub-claims. Each was written down before its sweep ran: what is measured, in which
direction, the smallest effect that counts, and how many seeds must show it. A check is a small
function from stored tables to one effect per seed; the verdict follows from the effects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib import results

VERDICTS = (
    "reproduced",
    "reproduced with a condition",
    "not at this scale",
    "not reproduced",
    "not tested",
)
Effects = dict[int, float | None]  # seed -> effect; None: the seed does not meet the precondition
STORED = results.STORE / "verdicts.json"
README = Path(__file__).parent.parent / "README.md"
MARKERS = ("<!-- claims -->", "<!-- end of claims -->")


@dataclass(frozen=True)
class SubClaim:
    """One measurable statement. It passes when at least `share` of the seeds that meet the
    precondition show an effect of `smallest` or more; fewer than half of the seeds meeting it means
    that it cannot be judged at this scale."""

    id: str
    measure: str
    smallest: float
    effects: Callable[[], Effects]
    precondition: str = "none"
    share: float = 0.8


@dataclass(frozen=True)
class Claim:
    """`source` is A, B or ours; `chapter` the page that shows it. `why_not`, the only typed verdict,
    says why the claim, or with sub-claims a part of it, is not tested."""

    id: str
    source: str
    statement: str
    chapter: str | None = None
    subclaims: Sequence[SubClaim] = ()
    why_not: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a sub-claim's check found. `passes` is None when it cannot be judged at this scale."""

    id: str
    measure: str
    smallest: float
    k: int
    n: int
    unjudged: int
    median: float
    low: float
    high: float
    passes: bool | None


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % Wilson interval for a share k of n [Wilson 1927]. Raises ValueError unless 0 <= k <= n, n > 0."""
    if not 0 <= k <= n or n == 0:
        raise ValueError(f"k = {k} of n = {n}: need 0 <= k <= n and n > 0")
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def judge(sub: SubClaim) -> Outcome:
    """Run one check."""
    effects = sub.effects()
    shown = sorted(e for e in effects.values() if e is not None)
    unjudged = len(effects) - len(shown)
    k = sum(e >= sub.smallest for e in shown)
    passes = None if len(shown) == 0 or len(shown) < unjudged else k >= sub.share * len(shown)
    middle = float(pd.Series(shown).median()) if shown else math.nan
    low, high = (shown[0], shown[-1]) if shown else (math.nan, math.nan)
    return Outcome(
        sub.id, sub.measure, sub.smallest, k, len(shown), unjudged, middle, low, high, passes
    )


def verdict(claim: Claim) -> tuple[str, list[Outcome]]:
    """The verdict of a claim and the outcomes it follows from.

    All sub-claims pass: reproduced, or with a condition if a part of the claim is not tested. Some:
    reproduced with a condition. None, though all could be judged: not reproduced. None, and at least
    one could not: not at this scale.
    """
    if not claim.subclaims:
        return "not tested", []
    outcomes = [judge(sub) for sub in claim.subclaims]
    passes = [outcome.passes for outcome in outcomes]
    if all(passes) and claim.why_not is None:
        return "reproduced", outcomes
    if any(passes):
        return "reproduced with a condition", outcomes
    return ("not at this scale" if None in passes else "not reproduced"), outcomes


def all_verdicts(ledger: Sequence[Claim]) -> dict[str, dict[str, Any]]:
    """Every claim's verdict with the numbers it follows from, as plain JSON types."""
    return {claim.id: _record(claim) for claim in ledger}


def _record(claim: Claim) -> dict[str, Any]:
    said, outcomes = verdict(claim)
    checks = {
        o.id: {"k": o.k, "n": o.n, "median": _round(o.median), "passes": o.passes} for o in outcomes
    }
    return {"verdict": said, "checks": checks}


def _round(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def stale(ledger: Sequence[Claim], stored: Path | None = None) -> list[str]:
    """Ids of claims whose stored verdict no longer follows from the stored results."""
    path = STORED if stored is None else stored
    if not path.exists():
        raise FileNotFoundError(
            f"{path.name} is missing: write it with `python -m lib claims --write`"
        )
    old, new = json.loads(path.read_text(encoding="utf-8")), all_verdicts(ledger)
    return sorted(id for id in old.keys() | new.keys() if old.get(id) != new.get(id))


def write(ledger: Sequence[Claim], readme: Path | None = None) -> None:
    """Store the verdicts, and put the table into the README between its two markers."""
    text = json.dumps(all_verdicts(ledger), indent=1, ensure_ascii=False) + "\n"
    results.write_atomically(STORED, text.encode())
    path = README if readme is None else readme
    results.write_atomically(path, in_readme(ledger, path.read_text(encoding="utf-8")).encode())


def in_readme(ledger: Sequence[Claim], text: str) -> str:
    """The README's text with a fresh table between the markers."""
    if [text.count(marker) for marker in MARKERS] != [1, 1]:
        raise ValueError(f"the text needs {MARKERS[0]} and {MARKERS[1]}, once each")
    head, rest = text.split(MARKERS[0])
    _, tail = rest.split(MARKERS[1])
    return f"{head}{MARKERS[0]}\n{markdown(ledger, 'book/')}\n{MARKERS[1]}{tail}"


def markdown(ledger: Sequence[Claim], base: str = "../") -> str:
    """One row per claim: id, statement, chapter, verdict. `base` leads to the book's folder."""
    lines = ["| id | claim | chapter | verdict |", "|---|---|---|---|"]
    for claim in ledger:
        where = f"[{claim.chapter}]({base}{claim.chapter}.ipynb)" if claim.chapter else "to come"
        said, outcomes = verdict(claim)
        if said == VERDICTS[1]:  # the condition: what did not pass, or the little that did
            held = [o.id for o in outcomes if o.passes]
            rest = [o.id for o in outcomes if not o.passes]
            few = held if len(held) < len(rest) else rest
            parts = [f"{'only' if few is held else 'not'} {', '.join(few)}"] if rest else []
            parts += ["a part is not tested"] if claim.why_not else []
            said += f" ({'; '.join(parts)})"
        lines.append(f"| {claim.id} | {claim.statement} | {where} | {said} |")
    return "\n".join(lines)


def evidence(claim: Claim) -> str:
    """The sub-claims of one claim with seeds, Wilson interval and spread, as a Markdown table."""
    lines = [
        "| sub-claim | measure | smallest effect that counts | seeds | median [lowest, highest] | passes |",
        "|---|---|---|---|---|---|",
    ]
    for sub, o in zip(claim.subclaims, verdict(claim)[1], strict=True):
        low, high = wilson(o.k, o.n) if o.n else (0.0, 1.0)
        seeds = f"{o.k} of {o.n} [{low:.2f}, {high:.2f}]"
        if o.unjudged:
            seeds += f"; {o.unjudged} not judged (precondition: {sub.precondition})"
        spread = f"{o.median:.3g} [{o.low:.3g}, {o.high:.3g}]" if o.n else "-"
        passes = {True: "yes", False: "no", None: "cannot be judged"}[o.passes]
        lines.append(f"| {o.id} | {o.measure} | {o.smallest:g} | {seeds} | {spread} | {passes} |")
    if claim.why_not:
        lines += ["", f"Not tested: {claim.why_not}."]
    return "\n".join(lines)
