"""Checks for the exercises of part I."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lib import geometry, theory
from lib.evaluation import KINDS, kinds_written
from lib.exercises.attempt import attempt
from lib.generators import logic, stream


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
            said, problem = attempt(kind, str, written, tokens.tolist(), right, task)
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
    value, problem = attempt(mean_cosine, float, x)
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
        said, problem = attempt(steps_until, float, share, lr, decay)
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


def check_copy_logits(copy_logits: Callable[[Tensor, Tensor, Tensor, float], Tensor | None]) -> str:
    """Chapter 5: what a copy head adds to each logit of a tied model at one position."""
    draws = stream(0, "exercise")
    W, gate = torch.randn(9, 4, generator=draws), 1.5
    tokens = torch.tensor([3, 7, 3, 0, 5])
    pattern = torch.randn(5, generator=draws).softmax(dim=0)
    value, problem = attempt(copy_logits, Tensor, pattern, tokens, W, gate)
    if problem:
        return problem
    mixed = pattern @ W[tokens]
    right = gate * (mixed @ W.T)
    counts = torch.zeros(len(W)).index_add(0, tokens, pattern)
    likely = (
        (mixed @ W.T, "the gate is missing."),
        (gate * mixed, "that is what the head adds to the stream. W_U still has to read it."),
        (
            gate * counts,
            "attention is not a logit. The embeddings are added, then every row of W is compared with the sum.",
        ),
        (counts, "attention is not a logit. Mix the embeddings, then compare with every row of W."),
        (
            gate * counts * W.square().sum(1),
            "each token gets its own square only. Rows are not orthogonal: add what the other tokens give.",
        ),
        (
            gate * (W[tokens[pattern.argmax()]] @ W.T),
            "the head reads all positions, in shares, not only the one it looks at most.",
        ),
        (
            gate * (W[tokens].sum(0) @ W.T),
            "each position counts by its attention. Weight the embeddings with the pattern.",
        ),
    )
    if value.shape == right.shape and torch.allclose(value, right, atol=1e-4):
        return (
            "Right: nine logits agree. A token that was not read gets one too, from dot products."
        )
    for wrong, reason in likely:
        if value.shape == wrong.shape and torch.allclose(value, wrong, atol=1e-4):
            return f"Not yet: {reason}"
    if value.shape != right.shape:
        return (
            f"Not yet: the shape is {list(value.shape)}. W has {len(W)} rows, so {len(W)} logits."
        )
    off = float((value - right).abs().max())
    return f"Not yet: off by up to {off:.2f}. Mix embeddings by attention, times gate, times W."


def check_draws(draws: Callable[[Tensor, int, torch.Generator], Tensor | None]) -> str:
    """Chapter 7: draw rows with the mean and covariance of given rows."""
    generator = stream(0, "exercise")
    mixing = torch.tensor([[2.0, 0, 0], [1.5, 0.5, 0], [-1, 0.3, 0.2]])
    x = torch.randn(500, 3, generator=generator) @ mixing.T + torch.tensor([1.0, -2.0, 3.0])
    n = 20_000
    new, problem = attempt(draws, torch.Tensor, x, n, stream(1, "exercise"))
    if problem:
        return problem
    if tuple(new.shape) != (n, 3):
        return (
            f"Not yet: asked for {n} draws of 3 numbers, got a tensor of shape {tuple(new.shape)}."
        )
    if len(new.unique(dim=0)) < n // 2:
        return "Not yet: the draws repeat themselves. Draw new rows; do not pick old ones."
    cov, got, off = torch.cov(x.T), torch.cov(new.T), new.mean(dim=0) - x.mean(dim=0)
    L = torch.linalg.cholesky(cov)

    def near(want: Tensor) -> bool:
        return float((got - want).norm() / want.norm()) < 0.1

    if float(off.norm()) > 0.1:
        return f"Not yet: the mean is off by {float(off.norm()):.2f}. Add the mean of the rows at the end."
    if near(cov):
        return "Right: mean and covariance are those of the rows."
    likely = (
        (
            cov.diag().diag(),
            "each coordinate was drawn on its own. The covariance is more than its diagonal.",
        ),
        (L.T @ L, "the factor stands on the wrong side. For rows z, draw z @ L.T."),
        (
            cov @ cov,
            "the covariance itself was used as factor. Take a square root, such as Cholesky's.",
        ),
        (torch.eye(3), "the draws were not mixed. Multiply them by a factor of the covariance."),
    )
    for wrong, reason in likely:
        if near(wrong):
            return f"Not yet: the mean is right, the covariance is not: {reason}"
    return "Not yet: the mean is right, the covariance is not. What is the covariance of L z?"


def check_perplexity(
    perplexity: Callable[[Sequence[float], Sequence[int]], float | None],
) -> str:
    """Chapter 8: one perplexity for files of different lengths, from their mean losses in nats."""
    losses, tokens = [1.0, 2.0, 4.0], [500, 300, 200]
    value, problem = attempt(perplexity, float, losses, tokens)
    if problem:
        return problem
    n, nats = sum(tokens), sum(loss * k for loss, k in zip(losses, tokens, strict=True))
    right = math.exp(nats / n)
    each = [math.exp(loss) for loss in losses]
    likely = (
        (nats / n, "that is the loss. Its exponential is the perplexity."),
        (math.exp(sum(losses) / 3), "a long file counts more: weigh each loss by its tokens."),
        (
            sum(p * k for p, k in zip(each, tokens, strict=True)) / n,
            "average the losses, not the perplexities. The exponential comes last.",
        ),
        (sum(each) / 3, "average losses, weighed by tokens; the exponential comes last."),
        (2 ** (nats / n), "nats belong to e, bits to 2. The losses are in nats."),
        (math.exp(min(nats, 700)), "divide by the number of all tokens."),
    )
    for wrong, reason in likely:
        if math.isclose(value, wrong, rel_tol=1e-4):
            return f"Not yet: {value:.4g} instead of {right:.4g}: {reason}"
    if not math.isclose(value, right, rel_tol=1e-4):
        return (
            f"Not yet: {value:.4g} instead of {right:.4g}. One file alone, of any length, should give "
            "the exponential of its loss."
        )
    alone, problem = attempt(perplexity, float, [0.5, 0.5], [7, 1])
    if problem or not math.isclose(alone, math.exp(0.5), rel_tol=1e-4):
        return problem or (
            f"Not yet: two files with loss 0.5 each give {alone:.4g} instead of {math.exp(0.5):.4g}."
        )
    return f"Right: {right:.2f}. Every token counts once, and the exponential comes last."


def check_rows_met(rows_met: Callable[[int, int, int, int | None], int | None]) -> str:
    """Chapter 6: different rows that seen names have over a run with `Reset(every, until)`."""
    cases = ((50, 250, 100, None), (1000, 2400, 100, None), (1000, 2400, 100, 1200))
    for names, steps, every, until in cases:
        said, problem = attempt(rows_met, float, names, steps, every, until)
        if problem:
            return problem
        throughout = len(range(every, steps, every))
        resets = throughout if until is None else len(range(every, until + 1, every))
        right = names * (1 + resets)
        one_less = (
            "the first draw counts too: it needs no reset."
            if until is None
            else "one draw is missing. At step `until` itself rows are still redrawn."
        )
        likely = (
            (right - names, one_less),
            (1 + resets, "that is the number of draws. Each gives every seen name a new row."),
            (names * (1 + throughout), "after step `until` nothing is redrawn."),
            (names * (1 + steps // every), "the last step is steps - 1. No reset comes after it."),
        )
        if said != right:
            reasons = (reason for wrong, reason in likely if said == wrong)
            why = next(reasons, "list the steps 1, 2, ... at which `Reset` draws, and count.")
            case = f"{names} names, {steps} steps, every {every}, until {until}"
            return f"Not yet: {case}: {said:g} instead of {right}: {why}"
    return "Right: three runs, with the first draw and without a reset after the end."
