"""Checks for the exercises of part II."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

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


def check_lead(lead: Callable[[Tensor, Tensor], float | Tensor]) -> str:
    """Part II, chapter 4: energy of mismatched pairs minus that of matching pairs."""
    draws = stream(0, "exercise")
    A, noise = (torch.randn(7, 5, generator=draws, dtype=torch.double) for _ in range(2))
    B = A + 0.7 * noise
    A, B = 1.5 * A, B * torch.linspace(0.5, 2, 7, dtype=torch.double)[:, None]
    unit = normalize(A, dim=1), normalize(B, dim=1)

    def parts(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distances of all pairs, their diagonal's mean, the mean of the rest."""
        squared = (a[:, None] - b[None]).square().sum(2)
        off = ~torch.eye(len(a), dtype=torch.bool)
        return squared, squared.diagonal().mean(), squared[off].mean()

    squared, near, far = parts(*unit)
    due = float(far - near)
    raw, raw_near, raw_far = parts(A, B)
    neighbour = squared[torch.arange(7), torch.arange(7).roll(-1)].mean()
    distance = squared.sqrt()
    rest = distance[~torch.eye(7, dtype=torch.bool)].mean()
    likely = (
        (-due, "the sign is turned. Mismatched minus matching, so that alignment is positive."),
        (squared.mean() - near, "i = j is among your mismatched pairs. Leave the diagonal out."),
        (raw_far - raw_near, "scale each row to length one first."),
        (raw.mean() - raw_near, "scale each row to length one first, and leave i = j out."),
        (due / 2, "cosines alone give half of it: an edge costs 2 - 2 cos."),
        (-due / 2, "a cosine is large where an energy is small: an edge costs 2 - 2 cos."),
        (rest - distance.diagonal().mean(), "square the distances before you take the mean."),
        (neighbour - near, "you take one other partner for each entity. Take all of them."),
        (far, "that is the energy of mismatched pairs. Subtract that of the matching ones."),
        (near, "that is the energy of matching pairs. Compare it with mismatched ones."),
        (near / far, "that is a ratio. Subtract."),
        (far / near, "that is a ratio. Subtract."),
    )
    said, problem = attempt(lead, float, A.clone(), B.clone())
    if problem:
        return problem
    if abs(said - due) > 1e-4:
        hint = next((h for value, h in likely if abs(said - float(value)) < 1e-4), None)
        return f"Not yet: {said:.4f} instead of {due:.4f}" + (f": {hint}" if hint else ".")
    same, problem = attempt(lead, float, A[:1].expand(4, -1).clone(), B[:1].expand(4, -1).clone())
    if problem:
        return problem
    if abs(same) > 1e-4:
        return (
            f"Not yet: where all rows of a category are one, no pair leads, yours says {same:.4f}."
        )
    return "Right: seven pairs agree, and rows that are all alike have no lead."


def check_ends(ends: Callable[[list[tuple[int, int, int]], int], set[int] | None]) -> str:
    """Part II, chapter 3: where a composition with a given last relation may end."""
    config = analogy.AnalogyConfig(entities=4, vocabulary=12)
    facts = analogy.draw(config, stream(0, "exercise")).atomic.tolist()
    more = facts + [[facts[0][2], facts[0][1], facts[1][2]]]  # a relation that joins one pair more
    for listed, relation in ((facts, facts[0][1]), (facts, facts[5][1]), (more, facts[0][1])):
        due = {b for _, r, b in listed if r == relation}
        said, problem = attempt(ends, set, [tuple(fact) for fact in listed], relation)
        if problem:
            return problem
        if said != due:
            hint = "list the facts with this relation by hand, in both categories."
            if said == {a for a, r, _ in listed if r == relation}:
                hint = (
                    "these are the facts' first entities. A composition ends where the arrow ends."
                )
            elif said == {b for _, _, b in listed}:
                hint = "these are all ends, whatever the relation."
            elif said < due:
                hint = "some are missing: the relation occurs in both categories."
            return f"Not yet: {sorted(map(str, said))} instead of {sorted(map(str, due))}: {hint}"
    return "Right: three lists of facts agree. Mind how short the answer is."


def check_best_share(
    best_share: Callable[[torch.Tensor, torch.Tensor, list[torch.Tensor]], float | None],
) -> str:
    """Part II, chapter 6: the share of relations that the best of several maps keeps."""
    n = 4
    maps = [torch.tensor(p) for p in itertools.permutations(range(n))]
    off = ~torch.eye(n, dtype=torch.bool)
    for noise, some in ((0.0, maps), (0.5, maps), (0.5, maps[1:9])):
        config = analogy.AnalogyConfig(entities=n, vocabulary=20, noise=noise)
        first, second = analogy.draw(config, stream(1, "exercise")).relation
        shares = [float(((second[p][:, p] == first) & off).sum() / off.sum()) for p in some]
        said, problem = attempt(best_share, float, first.clone(), second.clone(), list(some))
        if problem:
            return problem
        if abs(said - max(shares)) > 1e-6:
            diagonal = max(float((second[p][:, p] == first).float().mean()) for p in some)
            hint = "for one map, count pairs by hand: permute rows and columns of `second`."
            if abs(said - diagonal) < 1e-6:
                hint = "pairs (a, a) are counted as well. They have no relation."
            elif abs(said - max(shares) * off.sum().item()) < 1e-6:
                hint = "this is the number of pairs. Divide by how many there are."
            elif abs(said - shares[0]) < 1e-6 or abs(said - sum(shares) / len(shares)) < 1e-6:
                hint = "take the best of all maps."
            return f"Not yet: {said:.3f} instead of {max(shares):.3f}: {hint}"
    return "Right: with a perfect copy, a bad one, and when the true map is not on offer."
