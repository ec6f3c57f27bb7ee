"""Change the rows of unseen names and nothing else: no step of training is taken.

`redraw` gives them other rows, `usable` does so for tokens of a language model, `collapse` and
`scaled` bring rows to ruin by degrees, `replaced` puts changed rows into a model for a while. All
are functions of one (un)embedding matrix.
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
        new = draw(*moments(W, seen), len(own), method, generator).to(W)
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


DRAWS = {
    "mean_cov": "normal draws with the rows' mean and (shrunk) covariance",
    "mean_diag": "normal draws with the rows' mean and variances, entries independent",
    "orthogonal": "the rows' mean plus orthogonal directions, as long as the rows' own parts",
}
CHUNK = 2**14  # rows that are held in float64 at a time


def moments(
    W: Matrix, rows: Sequence[int]
) -> tuple[Float[Tensor, " d_model"], Float[Tensor, "d_model d_model"]]:
    """Mean and covariance of some rows, in float64, the covariance drawn towards the mean variance
    with weight d / (rows + d): positive definite also with fewer rows than dimensions.

    Raises ValueError for fewer than two rows.
    """
    n, d = len(rows), W.shape[1]
    if n < 2:
        raise ValueError(f"{n} row(s): a covariance needs at least two")
    parts = torch.tensor(list(rows)).split(CHUNK)
    mean = torch.stack([W[part].double().sum(dim=0) for part in parts]).sum(dim=0) / n
    cov = torch.zeros(d, d, dtype=torch.double).to(mean)
    for part in parts:
        x = W[part].double() - mean
        cov += x.T @ x / (n - 1)
    weight = d / (n + d)
    return mean, (1 - weight) * cov + weight * cov.trace() / d * torch.eye(d).to(cov)


def draw(
    mean: Float[Tensor, " d_model"],
    cov: Float[Tensor, "d_model d_model"],
    n: int,
    method: str,
    generator: torch.Generator,
) -> Float[Tensor, "n d_model"]:
    """`n` new rows from the moments of others; see DRAWS. `generator` lives on the CPU.

    Raises ValueError for an unknown method, or for more orthogonal rows than there are dimensions.
    """
    nearest("method", method, DRAWS)
    d = len(mean)
    z = torch.randn(n, d, generator=generator).to(mean)
    if method == "mean_cov":
        return mean + z @ torch.linalg.cholesky(cov).T
    if method == "mean_diag":
        return mean + z * cov.diagonal().sqrt()
    if n > d:
        raise ValueError(f"{n} orthogonal rows do not fit into {d} dimensions: use mean_cov")
    return mean + cov.trace().sqrt() * torch.linalg.qr(z.T).Q.T


def usable(
    W: Matrix, used: Sequence[int], rows: Sequence[int], method: str, generator: torch.Generator
) -> Matrix:
    """A copy of `W` whose `rows` are drawn like the `used` ones, each as long as before.

    A row less than half as long as `used` ones are (median), down to zero, gets that length instead:
    what is too short to be read is no use in any direction. See `draw` for methods and errors.
    """
    changed = W.clone()
    new = draw(*moments(W, used), len(rows), method, generator)
    lengths = W.norm(dim=1).to(new)
    typical, length = lengths[list(used)].median(), lengths[list(rows)]
    length = torch.where(length < typical / 2, typical, length)
    changed[list(rows)] = (new / new.norm(dim=1, keepdim=True) * length[:, None]).to(W)
    return changed


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
