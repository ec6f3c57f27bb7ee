"""Named settings, and the sweeps of the logic task.

A preset fixes sizes; an arm changes what is compared; a sweep is a list of runs. Seeds below 10 are
for trying things out, reported runs use seeds from 10 on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lib import results
from lib.configuration import config_hash, nearest
from lib.evaluation import Task, direct_parts, evaluate
from lib.fixed_features import ARMS as LEMMA_ARMS
from lib.fixed_features import FixedFeatures, train_on_fixed_features
from lib.generators import stream
from lib.generators.horn import HornConfig
from lib.generators.logic import LogicConfig
from lib.generators.text import TextConfig
from lib.models.transformer import Transformer, TransformerConfig
from lib.policies import Freeze, FreezeRows, Learn, Refresh, Reset
from lib.repair import METHODS, collapse, redraw, replaced, scaled, silenced_copy
from lib.training import RunConfig, train


def _preset(task: LogicConfig | HornConfig, sizes: Mapping[str, Any], **run: Any) -> RunConfig:
    return RunConfig(task, TransformerConfig(task.d_vocab, positions="learned", **sizes), **run)


PRESETS: dict[str, RunConfig] = {
    # two minutes on one core
    "laptop": _preset(LogicConfig(), {}),
    "horn": _preset(HornConfig(), {}),
    # one GPU, minutes
    "workstation": _preset(
        LogicConfig(n_seen=9600, n_unseen=100),
        {"d_model": 256, "n_layers": 4, "n_heads": 8},
        lr=1e-3,
        batch=256,
        steps=20_000,
        eval_every=500,
        compiled=True,
    ),
    # the size of paper A: 65 million parameters
    "paper": _preset(
        LogicConfig(depth=3, n_seen=9600, n_unseen=100),
        {"d_model": 768, "n_layers": 8, "n_heads": 12, "embed_std": 0.02},
        lr=3e-4,
        embed_lr_scale=1.0,
        batch=256,
        steps=20_000,
        eval_every=500,
        precision="bfloat16",
        compiled=True,
    ),
    # language modelling on real text, two minutes on one core
    "text": RunConfig(
        TextConfig(),
        TransformerConfig(TextConfig().d_vocab),
        embed_lr_scale=1.0,
        batch=16,
        eval_problems=512,
    ),
    # a look at everything in seconds; too short to learn
    "tiny": _preset(
        LogicConfig(depth=1, n_seen=40, n_unseen=8),
        {"d_model": 32, "n_heads": 2},
        steps=100,
        eval_every=50,
        eval_problems=64,
    ),
}

# An arm is the preset with some fields of the run, and of its model, replaced.
ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "standard": ({}, {}),
    "copy": ({}, {"copy": True}),
    "freeze": ({"policy": Freeze()}, {}),
    "reset": ({"policy": Reset()}, {}),
    "freeze+copy": ({"policy": Freeze()}, {"copy": True}),
    "reset+copy": ({"policy": Reset()}, {"copy": True}),
    "reset_half": ({"policy": Reset(until=1200)}, {}),
    "reset_half+copy": ({"policy": Reset(until=1200)}, {"copy": True}),
    "freeze_rows": ({"policy": FreezeRows()}, {}),
    "freeze_rows+copy": ({"policy": FreezeRows()}, {"copy": True}),
    "refresh": ({"policy": Refresh()}, {}),
    "refresh+copy": ({"policy": Refresh()}, {"copy": True}),
    "standard_slow": ({"embed_lr_scale": 0.1}, {}),
    "copy_slow": ({"embed_lr_scale": 0.1}, {"copy": True}),
    "untied": ({}, {"tied": False}),
    "adamw_full": ({"embed_lr_scale": 1.0}, {}),
    "adamw_no_decay": ({"weight_decay": 0.0}, {}),
    "adam_l2": ({"optimiser": "adam_l2", "weight_decay": 1e-3}, {}),
    "sgd": ({"optimiser": "sgd", "lr": 0.3, "weight_decay": 1e-3}, {}),
    "untied_adam_l2": ({"optimiser": "adam_l2", "weight_decay": 1e-3}, {"tied": False}),
}


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what is stored is keyed by this and by nothing else."""

    arm: str
    run: RunConfig


