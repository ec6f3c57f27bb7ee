"""Stored experiments on natural relations between words: what a cell is, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Generator

from lib import relations
from lib.generators import stream
from lib.generators.prompts import RELATIONS, WordPair, single_tokens, word_pairs
from lib.language_models import LanguageModel
from lib.model_sweeps import DEFAULT, Store, model_of

STEERED = ("capital", "plural", "past", "comparative", "agent", "demonym", "opposite")
STRANGE = dict.fromkeys(STEERED, "third_person")  # the direction of another relation, as a control
DEPTHS = (0, 3, 6, 9, 12, 15, 18)


@dataclass(frozen=True)
class Relation:
    """One experiment on the pairs of one relation."""

    relation: str
    seed: int = 10
    model: str = DEFAULT


def every_relation() -> list[Relation]:
    """All of them."""
    return [Relation(name) for name in sorted(RELATIONS)]


def steered_relations() -> list[Relation]:
    """One-to-one relations of several kinds, and one that is its own inverse."""
    return [Relation(name) for name in STEERED]


def pairs_of(model: LanguageModel, relation: str) -> list[WordPair]:
    """Pairs whose words are one token each for this model."""

    def encode(text: str) -> list[int]:
        ids: list[int] = model.tokenizer.encode(text, add_special_tokens=False)
        return ids

    kept, _ = single_tokens([p for p in word_pairs() if p.relation == relation], encode)
    return kept


def _embedding(model: LanguageModel, cell: Relation, draws: Generator) -> list[dict[str, Any]]:
    pairs = pairs_of(model, cell.relation)
    ids = [
        tuple(model.tokenizer.encode(f" {word}", add_special_tokens=False)[0] for word in pair[1:])
        for pair in pairs
    ]
    rows = relations.in_embedding(model.W_E.detach(), ids, draws)
    names = {i: model.tokenizer.decode([i]).strip() for row in rows for i in _ids_in(row)}
    named = [{key: names[int(row[key])] for key in ("source", "target", "nearest")} for row in rows]
    return [{"relation": cell.relation, **row, **name} for row, name in zip(rows, named)]


def _ids_in(row: relations.Row) -> list[int]:
    return [int(row[key]) for key in ("source", "target", "nearest")]


def _layers(model: LanguageModel, cell: Relation, draws: Generator) -> list[dict[str, Any]]:
    return [dict(row) for row in relations.by_layer(model, pairs_of(model, cell.relation), draws)]


def _few_shot(model: LanguageModel, cell: Relation, draws: Generator) -> list[dict[str, Any]]:
    pairs = pairs_of(model, cell.relation)
    return [
        dict(row)
        for shown in (1, 3, 5)
        for row in relations.few_shot(model, pairs, shown, draws, n=20)
    ]


def _steering(model: LanguageModel, cell: Relation, draws: Generator) -> list[dict[str, Any]]:
    own, other = pairs_of(model, cell.relation), pairs_of(model, STRANGE[cell.relation])
    return [dict(row) for row in relations.steering(model, own, other, DEPTHS[:-1], draws)]


def _patching(model: LanguageModel, cell: Relation, draws: Generator) -> list[dict[str, Any]]:
    pairs = pairs_of(model, cell.relation)
    return [dict(row) for row in relations.patching(model, pairs, 3, DEPTHS, draws, n=16)]


Measure = Callable[[LanguageModel, Relation, Generator], list[dict[str, Any]]]


def _run(measure: Measure, cell: Relation, device: str = "cpu") -> Store:
    draws = stream(cell.seed, f"relation {cell.relation}")
    return measure(model_of(cell.model, device), cell, draws), {}


# experiment -> cells, and how one is run
RELATION_SWEEPS: dict[str, tuple[Callable[[], list[Relation]], Callable[..., Store]]] = {
    "relations_embedding": (every_relation, partial(_run, _embedding)),
    "relations_layers": (every_relation, partial(_run, _layers)),
    "relations_answers": (every_relation, partial(_run, _few_shot)),
    "relations_steering": (steered_relations, partial(_run, _steering)),
    "relations_patching": (steered_relations, partial(_run, _patching)),
}
