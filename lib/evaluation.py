"""What a model gets right, what it writes instead, and how its name rows lie.

Answers are scored with the right answer fed in (teacher forcing) and the plain argmax over the whole
vocabulary. For the whole answer this equals greedy decoding: both are right exactly when every
position is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lib import geometry
from lib.generators import horn, logic, text
from lib.models.transformer import Transformer

HALVES = {"true": True, "false": False}
Logic = logic.LogicConfig | horn.HornConfig
Task = Logic | text.TextConfig
KINDS = ("right", "other_unseen", "seen_here", "seen_elsewhere", "special")


@torch.no_grad()
def evaluate(
    model: Transformer, task: Task, problems: int, generator: torch.Generator
) -> dict[str, float]:
    """One flat row of measures: accuracies, what is written for unseen names, geometry of rows."""
    if isinstance(task, text.TextConfig):
        return evaluate_text(model, task, problems, generator)
    row: dict[str, float] = {}
    for split in logic.SPLITS:
        for half, verdict in HALVES.items():
            batch = problems_of(task, problems, generator, split, verdict)
            written = predict(model, batch.tokens, task.answer_length)
            for measure, value in scores(written, batch.tokens).items():
                row[f"{measure}_{split}_{half}"] = value
            if split != "seen" and verdict:
                for kind, share in kinds_written(written, batch.tokens, task).items():
                    row[f"writes_{kind}_{split}"] = share
    return row | row_geometry(model, task)


def problems_of(
    task: Logic, n: int, generator: torch.Generator, split: str, verdict: bool | None = None
) -> logic.Problems:
    """`n` problems from the sampler that belongs to the task."""
    if isinstance(task, horn.HornConfig):
        return horn.sample(task, n, generator, split, verdict)
    return logic.sample(task, n, generator, split, verdict)


INDUCTION = 12  # different tokens that are shown once and begun again


@torch.no_grad()
def evaluate_text(
    model: Transformer, task: text.TextConfig, problems: int, generator: torch.Generator
) -> dict[str, float]:
    """Cross-entropy in nats a token on unseen files, induction, geometry of rows.

    `induction_seen` and `induction_unseen`: 12 different random tokens, then the same again; the share
    of the repeated ones, from the second on, that the model predicts (plain argmax).
    """
    row, device = {}, model.W_E.device
    for part in ("validation", "test"):
        losses = [
            answer_loss(model, tokens.to(device), task.context).item()
            for tokens in text.spread(task, problems, part).tokens.split(64)
        ]
        row[f"loss_{part}"] = sum(losses) / len(losses)
    for group in ("seen", "unseen"):
        tokens = text.repeated(getattr(task, group), INDUCTION, problems, generator)
        written = predict(model, tokens, INDUCTION - 1)
        row[f"induction_{group}"] = float((written == tokens[:, 1 - INDUCTION :]).float().mean())
    return row | row_geometry(model, task)


def answer_loss(model: Transformer, tokens: Tensor, answer_length: int) -> Float[Tensor, ""]:
    """Mean cross-entropy over the last `answer_length` tokens; the prompt is not trained on."""
    n = answer_length
    logits = model(tokens[:, :-1], last=n)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, -n:].flatten())


def predict(
    model: Transformer, tokens: Int[Tensor, "problems tokens"], answer_length: int
) -> Int[Tensor, "problems answer"]:
    """The argmax at each answer position, the right answer so far being given."""
    tokens = tokens.to(model.W_E.device)
    return model(tokens[:, :-1], last=answer_length).argmax(dim=-1).cpu()


def greedy(
    model: Transformer, tokens: Int[Tensor, "problems tokens"], answer_length: int
) -> Int[Tensor, "problems answer"]:
    """What the model writes on its own, token by token, after the prompt."""
    text = tokens[:, :-answer_length].to(model.W_E.device)
    with torch.no_grad():
        for _ in range(answer_length):
            text = torch.cat([text, model(text, last=1).argmax(dim=-1)], dim=1)
    return text[:, -answer_length:].cpu()


def scores(
    written: Int[Tensor, "problems answer"], tokens: Int[Tensor, "problems tokens"]
) -> dict[str, float]:
    """Shares of problems with all derived names right, the verdict right, the whole answer right."""
    right = written == tokens[:, -written.shape[1] :]
    chain, verdict = right[:, :-1].all(dim=1), right[:, -1]
    parts = {"chain": chain, "verdict": verdict, "whole": chain & verdict}
    return {name: float(part.float().mean()) for name, part in parts.items()}


def kinds_written(
    written: Int[Tensor, "problems answer"],
    tokens: Int[Tensor, "problems tokens"],
    task: Logic,
) -> dict[str, float]:
    """Where an unseen name was due: the share of answers of each kind; the shares add up to 1.

    `right`; `other_unseen`, an unseen name but not the due one; `seen_here`, a seen name of the
    problem; `seen_elsewhere`, any other seen name; `special`, T, F or another special token.
    Raises ValueError when no unseen name was due.
    """
    answer = tokens[:, -written.shape[1] :]
    due = answer >= task.unseen.start
    if not due.any():
        raise ValueError("no unseen name stands in these answers: use a split with unseen names")
    got, wanted = written[due], answer[due]
    here = (got[:, None] == tokens[due.nonzero()[:, 0]]).any(dim=1)
    special, unseen = got < task.seen.start, got >= task.unseen.start
    seen = ~special & ~unseen
    kind = (got == wanted, unseen & (got != wanted), seen & here, seen & ~here, special)
    return {name: float(share.float().mean()) for name, share in zip(KINDS, kind, strict=True)}


@torch.no_grad()
def direct_parts(
    model: Transformer, task: Logic, problems: int, generator: torch.Generator
) -> dict[str, float]:
    """Direct logit attribution of names that are due, True half: who writes them, the stream or the
    copy head?

    Logits are the sum of both parts times W_U, so the split is exact. A part's share is what it adds
    to the due name's logit minus what it adds to the mean logit. Where only the query is unseen, only
    its position counts.
    """
    row = {}
    W_U = model.W_U - model.W_U.mean(dim=0)
    for split in logic.SPLITS:
        tokens = problems_of(task, problems, generator, split, True).tokens.to(W_U.device)
        answer = tokens[:, -task.answer_length : -1]
        parts = model.run(tokens[:, :-1], ["final", *(["copy.out"] if model.copy else [])])
        counts = answer >= (task.unseen.start if split == "query_unseen" else 0)
        for name, part in (("stream", parts["final"]), ("copy", parts.get("copy.out"))):
            added = 0.0
            if part is not None:
                written = part[:, -task.answer_length : -1]
                added = float((written * W_U[answer]).sum(-1)[counts].mean())
            row[f"direct_{name}_{split}"] = added
    return row


def row_geometry(model: Transformer, task: Task) -> dict[str, float]:
    """Cosine, norm, individual part and effective rank of seen and unseen rows of each matrix."""
    row = {}
    for matrix in ("W_E", "W_U"):
        weights = getattr(model, matrix).detach().cpu()
        for group in ("seen", "unseen"):
            x = weights[list(getattr(task, group))]
            name = f"{matrix}_{group}"
            row[f"{name}_cosine"] = geometry.mean_cosine(x)
            row[f"{name}_cosine_median"] = geometry.cosine_quantiles(x, (0.5,))[0]
            row[f"{name}_norm"] = float(geometry.norms(x).mean())
            row[f"{name}_individual"] = float(geometry.norms(geometry.individual_part(x)).mean())
            row[f"{name}_effective_rank"] = geometry.effective_rank(x)
    return row
