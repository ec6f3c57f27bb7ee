"""A softmax classifier on features that do not change: all that the collapse lemma speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lib import geometry, theory
from lib.generators import stream

EVERY = 20  # steps between measurements


@dataclass(frozen=True)
class FixedFeatures:
    """The problem and who solves it. The first `never` labels never occur.

    Features have length sqrt(d), as LayerNorm without gain and bias leaves them; labels come from
    a random teacher. `optimiser` is sgd, adamw or adam_l2 (decay inside the gradient).
    """

    optimiser: str = "sgd"
    lr: float = 0.05
    decay: float = 0.01
    momentum: float = 0.0
    epsilon: float = 1e-8
    seed: int = 0
    steps: int = 2000
    d: int = 32
    vocab: int = 40
    never: int = 10
    features: int = 256


# With decay, lr x decay is the same for SGD and AdamW. Adam moves a coordinate by about lr, so its
# lr is smaller; with L2 inside the gradient the same product would drown the loss.
ARMS = {
    "sgd": FixedFeatures(),
    "sgd_no_decay": FixedFeatures(decay=0.0),
    "sgd_momentum": FixedFeatures(momentum=0.9),
    "adamw": FixedFeatures("adamw", lr=1e-3, decay=0.5),
    "adamw_no_decay": FixedFeatures("adamw", lr=1e-3, decay=0.0),
    "adamw_epsilon": FixedFeatures("adamw", lr=1e-3, decay=0.5, epsilon=1e-3),
    "adam_l2": FixedFeatures("adam_l2", lr=1e-3, decay=1e-3),
}


def train_on_fixed_features(problem: FixedFeatures) -> list[dict[str, Any]]:
    """Train in float64 and measure the never-occurring rows at every `EVERY`-th step.

    `distance` is the distance between rows over that at the start, `worst_step` the largest ratio
    of successive distances of any pair since the last measurement, `cosine` the mean over pairs, `mean_row`
    the length of the mean row, `p` the largest probability of a label that never occurs.
    """
    generator = stream(problem.seed, "fixed features")

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.double)

    h = draw(problem.features, problem.d)
    h = h * (problem.d**0.5 / h.norm(dim=1, keepdim=True))
    teacher = draw(problem.vocab - problem.never, problem.d)
    label = (h @ teacher.T).argmax(dim=1) + problem.never
    W = (0.25 * draw(problem.vocab, problem.d)).requires_grad_()
    optimiser = _optimiser(problem, W)

    def pairs() -> Tensor:
        return torch.pdist(W.detach()[: problem.never])

    first = before = pairs()
    worst, rows = 0.0, []
    for step in range(problem.steps + 1):
        logits = h @ W.T
        if step % EVERY == 0:
            never = W.detach()[: problem.never]
            rows.append(
                {
                    "step": step,
                    "distance": float(
                        pairs().square().mean().sqrt() / first.square().mean().sqrt()
                    ),
                    "worst_step": worst,
                    "bound": theory.remaining(problem.lr, problem.decay, step),
                    "cosine": geometry.mean_cosine(never),
                    "mean_row": float(never.mean(dim=0).norm()),
                    "p": float(logits.detach().softmax(dim=1)[:, : problem.never].max()),
                    "loss": float(F.cross_entropy(logits.detach(), label)),
                }
            )
            worst = 0.0
        optimiser.zero_grad()
        F.cross_entropy(logits, label).backward()
        optimiser.step()
        after = pairs()
        worst, before = max(worst, float((after / before).max())), after
    return rows


def _optimiser(problem: FixedFeatures, W: Tensor) -> torch.optim.Optimizer:
    lr, decay = problem.lr, problem.decay
    if problem.optimiser == "sgd":
        return torch.optim.SGD([W], lr=lr, weight_decay=decay, momentum=problem.momentum)
    kinds = {"adamw": torch.optim.AdamW, "adam_l2": torch.optim.Adam}
    if problem.optimiser not in kinds:
        raise ValueError(f"optimiser {problem.optimiser!r} is unknown: use sgd, adamw or adam_l2")
    return kinds[problem.optimiser]([W], lr=lr, weight_decay=decay, eps=problem.epsilon)
