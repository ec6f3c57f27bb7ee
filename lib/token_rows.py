"""Collapsed token rows of a language model in a folder: found by `examine`, mended by `mend`.

Only the (un)embedding is read, never the whole model.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib import diagnosis, geometry, model_files, repair, results
from lib.diagnosis import Diagnosis
from lib.generators import stream

CANNOT_KNOW = (
    "A direction or a length proves no cause: rows made alike, or copied, look the same as rows that "
    "training brought together. A row that lies apart may still never have been trained."
)


@dataclass(frozen=True)
class Examination:
    """One diagnosis for each matrix of a model: W_E, and W_U unless it is tied."""

    model: str
    names: dict[int, str]  # id -> token
    groups: dict[str, list[int]]  # rows known to be unused
    matrices: dict[str, Diagnosis]

    def record(self, top: int = 40) -> dict[str, Any]:
        """Everything but the scores of single rows, as plain JSON types; ids of hidden rows in full."""
        found = {}
        for matrix, one in self.matrices.items():
            found[matrix] = {
                "rows": len(one.score),
                "collapsed": one.collapsed,
                "short": one.short,
                "zero": one.zero,
                "spreads": {name: dataclasses.asdict(s) for name, s in one.spreads.items()},
                "hidden": one.hidden,
                "worst": diagnosis.table(one, self.names, top),
            }
        return {"model": self.model, "matrices": found, "cannot_know": CANNOT_KNOW}


def examine(
    model: str | Path, unused: Sequence[str] = (), cache: str | Path | None = None
) -> Examination:
    """Diagnose the (un)embedding of a model: a packaged name, a folder or a hub name.

    Rows known to be unused come from the tokenizer (see `diagnosis.reserved_tokens`) or, if given,
    from `unused`: tokens, `id:7` or `id:7-99`. Raises ValueError for a token that is not there.
    """
    folder = model_files.folder_of(model, cache)
    weights, vocabulary = model_files.matrices(folder), model_files.vocabulary(folder)
    d_vocab = len(weights["W_E"])
    groups = diagnosis.reserved_tokens(vocabulary, d_vocab)
    if unused:
        groups = {"tokens named by you": ids_of(unused, vocabulary, d_vocab)}
    matrices = {name: diagnosis.diagnose(W, groups) for name, W in weights.items()}
    return Examination(str(model), {i: t for t, i in vocabulary.items()}, groups, matrices)


def ids_of(tokens: Sequence[str], vocabulary: Mapping[str, int], d_vocab: int) -> list[int]:
    """Row numbers of tokens by name, `id:7` or `id:7-99`, each once, in order.

    Raises ValueError for a name that the tokenizer has not and for ids outside the matrix.
    """
    found: set[int] = set()
    for token in tokens:
        if match := re.fullmatch(r"id:(\d+)(?:-(\d+))?", token):
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < d_vocab:
                raise ValueError(f"{token}: ids run from 0 to {d_vocab - 1}, the lower one first")
            found |= set(range(first, last + 1))
        elif token in vocabulary:
            if not vocabulary[token] < d_vocab:
                raise ValueError(
                    f"{token!r} has id {vocabulary[token]}: ids run from 0 to {d_vocab - 1}"
                )
            found.add(vocabulary[token])
        else:
            raise ValueError(f"no token {token!r}: write it as the tokenizer does, or id:NUMBER")
    return sorted(found)


def mend(
    model: str | Path,
    tokens: Sequence[str],
    method: str,
    out: str | Path,
    seed: int = 0,
    cache: str | Path | None = None,
) -> dict[str, Any]:
    """Write the model to the new folder `out`, with usable rows for `tokens`; returns the record.

    Rows are drawn as in `repair.usable`, W_E and an untied W_U each from its own used rows: those
    that are neither known to be unused, nor found to lie with them, nor named in `tokens`. Raises
    ValueError without tokens, and what `examine`, `repair.draw` and `model_files.rewrite` raise.
    """
    out = Path(out)
    if not tokens:
        raise ValueError("no tokens: name those that should get new rows")
    if out.exists():  # before anything slow
        raise FileExistsError(f"{out} is there already: nothing is ever written over a model")
    folder = model_files.folder_of(model, cache)
    vocabulary = model_files.vocabulary(folder)
    weights = model_files.matrices(folder)
    rows = ids_of(tokens, vocabulary, len(weights["W_E"]))
    groups = diagnosis.reserved_tokens(vocabulary, len(weights["W_E"])) or {"to mend": rows}
    known = sorted({i for ids in groups.values() for i in ids})
    changed, report = {}, {}
    for name, W in weights.items():
        # a single row has no direction to look for
        hidden = diagnosis.diagnose(W, groups).hidden if len(known) > 1 else []
        used = used_rows(len(W), known, hidden, rows)
        draws = stream(seed, f"{method} {name}")
        wide = W.to(torch.promote_types(W.dtype, torch.float32))
        changed[name] = repair.usable(wide, used, rows, method, draws)
        report[name] = {
            "used_rows": len(used),
            "mean_cosine_before": _cosine(W, rows),
            "mean_cosine_after": _cosine(changed[name], rows),
        }
    names = {i: token for token, i in vocabulary.items()}
    record = {
        "model": str(model),
        "method": method,
        "seed": seed,
        "ids": rows,
        "tokens": [names[i] for i in rows if i in names],
        "tied": "W_U" not in weights,
        "matrices": report,
        "versions": results.versions(),
    }
    model_files.rewrite(folder, out, lambda name, _: changed[name], record)
    return record


def used_rows(d_vocab: int, *away: Sequence[int]) -> list[int]:
    """Rows to take as a model: all but those known to be unused, found among them, or to be mended."""
    left = torch.ones(d_vocab, dtype=torch.bool)
    for ids in away:
        left[list(ids)] = False
    return left.nonzero().flatten().tolist()


def _cosine(W: diagnosis.Matrix, rows: Sequence[int]) -> float | None:
    x = W[list(rows)].float()
    enough = len(x) > 1 and bool((x.norm(dim=1) > 0).all())
    return round(geometry.mean_cosine(x), 4) if enough else None
