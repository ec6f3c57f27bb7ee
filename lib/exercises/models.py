"""Checks for the exercises on real language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lib.diagnosis import diagnose
from lib.exercises.attempt import attempt
from lib.generators import stream


class _Scores(list[float]):
    """What the reader gives back, a tensor or a list, as numbers."""

    def __init__(self, said: Any) -> None:
        super().__init__(torch.as_tensor(said).flatten().tolist())


def check_scores_of_known(answer: Callable[[Tensor, Sequence[int]], Any]) -> str:
    """Unseen 9: scores of known unused rows, each left out of its own direction."""
    draws = stream(0, "exercise scores")
    W = torch.randn(40, 6, generator=draws) + 1
    known = [3, 7, 8, 21]
    W[known] = W[known] / 2 + torch.tensor([4.0, 0, 0, 0, -4.0, 0])
    W = W * (0.5 + torch.rand(40, 1, generator=draws))
    said, wrong = attempt(answer, _Scores, W.clone(), list(known))
    if wrong:
        return wrong.replace("_Scores", "tensor or a list of numbers")
    if len(said) != len(known):
        return f"Not yet: {len(said)} scores for {len(known)} rows. Give one for each known row."
    right = diagnose(W, {"known": known}).score[known]
    if torch.allclose(torch.tensor(said), right, atol=1e-4):
        return f"Right: {len(known)} scores agree, from {right.min():.2f} to {right.max():.2f}."
    rest = [i for i in range(40) if i not in known]
    for why, units, inside, centre in (
        ("each row still bears witness for itself. Take it out of the sum.", True, True, rest),
        ("rows count by length too. Scale them to length one first.", False, False, rest),
        ("the mean is taken over all rows. Leave the known ones out.", True, False, range(40)),
    ):
        if torch.allclose(
            torch.tensor(said), _scores(W, known, units, inside, list(centre)), atol=1e-4
        ):
            return f"Not yet: {why}"
    return "Not yet: other numbers. Do it in order: length one, mean of the others away, length one, then directions."


def _scores(W: Tensor, known: list[int], units: bool, inside: bool, centre: list[int]) -> Tensor:
    x = W / W.norm(dim=1, keepdim=True) if units else W
    x = x[known] - x[centre].mean(dim=0)
    x = x / x.norm(dim=1, keepdim=True)
    others = x.sum(dim=0) - (0 if inside else x)
    return (x * others).sum(dim=1) / others.norm(dim=-1)


# pairs, whether one vector can do it, and why not
CASES: tuple[tuple[tuple[tuple[str, str], ...], bool, str], ...] = (
    ((("cat", "cats"), ("dog", "dogs"), ("pig", "pigs")), True, ""),
    ((("hot", "cold"), ("cold", "hot")), False, "f and back again is 2 f, and must be zero."),
    ((("lemon", "yellow"), ("sun", "yellow")), False, "two sources would have one row."),
    ((("two", "deux"), ("two", "a pair")), False, "two targets would have one row."),
    ((("one", "two"), ("two", "three"), ("three", "four")), True, ""),
    ((("a", "b"), ("b", "c"), ("c", "a")), False, "after three steps one is back: 3 f is zero."),
    ((("a", "b"), ("b", "c"), ("a", "c")), False, "from a to c f and 2 f would lead."),
    (
        (("a", "b"), ("b", "c"), ("d", "c")),
        False,
        "b and d would both be one step before c: one row.",
    ),
    ((("a", "a"),), False, "f would be zero."),
    ((("cat", "cats"), ("hot", "cold"), ("cold", "hot")), False, "one couple spoils it for all."),
    ((), True, ""),
)


def check_can_be_translation(answer: Callable[[list[tuple[str, str]]], bool | None]) -> str:
    """Analogy 7: whether a relation can be one vector with different rows for different words."""
    for pairs, right, why in CASES:
        said, wrong = attempt(answer, bool, list(pairs))
        if wrong:
            return wrong
        if said != right:
            shown = ", ".join(f"{s} -> {t}" for s, t in pairs) or "no pairs"
            if right:
                return f"Not yet: for {shown} it is possible. Nothing there contradicts itself."
            return f"Not yet: for {shown} it is impossible: {why}"
    return f"Right: {len(CASES)} relations, possible ones and others."
