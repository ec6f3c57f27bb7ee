"""The collapse lemma as code: two unembedding rows whose labels never occur (paper A, Lemma 4.1).

Logits are W h without bias; the loss is cross-entropy; features h are given. For a label k that
never occurs the gradient of its row is E[p_k h]. For two such labels a and b put d = w_a - w_b and

    c(h) = (p_a - p_b) / (d . h),      M = E[c h h^T].

Since p_a / p_b = exp(d . h), c lies between 0 and max(p_a, p_b), so that 0 <= M <= r^2 p for
features no longer than r and p the largest probability of either label. One step of gradient
descent with step size `lr` and L2 decay `decay` obeys exactly

    d' = ((1 - lr decay) I - lr M) d.

Hence |d'| <= (1 - lr decay) |d| whenever lr (2 decay + r^2 p) <= 2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def gradient_step(
    W: Float[Tensor, "d_vocab d"],
    h: Float[Tensor, "features d"],
    label: Int[Tensor, " features"],
    lr: float,
    decay: float,
) -> Float[Tensor, "d_vocab d"]:
    """One step of gradient descent on mean cross-entropy plus decay / 2 |W|^2."""
    p = (h @ W.T).softmax(dim=1)
    p[torch.arange(len(h)), label] -= 1
    return W - lr * (p.T @ h / len(h) + decay * W)


def curvature(
    W: Float[Tensor, "d_vocab d"], h: Float[Tensor, "features d"], a: int, b: int
) -> Float[Tensor, "d d"]:
    """M = E[c h h^T], symmetric, 0 <= M <= r^2 p. Where d . h = 0, c is its limit, p_b.

    c = p_b (exp(x) - 1) / x with x = d . h, which expm1 keeps exact for small x.
    """
    logits = h @ W.T
    log_p = logits.log_softmax(dim=1)
    x = logits[:, a] - logits[:, b]
    # take the smaller of the two as the base, so that nothing overflows: c is symmetric in a and b
    base, x = torch.minimum(log_p[:, a], log_p[:, b]).exp(), x.abs()
    ratio = torch.where(x > 0, torch.expm1(x) / torch.where(x > 0, x, 1.0), 1.0)
    return (h * (base * ratio)[:, None]).T @ h / len(h)


def difference_step(
    d: Float[Tensor, " d"], M: Float[Tensor, "d d"], lr: float, decay: float
) -> Float[Tensor, " d"]:
    """The exact recursion: ((1 - lr decay) I - lr M) d."""
    return (1 - lr * decay) * d - lr * (M @ d)


def step_condition(r: float, p: float, lr: float, decay: float) -> bool:
    """Whether lr (2 decay + r^2 p) <= 2: then a step contracts by at least 1 - lr decay.

    `r` bounds the length of all features, `p` the probability of either label over all features.
    """
    return lr * (2 * decay + r * r * p) <= 2


def remaining(lr: float, decay: float, steps: int) -> float:
    """(1 - lr decay)^steps: at most this share of the distance is left. A bound, not a forecast,
    except for rows that get no gradient at all."""
    return (1 - lr * decay) ** steps
