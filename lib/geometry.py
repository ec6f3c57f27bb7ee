"""Numbers that say how a set of vectors lies in space: pure functions, tensors in, numbers out.

Rows are vectors, for example the unembedding rows of all unseen names. Cosine alone misleads (a
common part and a small individual part look the same as a long individual part and a longer common
part), so read norm, individual part and cosine together.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

EXACT_ROWS = 2048  # up to here all pairs are formed; beyond, quantiles come from sampled pairs


def mean_cosine(x: Float[Tensor, "rows d"]) -> float:
    """Mean cosine over all pairs of different rows, without forming them.

    With unit rows u_i it is (|sum u_i|^2 - n) / (n (n - 1)). NaN if a row is zero: no direction.
    """
    n = _at_least_two(x)
    unit = _unit(x.double())
    return float((unit.sum(0).square().sum() - n) / (n * (n - 1)))


def cosine_quantiles(
    x: Float[Tensor, "rows d"], q: tuple[float, ...] = (0.05, 0.5, 0.95), pairs: int = 1_000_000
) -> list[float]:
    """Quantiles of the cosine over pairs of different rows; the median by default in the middle.

    Exact up to 2048 rows; beyond, from `pairs` pairs drawn with a fixed seed.
    """
    n = _at_least_two(x)
    unit = _unit(x.double())
    if n <= EXACT_ROWS:
        i, j = torch.triu_indices(n, n, offset=1)
        cosines = (unit @ unit.T)[i, j]
    else:
        generator = torch.Generator().manual_seed(0)
        i = torch.randint(n, (pairs,), generator=generator)
        j = (i + torch.randint(1, n, (pairs,), generator=generator)) % n
        parts = zip(i.split(2**16), j.split(2**16), strict=True)
        cosines = torch.cat([(unit[a] * unit[b]).sum(1) for a, b in parts])
    ordered = cosines.sort().values
    at = torch.tensor(q, dtype=torch.double) * (len(ordered) - 1)
    low, high = ordered[at.floor().long()], ordered[at.ceil().long()]
    return (low + (high - low) * (at - at.floor())).tolist()


def norms(x: Float[Tensor, "rows d"]) -> Float[Tensor, " rows"]:
    """Euclidean length of each row."""
    return x.norm(dim=1)


def individual_part(x: Float[Tensor, "rows d"]) -> Float[Tensor, "rows d"]:
    """What a row has of its own: the row minus the mean row."""
    return x - x.mean(dim=0)


def individual_share(x: Float[Tensor, "rows d"]) -> float:
    """Root-mean-square length of the individual parts over that of the rows, from 0 to 1.

    0: all rows are one vector. Near 1: the mean row is nothing. For rows of equal length and n
    large, the mean cosine is about 1 - share^2.
    """
    _at_least_two(x)
    x = x.double()
    return float((individual_part(x).square().sum() / x.square().sum()).sqrt())


def effective_rank(x: Float[Tensor, "rows d"]) -> float:
    """Exponential of the entropy of the normalised singular values [Roy & Vetterli 2007].

    1 when all rows are multiples of one vector, min(rows, d) when all directions are equally long.
    Not centred: a common vector counts as a direction. NaN if every row is zero.
    """
    values = torch.linalg.svdvals(x.double())
    p = values / values.sum()
    return float(torch.exp(-torch.special.xlogy(p, p).sum()))


def pair_distance(x: Float[Tensor, "rows d"]) -> float:
    """Root-mean-square distance over all pairs of different rows, without forming them."""
    n = _at_least_two(x)
    return float((2 * individual_part(x.double()).square().sum() / (n - 1)).sqrt())


def distance_contraction(before: Float[Tensor, "rows d"], after: Float[Tensor, "rows d"]) -> float:
    """How far apart the rows still are: `pair_distance` after over before. Decay alone gives
    (1 - lr x weight_decay)^steps. Raises ValueError when the rows of `before` already coincide."""
    start = pair_distance(before)
    if start == 0:
        raise ValueError("all rows of `before` are equal: their distance cannot contract further")
    return pair_distance(after) / start


def principal_axes(
    x: Float[Tensor, "rows d"], k: int = 2
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d k"]]:
    """Mean and first `k` principal axes (columns): project with `(y - mean) @ axes`.

    The largest entry of each axis is positive, so that a picture does not flip between machines.
    """
    mean = x.mean(dim=0)
    axes = torch.linalg.svd(x - mean, full_matrices=False).Vh[:k].T
    return mean, axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()


def dirichlet_energy(
    x: Float[Tensor, "rows d"], edges: Int[Tensor, "edges 2"], normalised: bool = True
) -> float:
    """Mean squared distance along the edges of a graph on the rows (paper B).

    It is trace(X^T L X) over the number of edges, L the graph's Laplacian. Normalised, rows count by
    direction only: 2 - 2 cos along an edge, 0 when all agree, 2 when they are orthogonal. Raises
    ValueError without edges.
    """
    if len(edges) == 0:
        raise ValueError("no edges: the energy needs at least one pair of rows")
    x = _unit(x.double()) if normalised else x.double()
    return float((x[edges[:, 0]] - x[edges[:, 1]]).square().sum(dim=1).mean())


def parallelism(x: Float[Tensor, "rows d"], direction: Float[Tensor, " d"]) -> float:
    """Mean cosine between each row and one direction, e_t - e_s and f in paper B."""
    return float((_unit(x.double()) @ _unit(direction.double()[None])[0]).mean())


def _unit(x: Float[Tensor, "rows d"]) -> Float[Tensor, "rows d"]:
    return x / x.norm(dim=1, keepdim=True)


def _at_least_two(x: Float[Tensor, "rows d"]) -> int:
    if len(x) < 2:
        raise ValueError(f"{len(x)} row(s): pairs need at least two")
    return len(x)
