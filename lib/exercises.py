"""Checks for the exercises: call one on your own function, and it says what is probably wrong.

A check returns a sentence. It begins with "Right" when the function passes, with "Not yet" else; it
never raises for a wrong answer, so that a chapter runs from top to bottom with nothing solved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lib import geometry, theory
from lib.evaluation import KINDS, kinds_written
from lib.generators import logic, stream


def _attempt(answer: Callable[..., Any], kind: type, *args: Any) -> tuple[Any, str]:
    """What the reader's function returns, as a `kind`, and what is wrong with it (empty if nothing)."""
    try:
        said = answer(*args)
        if said is None:
            return None, f"Not yet: the function returns nothing. Let it return a {kind.__name__}."
        return kind(said), ""
    except Exception as error:  # whatever a reader's code raises is the answer
        return None, f"Not yet: {type(error).__name__}: {error}."


def check_solve(solve: Callable[[str], str | None]) -> str:
    """Chapter 1: forward chaining on the words of a prompt, the answer in words."""
    for depth in (1, 2, 3):
        task = logic.LogicConfig(depth=depth, n_seen=50)
        for tokens in logic.sample(task, 50, stream(depth, "exercise")).tokens:
            prompt, right = logic.decode(task, tokens).split(" ANS ")
            prompt += " ANS"
            try:
                said = solve(prompt)
            except Exception as error:  # whatever a reader's code raises is the answer
                return f"Not yet: {type(error).__name__} ({error}) on the prompt '{prompt}'."
            if said is None:
                return (
                    "Not yet: the function returns nothing. Let it return the answer as one string."
                )
            if said != right:
                why = _why_not(said.split(), right.split())
                return f"Not yet: {why} Prompt: '{prompt}'. Yours: '{said}'. Right: '{right}'."
    return "Right: 150 problems of depth 1 to 3 agree with the oracle."


def _why_not(said: list[str], right: list[str]) -> str:
    if said[:-1] == right[:-1]:
        return (
            "the names are right and the verdict is not. True means that the query is among them."
        )
    if said == right[1:]:
        return "the fact itself is missing. The answer starts with it."
    if said[:1] == right[:1] and len(said) < len(right):
        return "the chain stops too early. Go on until no rule applies."
    if said[:-1] and said[:-1] == right[: len(said) - 1]:
        return "the chain goes on too far or ends in the wrong place."
    return "a wrong name is derived. Follow the rule whose left side is the last name."


def check_kind(kind: Callable[[int, list[int], int, logic.LogicConfig], str | None]) -> str:
    """Chapter 2: say what stands in the place of an unseen name; see `evaluation.KINDS`."""
    task = logic.LogicConfig(depth=1, n_seen=6, n_unseen=6)
    batch = logic.sample(task, 20, stream(0, "exercise"), "query_unseen", True)
    for tokens in batch.tokens:
        right = int(tokens[-2])
        for written in range(task.d_vocab):
            answer = torch.stack([tokens[-3], torch.tensor(written), tokens[-1]])
            shares = kinds_written(answer[None], tokens[None], task)
            due = next(name for name in KINDS if shares[name] == 1)
            said, problem = _attempt(kind, str, written, tokens.tolist(), right, task)
            if problem:
                return f"{problem} It should be one of {', '.join(KINDS)}."
            if said != due:
                hint = {
                    "right": "the due name itself was written. Ask for that first.",
                    "other_unseen": "an unseen name that is not the due one. Compare with task.unseen.",
                    "seen_here": "a seen name that stands in the problem. Look for it in the tokens.",
                    "seen_elsewhere": "a seen name that does not stand in the problem.",
                    "special": "ids below task.seen.start are special tokens, not names.",
                }[due]
                return f"Not yet: token {written} is '{due}', yours says {said!r}: {hint}"
    return f"Right: {20 * task.d_vocab} cases agree."


def check_mean_cosine(mean_cosine: Callable[[Tensor], float | None]) -> str:
    """Chapter 3: the mean cosine over all pairs of different rows."""
    x = torch.randn(30, 8, generator=stream(0, "exercise")) + 0.4
    value, problem = _attempt(mean_cosine, float, x)
    if problem:
        return problem
    right = geometry.mean_cosine(x)
    unit = x / x.norm(dim=1, keepdim=True)
    pairs, cosines = 30 * 29, unit @ unit.T
    likely = (
        (cosines.mean(), "each row was compared with itself as well. Leave the diagonal out."),
        ((cosines.sum() - 30) / 900, "divide by n (n - 1), the number of pairs of different rows."),
        (((x @ x.T).sum() - x.square().sum()) / pairs, "divide each row by its length first."),
        ((cosines.abs().sum() - 30) / pairs, "the sign got lost. Opposite rows have cosine -1."),
    )
    if abs(value - right) < 1e-4:
        return "Right: the same as forming every pair."
    for wrong, reason in likely:
        if abs(value - float(wrong)) < 1e-4:
            return f"Not yet: {value:.3f} instead of {right:.3f}: {reason}"
    return f"Not yet: {value:.3f} instead of {right:.3f}. Two equal rows should give 1, two orthogonal ones 0."


def check_steps_until(steps_until: Callable[[float, float, float], int | None]) -> str:
    """Chapter 4: the smallest t with (1 - lr x decay)^t <= share."""
    for share, lr, decay in ((0.5, 0.1, 0.1), (0.01, 3e-3, 0.1), (0.9, 0.5, 0.4)):
        said, problem = _attempt(steps_until, float, share, lr, decay)
        if problem:
            return problem
        left = [theory.remaining(lr, decay, int(said) - back) for back in (0, 1)]
        case = f"share {share}, lr {lr}, decay {decay}: yours is {said:g}"
        if said != int(said):
            return f"Not yet: {case}. Steps are whole. Round up."
        if left[0] > share:
            short = theory.remaining(lr, decay, int(said) + 1) <= share
            hint = "Round up." if short else "The factor of one step is 1 - lr x decay."
            return f"Not yet: {case}, and {left[0]:.3f} is left. {hint}"
        if left[1] <= share:
            return f"Not yet: {case}. One step fewer is enough. Round up only once."
    return "Right: in three settings your number of steps is enough, and one fewer is not."
