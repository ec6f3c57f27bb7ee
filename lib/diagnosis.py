"""Which rows of an (un)embedding have collapsed: numbers from the matrix alone, nothing is run.

Rows count by direction, with what all used rows share taken away, so neither a scale nor a common
vector makes a collapse. Rows known to be unused (by their names, or because the tokenizer never
writes them) say where unused rows lie; other rows that lie there too were probably hardly ever
trained, in the spirit of Land and Bartolo's under-trained tokens. A cosine or a length proves no
cause: it cannot tell what training did from how a row was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lib import geometry

Matrix = Float[Tensor, "d_vocab d_model"]
CHUNK = 2**14  # rows that are looked at at a time
THRESHOLD = (
    0.5  # cosine with the direction of unused rows; two random rows have about 1/sqrt(d_model)
)
SHORT = 0.5  # of the used rows' median length
SAMPLE = 512  # rows of a group from which spread and rank are taken
NAMES = re.compile(
    r"(?i)[<\[]\|?(unused|reserved|placeholder|dummy|special)[a-z_ -]*\d+\|?[>\]]", re.ASCII
)


def reserved_tokens(vocabulary: Mapping[str, int], d_vocab: int) -> dict[str, list[int]]:
    """Ids that nothing should ever have written: group -> ids, in order.

    Names such as `<unused7>` or `[unused7]`, one group for each stretch of ids that follow each
    other, and rows of the matrix that the tokenizer has no name for. `vocabulary`: name -> id.
    """
    known = set(vocabulary.values())
    named = sorted(i for name, i in vocabulary.items() if i < d_vocab and NAMES.fullmatch(name))
    stretches: list[list[int]] = []
    for i in named:
        if stretches and stretches[-1][-1] == i - 1:
            stretches[-1].append(i)
        else:
            stretches.append([i])
    groups = {f"names like <unused0>, ids {s[0]} to {s[-1]}": s for s in stretches}
    if beyond := [i for i in range(d_vocab) if i not in known]:
        groups["rows beyond the tokenizer"] = beyond
    return groups


@dataclass(frozen=True)
class Spread:
    """How a set of rows lies; `mean_cosine` to `effective_rank` are of at most 512 of them.

    `score` is the median cosine between a row and the unused rows' direction, all centred on the
    used rows' mean (a row of the set is left out of the direction); `length` is the median over
    that of used rows.
    """

    rows: int
    mean_cosine: float
    individual_share: float
    effective_rank: float
    score: float
    length: float


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found in one matrix. `score` and `length` hold every row's, used or not."""

    spreads: dict[str, Spread]  # each group of unused rows, and `used`: as many rows at random
    score: Float[Tensor, " d_vocab"]
    length: Float[Tensor, " d_vocab"]
    zero: list[int]
    collapsed: bool  # unused rows share a direction that used ones have not
    short: bool  # unused rows are shorter than half the usual length
    hidden: list[int]  # rows without such a name that lie where the unused ones do, worst first


def diagnose(W: Matrix, groups: Mapping[str, Sequence[int]], seed: int = 0) -> Diagnosis:
    """Compare the rows known to be unused with all others, and look for more of their kind.

    Unused rows have collapsed when their median score is at least THRESHOLD, or when most of them
    are zero. Then other rows with such a score are `hidden` ones; where unused rows are short
    (untied input rows only decay), so are short rows not longer than 95 % of these. Raises ValueError
    without at least two unused rows, when fewer than two rows are left, and for infinite or missing
    numbers.
    """
    d_vocab = len(W)
    known = sorted({i for ids in groups.values() for i in ids})
    if len(known) < 2:
        raise ValueError(
            "no two rows are known to be unused: say which ids are never written (--unused)"
        )
    if not 0 <= known[0] <= known[-1] < d_vocab:
        raise ValueError(f"ids of unused rows must lie between 0 and {d_vocab - 1}")
    unused = torch.zeros(d_vocab, dtype=torch.bool)
    unused[known] = True
    norm = torch.cat([part.norm(dim=1) for part in _chunks(W)])
    if broken := int((~norm.isfinite()).sum()):
        raise ValueError(f"{broken} row(s) hold infinite or missing numbers: the file is damaged")
    zero = norm == 0
    used = ~unused & ~zero
    if used.sum() < 2:
        raise ValueError("fewer than two rows are left that are not known to be unused")
    typical = norm[used].median()
    score = _scores(W, used, unused & ~zero)
    length = norm / typical
    spreads = {name: _spread(W, list(ids), score, length) for name, ids in groups.items()}
    draw = torch.Generator().manual_seed(seed)
    ids = used.nonzero().flatten()
    chosen = ids[torch.randperm(len(ids), generator=draw)[: len(known)]]
    spreads["used, at random"] = _spread(W, chosen.tolist(), score, length)
    alive = unused & ~zero
    directed = bool(alive.any()) and float(score[alive].median()) >= THRESHOLD
    short = float(length[unused].median()) < SHORT
    found = ~unused & zero
    if directed:
        found |= ~unused & (score >= THRESHOLD)
    if short:
        found |= ~unused & (length <= length[unused].quantile(0.95).clamp(max=SHORT))
    hidden = found.nonzero().flatten()
    worst = torch.where(zero[hidden], torch.inf, score[hidden]).argsort(descending=True)
    return Diagnosis(
        spreads=spreads,
        score=score,
        length=length,
        zero=zero.nonzero().flatten().tolist(),
        collapsed=directed or bool(zero[unused].float().mean() > 0.5),
        short=short,
        hidden=hidden[worst].tolist(),
    )