@dataclass(frozen=True)
class LiveCell(Cell):
    """A run as a chapter makes it, on a number of threads."""

    threads: int = 1


def logic_run(
    preset: str = "laptop", arm: str = "standard", task: Task | None = None, **changes: Any
) -> RunConfig:
    """The configuration of an arm under a preset; `changes` replace fields of the run (seed, steps).

    With another `task` the model's vocabulary follows it, and rows that never occur are those of the task.
    """
    base = PRESETS[nearest("preset", preset, PRESETS)]
    run, model = ARMS[nearest("arm", arm, ARMS)]
    asked = base.task if task is None else task
    sizes = dataclasses.replace(base.model, d_vocab=asked.d_vocab, **model)
    found = dataclasses.replace(base, task=asked, model=sizes, **{**run, **changes})
    if found.policy == FreezeRows():
        found = dataclasses.replace(found, policy=FreezeRows(tuple(asked.unseen)))
    return found


def lemma_cells() -> list[FixedFeatures]:
    arms = LEMMA_ARMS.values()
    return [dataclasses.replace(arm, seed=seed) for arm in arms for seed in range(10, 20)]


def live_cells() -> list[Cell]:
    return [
        LiveCell("standard", logic_run(seed=seed, steps=1000), threads=2) for seed in range(10, 20)
    ]


def long_cells() -> list[Cell]:
    runs = [
        logic_run(arm="adamw_full", seed=s, steps=10_000, eval_every=500) for s in range(10, 15)
    ]
    return [Cell("adamw_full", run) for run in runs]


def logic_cells() -> list[Cell]:
    arms = ["untied", "adamw_full", "adamw_no_decay", "adam_l2", "sgd", "untied_adam_l2"]
    cells = [Cell("standard", logic_run(seed=seed)) for seed in range(10, 20)]
    return cells + [Cell(arm, logic_run(arm=arm, seed=s)) for arm in arms for s in range(10, 15)]


SIX = ("standard", "copy", "freeze", "reset", "freeze+copy", "reset+copy")
FIVE = range(10, 15)


def arms_cells() -> list[Cell]:
    """Arms by number of names, forgetting that stops half-way, a slower embedding, other depths."""
    four = ("standard", "copy", "freeze", "freeze+copy")
    others = ("reset_half+copy", "reset_half", "copy_slow", "standard_slow")
    pairs = [(1000, arm) for arm in (*SIX, *others)] + [(50, arm) for arm in four]
    pairs += [(9600, arm) for arm in (*four, "reset+copy")] + [(150, arm) for arm in four]
    tasks = [(arm, LogicConfig(n_seen=n)) for n, arm in pairs]
    tasks += [
        (arm, LogicConfig(depth, n_seen=n))
        for depth in (1, 3)
        for n in (1000, 50)
        for arm in ("standard", "freeze+copy")
    ]
    return [
        Cell(arm, logic_run(arm=arm, task=task, seed=seed)) for arm, task in tasks for seed in FIVE
    ]


def price_cells() -> list[Cell]:
    arms = ("standard", "freeze", "reset", "reset_half")
    cells = [Cell(arm, logic_run("text", arm, seed=seed)) for seed in FIVE for arm in arms]
    return cells + [Cell("refresh", logic_run("text", "refresh", seed=seed)) for seed in FIVE]


def horn_cells() -> list[Cell]:
    """One seed an arm: enough to see whether any begins to learn rules with two premises."""
    return [Cell(arm, logic_run("horn", arm, seed=10)) for arm in SIX]


Store = tuple[list[dict[str, Any]], dict[str, Tensor]]  # rows, and tensors by name


def run_cell(cell: Cell, device: str = "cpu") -> Store:
    """Train one cell; it resumes from its checkpoint after a kill. Rows: one per evaluated step."""
    checkpoint = results.SCRATCH / f"{config_hash(cell)}.safetensors"
    run = train(cell.run, device, checkpoint)
    checkpoint.unlink(missing_ok=True)
    return [{"arm": cell.arm, "seed": cell.run.seed, **row} for row in run.history], {}


