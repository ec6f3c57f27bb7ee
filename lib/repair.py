"""Change the rows of unseen names and nothing else: no step of training is taken.

`redraw` gives them other rows, `collapse` and `scaled` bring rows to ruin by degrees, `replaced` puts
changed rows into a model for a while. All are functions of one (un)embedding matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from lib.configuration import nearest
from lib.models.transformer import Transformer

Matrix = Float[Tensor, "d_vocab d_model"]
METHODS = {
    "fresh": "independent normal entries, as at the start of training",
    "mean_cov": "normal draws with the seen rows' mean and (shrunk) covariance",
    "stretched": "own individual parts, made as long as those of seen rows",
    "recentred": "own individual parts on the seen rows' mean",
    "recentred_stretched": "both",
    "duplicates": "copies of seen rows, which also stay where they are",
    "swapped": "rows of seen names, whose places get the unseen rows",
}


def redraw(
    W: Matrix,
    seen: Sequence[int],
    unseen: Sequence[int],
    method: str,
    generator: torch.Generator,
    embed_std: float = 0.25,
) -> Matrix:
    """A copy of `W` whose `unseen` rows are made anew from the `seen` ones; see METHODS.

    `generator` lives on the CPU. Raises ValueError for an unknown method, or when there are fewer
    seen rows than `duplicates` and `swapped` need.
    """
    nearest("method", method, METHODS)
    x, own, d = W[list(seen)], W[list(unseen)], W.shape[1]
    changed = W.clone()
    if method == "fresh":
        new = embed_std * torch.randn(len(own), d, generator=generator).to(W)
    elif method == "mean_cov":
        factor = torch.linalg.cholesky(shrunk_covariance(x.double()))
        z = torch.randn(len(own), d, generator=generator).to(factor)
        new = (x.double().mean(dim=0) + z @ factor.T).to(W)
    elif method in ("duplicates", "swapped"):
        if len(seen) < len(unseen):
            raise ValueError(f"{method} needs {len(unseen)} seen rows, there are {len(seen)}")
        chosen = torch.tensor(list(seen))[torch.randperm(len(seen), generator=generator)]
        chosen = chosen[: len(unseen)]
        new = W[chosen]
        if method == "swapped":
            changed[chosen] = own
    else:
        mean, part = own.mean(dim=0), own - own.mean(dim=0)
        if "stretched" in method:
            part = part * (x - x.mean(dim=0)).norm(dim=1).mean() / part.norm(dim=1).mean()
        new = (x.mean(dim=0) if "recentred" in method else mean) + part
    changed[list(unseen)] = new
    return changed


def shrunk_covariance(x: Float[Tensor, "rows d"]) -> Float[Tensor, "d d"]:
    """Covariance of the rows, drawn towards the mean variance with weight d / (rows + d).

    Always positive definite when the rows differ, also with fewer rows than dimensions.
    """
    n, d = x.shape
    cov, weight = torch.cov(x.T), d / (n + d)
    return (1 - weight) * cov + weight * cov.trace() / d * torch.eye(d).to(x)


def collapse(W: Matrix, rows: Sequence[int], cosine: float) -> Matrix:
    """A copy of `W` whose `rows` share a direction: pairwise cosine about `cosine`, lengths kept.

    Each direction becomes a mixture of what is the row's own and of the rows' mean direction; 0 takes
    what is common away, 1 leaves nothing else. Raises ValueError for a cosine outside [0, 1].
    """
    if not 0 <= cosine <= 1:
        raise ValueError(f"cosine is {cosine}: it must lie in [0, 1]")
    x = W[list(rows)]
    mean = x.mean(dim=0) / x.mean(dim=0).norm()
    own = x - (x @ mean)[:, None] * mean
    own = own / own.norm(dim=1, keepdim=True)
    direction = (1 - cosine) ** 0.5 * own + cosine**0.5 * mean
    changed = W.clone()
    changed[list(rows)] = direction * x.norm(dim=1, keepdim=True)
    return changed


def scaled(W: Matrix, rows: Sequence[int], factor: float) -> Matrix:
    """A copy of `W` whose `rows` are `factor` times as long, directions kept."""
    changed = W.clone()
    changed[list(rows)] = factor * changed[list(rows)]
    return changed


@contextmanager
def replaced(model: Transformer, change: Callable[[Matrix], Matrix]) -> Iterator[Transformer]:
    """The model with each (un)embedding matrix `W` as `change(W)`; afterwards it is as before."""
    parameters = model.embedding_parameters()
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(change(parameter.detach()))
        yield model
    finally:
        with torch.no_grad():
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(old)


@contextmanager
def silenced_copy(model: Transformer) -> Iterator[Transformer]:
    """The model with its copy head switched off (gate 0); afterwards it is as before.

    Raises ValueError when the model has no copy head.
    """
    if model.copy is None:
        raise ValueError("this model has no copy head: set copy=True in its configuration")
    gate = model.copy.gate
    before = gate.detach().clone()
    try:
        with torch.no_grad():
            gate.zero_()
        yield model
    finally:
        with torch.no_grad():
            gate.copy_(before)
