"""The sweeps of part III: policies of paper A on the task of paper B, and a policy of our own on both."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from lib import geometry
from lib.analogies import AnalogyRun, member_of, train_many
from lib.analogy_sweeps import AnalogyCell, groups
from lib.ensemble import Ensemble
from lib.experiments import FIVE, Cell, logic_run
from lib.generators.analogy import AnalogyConfig
from lib.generators.logic import LogicConfig
from lib.policies import FreezeRows, Refresh, Reset

INTERVALS = (20, 50, 200)
DRAWN = ("mean_cov", "mean_diag")


def choice_cells() -> list[Cell]:
    """Interval and draw of `Refresh`, chosen on one cell with two seeds that nothing else reports."""
    return [
        Cell(f"{method}/{every}", logic_run(seed=seed, policy=Refresh(every, method)))
        for seed in (0, 1)
        for every in INTERVALS
        for method in DRAWN
    ]


def refresh_cells() -> list[Cell]:
    """What the sweep `arms` has not: unused rows redrawn, or kept, while all others learn."""
    arms = ("refresh+copy", "refresh", "freeze_rows+copy", "freeze_rows")
    return [
        Cell(arm, logic_run(arm=arm, task=LogicConfig(n_seen=n), seed=seed))
        for arm in arms
        for n in (1000, 50)
        for seed in FIVE
    ]


def cures_cells() -> list[AnalogyCell]:
    """The laptop preset of the analogy task under each policy, with a row for every name; and with
    rows that stand for names, without the unused names, and without decay."""
    exact = AnalogyRun()
    used = AnalogyConfig().n_relations
    arms: dict[str, dict[str, Any]] = {
        "learn": {},
        "stand-ins": {"stand_ins": 64},
        "dropped": {"task": AnalogyConfig(vocabulary=used)},
        "no decay": {"weight_decay": 0.0},
        "freeze": {"frozen": True},
        "reset": {"policy": Reset()},
        "reset half": {"policy": Reset(until=exact.steps // 2)},
        "freeze rows": {"policy": FreezeRows()},
        "refresh": {"policy": Refresh()},
    }
    return [
        AnalogyCell("arm", name, dataclasses.replace(exact, **changes))
        for name, changes in arms.items()
    ]


def run_cures(cell: AnalogyCell, device: str = "cpu") -> tuple[list[dict[str, Any]], dict]:
    """A row for each evaluation of each seed, with how the rows of unused and of used names lie.

    A reset is due after the evaluation of its step. Columns are empty without unused names.
    """
    rows: list[dict[str, Any]] = []
    for seeds, runs in groups(cell.run, cell.seeds):
        members = [member_of(run) for run in runs]
        lie: list[list[dict[str, float]]] = [[] for _ in runs]

        def observe(step: int, models: Ensemble, members: Any = members, lie: Any = lie) -> None:
            for found, W, member in zip(lie, models.W_U.detach().cpu(), members, strict=True):
                names = {"unused": member.unused, "used": member.world.relation.unique()}
                row: dict[str, float] = {}
                for name, ids in names.items():
                    x, some = W[ids], len(ids) > 1
                    row[f"{name}_cosine"] = geometry.mean_cosine(x) if some else math.nan
                    row[f"{name}_share"] = geometry.individual_share(x) if some else math.nan
                    row[f"{name}_norm"] = float(geometry.norms(x).mean()) if some else math.nan
                found.append(row)

        _, histories = train_many(runs, device, observe=observe)
        for seed, history, found in zip(seeds, histories, lie, strict=True):
            for row, extra in zip(history, found, strict=True):
                rows.append({"arm": cell.value, "seed": seed, **row, **extra})
    return rows, {}