def run_lemma(cell: FixedFeatures, device: str = "cpu") -> Store:
    """One run on fixed features; always on the CPU, in float64."""
    arm = next(n for n, a in LEMMA_ARMS.items() if a == dataclasses.replace(cell, seed=a.seed))
    return [{"arm": arm, "seed": cell.seed, **row} for row in train_on_fixed_features(cell)], {}


def run_live(cell: Cell, device: str = "cpu") -> Store:
    """Train one cell as a chapter does, on its number of threads."""
    assert isinstance(cell, LiveCell)
    torch.set_num_threads(cell.threads)
    rows, tensors = run_cell(cell, device)
    return [{"threads": cell.threads, **row} for row in rows], tensors


# depth, seen names -> steps between repairs of unseen rows, and between silencings of the copy head
PROBE_EVERY = {(2, 1000): 200, (2, 50): 400}
COSINES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)
FACTORS = (2.0, 1.5, 1.0, 0.75, 0.5, 0.35, 0.25, 0.1)


def run_arms(cell: Cell, device: str = "cpu") -> Store:
    """Train one cell in one go; where PROBE_EVERY says so also change the model, measure, change it back.

    Column `variant` says what was changed, and `level` by how much: `as trained`; where the embedding
    learns throughout, each repair of lib.repair.METHODS; with a copy head, `no copy head`; where it is
    frozen, at the end, `cosine` and `norm`. All models are tied: columns of W_U stand for both.
    """
    run, task = cell.run, cell.run.task
    assert isinstance(task, LogicConfig)
    head = {"arm": cell.arm, "n_seen": task.n_seen, "depth": task.depth, "seed": run.seed}
    rows: list[dict[str, Any]] = []

    def measure(step: int, model: Transformer, variant: str, level: float = math.nan) -> None:
        measured = evaluate(model, task, run.eval_problems, stream(run.seed, "test"))
        measured |= direct_parts(model, task, run.eval_problems, stream(run.seed, "direct"))
        kept = {name: value for name, value in measured.items() if not name.startswith("W_E")}
        rows.append({**head, "variant": variant, "level": level, "step": step, **kept})

    def observe(step: int, model: Transformer) -> None:
        measure(step, model, "as trained")
        every = PROBE_EVERY.get((task.depth, task.n_seen))
        if every is None or step % every:
            return
        if run.policy == Learn():
            for method in METHODS:
                draws = stream(run.seed, method, step)
                change = partial(
                    redraw,
                    seen=task.seen,
                    unseen=task.unseen,
                    method=method,
                    generator=draws,
                    embed_std=run.model.embed_std,
                )
                with replaced(model, change):
                    measure(step, model, method)
        if run.model.copy:
            with silenced_copy(model):
                measure(step, model, "no copy head")
        if run.policy == Freeze() and step == run.steps:
            for level in COSINES:
                with replaced(model, partial(collapse, rows=task.unseen, cosine=level)):
                    measure(step, model, "cosine", level)
            for level in FACTORS:
                with replaced(model, partial(scaled, rows=task.unseen, factor=level)):
                    measure(step, model, "norm", level)

    train(run, device, observe=observe)
    return rows, {}


def run_rows(cell: Cell, device: str = "cpu") -> Store:
    """Train one cell in one go and keep the name rows of W_U at every evaluated step.

    Tensors `seen` (the first 50 seen names) and `unseen`, both [steps, names, d_model] in half
    precision, and `step`.
    """
    task = cell.run.task
    ids = {"seen": list(task.seen[:50]), "unseen": list(task.unseen)}
    kept: dict[str, list[Tensor]] = {"seen": [], "unseen": [], "step": []}

    def observe(step: int, model: Transformer) -> None:
        kept["step"].append(torch.tensor(step))
        for group, rows in ids.items():
            kept[group].append(model.W_U.detach()[rows].cpu().half())

    run = train(cell.run, device, observe=observe)
    rows = [{"arm": cell.arm, "seed": cell.run.seed, **row} for row in run.history]
    return rows, {name: torch.stack(values) for name, values in kept.items()}
