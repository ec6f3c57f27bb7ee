"""Every sweep of the book by name, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lib import analogy_sweeps as analogies
from lib import bridge_sweeps as bridge
from lib import experiments as logic
from lib import model_sweeps as models
from lib import results
from lib.configuration import nearest
from lib.relation_sweeps import RELATION_SWEEPS

# experiment -> cells, and how one is run: rows, and tensors by name
SWEEPS: dict[str, tuple[Callable[[], list[Any]], Callable[[Any, str], tuple[Any, Any]]]] = {
    "logic": (logic.logic_cells, logic.run_cell),
    "lemma": (logic.lemma_cells, logic.run_lemma),
    "logic_live": (logic.live_cells, logic.run_live),
    "logic_long": (logic.long_cells, logic.run_rows),
    "arms": (logic.arms_cells, logic.run_arms),
    "price": (logic.price_cells, logic.run_cell),
    "horn": (logic.horn_cells, logic.run_cell),
    "dynamics": (analogies.dynamics_cells, analogies.run_dynamics),
    "sensitivity": (analogies.sensitivity_cells, analogies.run_sensitivity),
    "mechanism": (analogies.mechanism_cells, analogies.run_mechanism),
    "token_rows": (models.row_cells, models.run_rows_of_tokens),
    "induction": (models.induction_cells, models.run_induction),
    "in_context": (models.in_context_cells, models.run_in_context),
    **RELATION_SWEEPS,
    "teaching": (models.teaching_cells, models.run_teaching),
    "tuning": (models.tuning_cells, models.run_tuning),
    "cures": (bridge.cures_cells, bridge.run_cures),
    "refresh_choice": (bridge.choice_cells, logic.run_cell),
    "refresh": (bridge.refresh_cells, logic.run_arms),
}


def sweep(name: str, device: str = "cpu", shard: tuple[int, int] = (0, 1)) -> int:
    """Run what is missing of a sweep: cells i, i + n, i + 2n, ... for shard (i, n). Returns their number.

    Start one process a shard, one a core. A killed process goes on where it was.
    """
    nearest("sweep", name, SWEEPS)
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"shard {index}/{count}: the index runs from 0 to {count - 1}")
    torch.set_num_threads(1)
    cells, run = SWEEPS[name]
    mine = cells()[index::count]
    for cell in mine:
        results.load_or_run(name, cell, lambda c: run(c, device), device)
    return len(mine)
