"""Checks for the exercises of part II."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lib.exercises.attempt import attempt
from lib.generators import analogy, stream


def check_carries_over(
    carries_over: Callable[[dict[Any, Any], dict[Any, Any]], bool | None],
) -> str:
    """Part II, chapter 1: does a bijection keep all relations?"""
    for short_cut in (True, False):
        config = analogy.AnalogyConfig(entities=4, vocabulary=12, short_cut=short_cut)
        world = analogy.draw(config, stream(0, "exercise"))
        source, target = world.entity.tolist()
        relation = {(a, b): r for a, r, b in world.atomic.tolist()}
        F = dict(zip(source, target, strict=True))
        turned = dict(zip(source, target[1:] + target[:1], strict=True))
        swapped = F | {source[0]: F[source[1]], source[1]: F[source[0]]}
        strange = config.names.stop
        later = relation | {(target[2], target[0]): strange}
        sooner = relation | {(target[0], target[2]): strange}
        cases = (
            (
                relation,
                F,
                True,
                "this map keeps every relation. Compare r(F(a), F(b)) with r(a, b).",
            ),
            (
                relation,
                swapped,
                False,
                "here two partners are exchanged, and relations no longer agree.",
            ),
            (
                later,
                F,
                False,
                "one relation differs. A pair has two directions: look at (b, a) as well.",
            ),
            (sooner, F, False, "one relation differs, all others agree. Every pair counts."),
            (
                relation,
                turned,
                not short_cut,
                "this map turns a circle by one place. Another map than the one meant may keep them all."
                if not short_cut
                else "here each partner is moved on by one place, and relations no longer agree.",
            ),
        )
        for table, mapping, due, hint in cases:
            said, problem = attempt(carries_over, bool, dict(table), dict(mapping))
            if "KeyError" in problem:
                return (
                    f"{problem} Only pairs of different entities have a relation: leave a = b out."
                )
            if problem:
                return problem
            if said != due:
                return f"Not yet: {due} is right, yours says {said}: {hint}"
    return "Right: maps that keep all relations are told from those that miss a single one."


def check_sustained(sustained: Callable[[list[int], list[float]], int | None]) -> str:
    """Part II, chapter 2: the step from which a score stays at 0.9 or above to the end."""
    steps = [0, 10, 20, 30, 40]
    cases = (
        ([0.0, 0.5, 0.95, 0.97, 1.0], 20, "the score passes 0.9 at step 20 and stays."),
        ([0.0, 0.95, 0.5, 0.95, 1.0], 30, "that was the first hit. The score fell again after it."),
        ([0.0, 0.5, 0.9, 1.0, 1.0], 20, "a score of exactly 0.9 counts."),
        ([0.95, 1.0, 1.0, 0.95, 1.0], 0, "it is there from the first step on, which is step 0."),
        ([0.0, 0.5, 0.5, 0.5, 1.0], 40, "the last score alone is enough to begin."),
        ([0.0, 0.95, 1.0, 1.0, 0.5], None, "the score ends below 0.9, so nothing lasts."),
    )
    for scores, due, hint in cases:
        said, problem = attempt(sustained, float, list(steps), list(scores))
        if due is None:
            if not problem:
                return f"Not yet: {scores}: {said:g} instead of None: {hint}"
            if "returns nothing" not in problem:
                return problem
            continue
        if problem:
            return f"{problem} The scores were {scores}."
        if said != due:
            index = (
                "give the step, not its place in the list." if said == steps.index(due) else hint
            )
            return f"Not yet: {scores}: {said:g} instead of {due}: {index}"
    return "Right: six curves agree, with a dip, and with an end that falls."


def check_direction(
    direction: Callable[[torch.Tensor, list[tuple[int, int]], int], torch.Tensor | None],
) -> str:
    """Part II, chapter 5: the mean of W[t] - W[s] over known pairs without one of them."""
    W = torch.randn(12, 5, generator=stream(0, "exercise"), dtype=torch.double)
    pairs = [(0, 7), (3, 2), (5, 11), (8, 1)]
    for left_out in (3, 8, 4):  # 4 is no source: nothing is to be left out
        kept = [(s, t) for s, t in pairs if s != left_out]
        due = torch.stack([W[t] - W[s] for s, t in kept]).mean(dim=0)
        said, problem = attempt(direction, list, W.clone(), list(pairs), left_out)
        if problem:
            return problem.replace("return a list", "return a vector")
        said = torch.tensor([torch.as_tensor(x).tolist() for x in said]).double()
        if said.shape != due.shape:
            return f"Not yet: the shape is {list(said.shape)} instead of {list(due.shape)}: one vector."
        if not torch.allclose(said, due):
            everyone = torch.stack([W[t] - W[s] for s, t in pairs]).mean(dim=0)
            hint = "compare with the mean over W[t] - W[s] by hand, for two pairs."
            if torch.allclose(said, -due):
                hint = "it points from targets to sources. Subtract the source."
            elif torch.allclose(said, due * len(kept)):
                hint = "this is the sum. Divide by the number of pairs."
            elif torch.allclose(said, everyone):
                hint = f"source {left_out} has to be left out."
            elif torch.allclose(said, due * len(kept) / len(pairs)):
                hint = "the pair is left out of the sum and still counted in the mean."
            return f"Not yet: leaving out {left_out}: {hint}"
    return "Right: the direction agrees with three means worked out apart, the left-out pair too."