def _scores(
    W: Matrix, used: Bool[Tensor, " d_vocab"], unused: Bool[Tensor, " d_vocab"]
) -> Float[Tensor, " d_vocab"]:
    """Cosine of each row with the direction of the unused rows; NaN where a row is zero."""
    total = torch.zeros(W.shape[1])
    for part, keep in zip(_chunks(W), used.split(CHUNK), strict=True):
        total += _unit(part[keep]).sum(dim=0)
    centre = total / used.sum()
    direction = torch.zeros(W.shape[1])
    for part, keep in zip(_chunks(W), unused.split(CHUNK), strict=True):
        direction += _unit(_unit(part[keep]) - centre).sum(dim=0)
    score = []
    for part, own in zip(_chunks(W), unused.split(CHUNK), strict=True):
        row = _unit(_unit(part) - centre)
        others = direction - row * own[:, None]  # a row is no witness for itself
        score.append((row * others).sum(dim=1) / others.norm(dim=1))
    return torch.cat(score).clamp(-1, 1)


def _spread(
    W: Matrix, ids: list[int], score: Float[Tensor, " d_vocab"], length: Float[Tensor, " d_vocab"]
) -> Spread:
    step = -(-len(ids) // SAMPLE)
    x = W[ids[::step]].float()
    x = x[x.norm(dim=1) > 0]
    enough = len(x) > 1
    alive = score[ids][~score[ids].isnan()]
    return Spread(
        rows=len(ids),
        mean_cosine=geometry.mean_cosine(x) if enough else float("nan"),
        individual_share=geometry.individual_share(_unit(x)) if enough else float("nan"),
        effective_rank=geometry.effective_rank(_unit(x)) if enough else float("nan"),
        score=float(alive.median()) if len(alive) else float("nan"),
        length=float(length[ids].median()),
    )


def table(found: Diagnosis, names: Mapping[int, str], top: int = 40) -> list[dict[str, Any]]:
    """The `top` hidden rows, worst first: id, name, score and length."""
    return [
        {
            "id": i,
            "token": names.get(i, ""),
            "score": round(float(found.score[i]), 3),
            "length": round(float(found.length[i]), 3),
        }
        for i in found.hidden[:top]
    ]


def _chunks(W: Matrix) -> Iterator[Float[Tensor, "rows d_model"]]:
    """The rows in order, in float32, a part at a time: the whole is never copied."""
    for part in W.split(CHUNK):
        yield part.float()


def _unit(x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
    return x / x.norm(dim=1, keepdim=True)


def watch(W: Matrix, rows: Sequence[int]) -> dict[str, float]:
    """Three numbers to log while rows are trained, or while others are; read them beside those of used
    rows, since no value of one of them alone means collapse.

    `cosine` is their mean pairwise cosine, `own` the share of a row that is its own
    (`geometry.individual_share`), `length` their mean length over the median length of all rows.
    """
    x = W[list(rows)]
    typical = torch.cat([part.norm(dim=1) for part in W.split(CHUNK)]).median()
    return {
        "cosine": geometry.mean_cosine(x),
        "own": geometry.individual_share(x),
        "length": float(x.norm(dim=1).mean() / typical),
    }
