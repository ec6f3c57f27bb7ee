"""The sweeps of paper B: what is varied, and what each run leaves.

Every setting is trained with eight seeds, four at a time. `dynamics` keeps a row for each evaluation,
`sensitivity` one row a run, `mechanism` a row for each change. Seeds below 10 were for trying out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lib import mechanism
from lib.analogies import KINDS, AnalogyRun, first_hit, member_of, sustained, train_many
from lib.ensemble import Ensemble
from lib.generators.analogy import AnalogyConfig

SEEDS = range(10, 18)
AT_ONCE = 4  # more lose on a CPU: the members fall out of the cache
BASE = AnalogyRun(steps=1000, eval_every=20, stand_ins=64)

# Without the short cut of composition all is learned later, if enough compositions are shown.
CIRCLE = dataclasses.replace(
    BASE, task=AnalogyConfig(short_cut=False, comp_ood=0.3), steps=4000, eval_every=80
)


@dataclass(frozen=True)
class AnalogyCell:
    """One setting with all its seeds. `name` says what is varied, `value` to what."""

    name: str
    value: str
    run: AnalogyRun
    seeds: tuple[int, ...] = tuple(SEEDS)


def dynamics_cells() -> list[AnalogyCell]:
    """Whole curves: the exact softmax and the stand-ins beside it, and what mechanisms need."""
    exact = AnalogyRun()
    arms = {
        "exact": exact,
        "stand_ins": dataclasses.replace(exact, stand_ins=64),
        "untied": dataclasses.replace(exact, tied=False),
        "frozen": dataclasses.replace(exact, frozen=True, stand_ins=64),
        "decay_1e-2": dataclasses.replace(exact, weight_decay=1e-2, stand_ins=64),
        "decay_1": dataclasses.replace(exact, weight_decay=1.0, stand_ins=64),
        **{
            f"aligned_{which}": dataclasses.replace(exact, aligned=which, stand_ins=64)
            for which in ("all", "known", "shuffled")
        },
    }
    return [AnalogyCell("arm", name, run) for name, run in arms.items()]


def _task(**changes: Any) -> AnalogyRun:
    return dataclasses.replace(BASE, task=dataclasses.replace(AnalogyConfig(), **changes))


def _varied() -> Iterator[tuple[str, str, AnalogyRun]]:
    """(what, to which value, run), one thing at a time."""
    for n in (5, 10, 15, 20, 25):
        yield "entities", str(n), _task(entities=n)
    for used in (14, 30, 60, 105, 210):
        for names in (500, 10_000):
            yield "relations", f"{used}/{names}", _task(relations=used, vocabulary=names)
        none = AnalogyConfig(relations=used, vocabulary=used)
        yield "names", f"{used}/{used}", dataclasses.replace(BASE, task=none, stand_ins=None)
        yield "names", f"{used}/2000", _task(relations=used, vocabulary=2000)
    for share in (0.1, 1 / 3, 0.5, 0.7, 0.9):
        yield "ana_ood", f"{share:.2f}", _task(ana_ood=share)
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        yield "comp_ood", f"{share:g}", _task(comp_ood=share)
    for decay in (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        yield "decay_adam_l2", f"{decay:g}", dataclasses.replace(BASE, weight_decay=decay)
    for decay in (0.0, 1e-2, 1.0, 10.0, 100.0):
        run = dataclasses.replace(BASE, weight_decay=decay, optimiser="adamw")
        yield "decay_adamw", f"{decay:g}", run
    for lr in (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
        yield "lr", f"{lr:g}", dataclasses.replace(BASE, lr=lr)
    for batch in (16, 32, 64, 128, 256):
        yield "batch", str(batch), dataclasses.replace(BASE, batch=batch)
    for width in (64, 128, 256, 512):
        yield "width", str(width), dataclasses.replace(BASE, d_model=width)
    for depth in (1, 2, 3):
        yield "depth", str(depth), dataclasses.replace(BASE, n_layers=depth)
    for lr, decay in ((3e-4, 1e-3), (3e-4, 1e-2), (1e-4, 1e-3), (1e-4, 1e-2)):
        same: dict[str, Any] = {"lr": lr, "weight_decay": decay}
        value = f"{lr:g}/{decay:g}"
        yield "width_512", value, dataclasses.replace(BASE, d_model=512, **same)
        yield "depth_3", value, dataclasses.replace(BASE, n_layers=3, **same)
    for std in (0.01, 0.02, 0.05, None):
        yield (
            "init",
            "usual" if std is None else f"{std:g}",
            dataclasses.replace(BASE, init_std=std),
        )
    for noise in (0.0, 0.1, 0.2, 0.4, 0.8):
        yield "noise", f"{noise:g}", _task(noise=noise)
    for functors in (1, 2, 3):
        yield "functors", str(functors), _task(functors=functors)
    yield "implicit", "yes", _task(implicit=True)
    yield "short_cut", "no", CIRCLE


def sensitivity_cells() -> list[AnalogyCell]:
    """One row a run: settings varied one at a time around the laptop preset, 1000 steps for all
    but the world without the short cut."""
    return [AnalogyCell(name, value, run) for name, value, run in _varied()]


def groups(
    run: AnalogyRun, seeds: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], list[AnalogyRun]]]:
    """Seeds that are trained together, and their runs."""
    for start in range(0, len(seeds), AT_ONCE):
        some = seeds[start : start + AT_ONCE]
        yield some, [dataclasses.replace(run, seed=seed) for seed in some]


# The laptop preset is one value of every setting: it is trained once a process, and its other names
# are stored with the seconds of a look-up.
@functools.cache
def histories(
    run: AnalogyRun, seeds: tuple[int, ...], device: str = "cpu"
) -> list[tuple[int, list[dict[str, Any]]]]:
    """Each seed with its history, one row an evaluation; four seeds are trained at a time."""
    return [
        pair
        for some, runs in groups(run, seeds)
        for pair in zip(some, train_many(runs, device)[1], strict=True)
    ]


def run_dynamics(cell: AnalogyCell, device: str = "cpu") -> tuple[list[dict[str, Any]], dict]:
    """A row for each evaluation of each seed; columns of W_U are empty where it is W_E."""
    rows = []
    for seed, history in histories(cell.run, cell.seeds, device):
        for row in history:
            head = [name.replace("W_E", "W_U") for name in row if name.startswith("W_E")]
            rows.append(
                {"arm": cell.value, "seed": seed, **row, **{name: row.get(name) for name in head}}
            )
    return rows, {}


def mechanism_cells() -> list[AnalogyCell]:
    """What makes the analogy: the laptop preset with the exact softmax, deeper models for probes, and
    a world without the short cut of composition."""
    deep: dict[str, Any] = {"lr": 1e-4, "weight_decay": 1e-2, "eval_every": 100}
    arms = {
        "one layer": AnalogyRun(eval_every=100),
        "two layers": dataclasses.replace(BASE, n_layers=2, **deep),
        "three layers": dataclasses.replace(BASE, n_layers=3, **deep),
        "circle": dataclasses.replace(CIRCLE, eval_every=400),
    }
    return [AnalogyCell("arm", name, run) for name, run in arms.items()]


def run_mechanism(cell: AnalogyCell, device: str = "cpu") -> tuple[list[dict[str, Any]], dict]:
    """A row for each change of lib.mechanism and each group of pairs, at every evaluation."""
    rows: list[dict[str, Any]] = []
    for seeds, runs in groups(cell.run, cell.seeds):
        members = [member_of(run) for run in runs]

        def observe(
            step: int, models: Ensemble, seeds: tuple[int, ...] = seeds, members: Any = members
        ) -> None:
            for seed, found in zip(
                seeds, mechanism.everything(models, members, seeds), strict=True
            ):
                rows.extend({"arm": cell.value, "seed": seed, "step": step, **row} for row in found)

        train_many(runs, device, observe=observe)
    return rows, {}


LAST = (
    "attention_source",
    "W_E_norm",
    "W_E_matched",
    "W_E_energy_pairs",
    "W_E_energy_mismatched",
    "W_E_parallelism_pairs",
)


def run_sensitivity(cell: AnalogyCell, device: str = "cpu") -> tuple[list[dict[str, Any]], dict]:
    """A row for each seed: when each kind of fact is first and lastingly right (accuracy 0.9, to the
    nearest evaluation; empty for never), best and last accuracy, last probability, geometry."""
    rows = []
    for seed, history in histories(cell.run, cell.seeds, device):
        row: dict[str, Any] = {"varied": cell.name, "value": cell.value, "seed": seed}
        steps = [int(r["step"]) for r in history]
        for kind in KINDS:
            scores = [float(r.get(f"acc_{kind}", 0.0)) for r in history]
            row[f"first_{kind}"] = first_hit(steps, scores)
            row[f"sustained_{kind}"] = sustained(steps, scores)
            row[f"best_{kind}"], row[f"last_{kind}"] = max(scores), scores[-1]
            row[f"p_{kind}"] = history[-1].get(f"p_{kind}")
        hit = row["first_ana_ood"]
        at_hit = history[steps.index(hit)] if hit is not None else {}
        row["norm_at_hit"] = at_hit.get("W_E_norm")
        rows.append(row | {name: history[-1].get(name) for name in LAST})
    return rows, {}
