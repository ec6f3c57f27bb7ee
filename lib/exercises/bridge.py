"""Checks for the exercises of part III."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lib.exercises.attempt import attempt
from lib.generators import stream


def check_mass_of_names(mass: Callable[[Tensor, Sequence[int]], float]) -> str:
    """Part III, chapter 1: the mean probability, over prompts, that the answer is one of some names."""
    logits = torch.randn(5, 12, generator=stream(0, "exercise mass"))
    names = [1, 4, 5, 10]
    p = logits.softmax(dim=1)
    due = float(p[:, names].sum(dim=1).mean())
    said, wrong = attempt(mass, float, logits.clone(), list(names))
    if wrong:
        return wrong
    if abs(said - due) < 1e-4:
        return f"Right: {due:.3f} of the probability goes to these names."
    for hint, value in (
        ("this is the mean over names. Sum over names, then take the mean over prompts.", due / 4),
        ("this is the sum over prompts. Take the mean.", due * 5),
        (
            "the softmax runs over prompts. Let it run over tokens.",
            float(logits.softmax(dim=0)[:, names].sum(dim=1).mean()),
        ),
        ("the softmax sees these names only. Take it over all tokens first.", 1.0),
    ):
        if abs(said - value) < 1e-4:
            return f"Not yet: {said:.3f} instead of {due:.3f}: {hint}"
    return f"Not yet: {said:.3f} instead of {due:.3f}."


def check_rows_to_refresh(rows: Callable[[Sequence[Tensor], int], set[int]]) -> str:
    """Part III, chapter 2: the rows that no batch so far has held."""
    draws = stream(0, "exercise rows")
    batches = [torch.randint(12, (2, 3), generator=draws) for _ in range(3)]
    due = set(range(15)) - set(torch.cat(batches).flatten().tolist())
    said, wrong = attempt(rows, set, [batch.clone() for batch in batches], 15)
    if wrong:
        return wrong
    said = {int(row) for row in said}
    if said == due:
        return f"Right: {len(due)} of 15 rows have never been in a batch."
    hint = "list the tokens of all batches by hand."
    if said == set(range(15)) - due:
        hint = "these are the rows that are in use. The other ones are wanted."
    elif said == set(range(15)) - set(batches[-1].flatten().tolist()):
        hint = "only the last batch is looked at. A row that was used before would lose all it has learned."
    elif said == {row for row in due if row <= max(int(batch.max()) for batch in batches)}:
        hint = "rows beyond the largest token are missing. Nothing has used them either."
    return f"Not yet: {sorted(said)} instead of {sorted(due)}: {hint}"
