"""Analogies between categories: relations within, functors across (paper B).

Every ordered pair (a, b) of different entities of category E1 carries a relation r(a, b). A functor
is a bijection F from E1 to another category that carries the relations over:
r(F(a), F(b)) = r(a, b). Facts are prompts with one right answer:

    atomic          a  r1      ->  b        with r1 = r(a, b), in every category
    compositional   a  r1  r2  ->  c        with r2 = r(b, c) and a, b, c different
    analogical      a  f       ->  F(a)     with f the functor's token
    (implicit)      s  F(s) a  ->  F(a)     the functor shown by an example, never named

The short cut of composition: where every pair of E1 has a relation of its own, the last relation
alone leaves two answers, c and F(c), and the source only says in which category. Nothing needs
composing. Without the short cut the entities stand on a circle and r(a, b) says how many places b
lies after a, so every relation leads to every entity equally often and no two tokens of a prompt
fix the answer. The circle can be turned: n bijections then carry the relations over, and only
known analogies say which one is F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class AnalogyConfig:
    """One world. Token ids: entities, then functors, then relation names.

    `relations` of the `vocabulary` names occur, None for as many as there can be. The pairs of one
    head entity always differ in relation, so that (a, r) has one answer. `noise` is the share of
    pairs whose relation differs between E1 and a target category, in each of them.
    """

    entities: int = 15  # in each category
    relations: int | None = None
    vocabulary: int = 10_000
    comp_ood: float = 0.9  # shares of facts held out
    ana_ood: float = 1 / 3
    noise: float = 0.0
    functors: int = 1  # each from E1 to a category of its own
    implicit: bool = False
    short_cut: bool = True

    def __post_init__(self) -> None:
        n = self.entities
        if n < 3:
            raise ValueError(
                f"entities is {n}: a composition needs three different ones, set entities >= 3"
            )
        if self.functors < 1:
            raise ValueError(
                f"functors is {self.functors}: an analogy needs one, set functors >= 1"
            )
        for share in ("comp_ood", "ana_ood", "noise"):
            if not 0 <= getattr(self, share) <= 1:
                raise ValueError(
                    f"{share} is {getattr(self, share)}: it is a share, set 0 <= {share} <= 1"
                )
        if not self.short_cut and self.n_relations != n - 1:
            raise ValueError(
                f"relations is {self.relations}: on a circle of {n} entities there are {n - 1}, "
                f"leave relations at None, or set short_cut=True"
            )
        if not n - 1 <= self.n_relations <= self.n_pairs:
            raise ValueError(
                f"relations is {self.relations}: {n} entities need {n - 1} for the pairs of one "
                f"head entity and have room for {self.n_pairs}, one a pair, "
                f"set {n - 1} <= relations <= {self.n_pairs}"
            )
        if self.vocabulary < self.n_relations:
            raise ValueError(
                f"vocabulary is {self.vocabulary}: each of {self.n_relations} relations needs a "
                f"name, set vocabulary >= {self.n_relations}"
            )
        if self.implicit and self.n_known < 2:
            raise ValueError(
                f"ana_ood is {self.ana_ood}: an implicit functor needs one known analogy as example "
                f"and one to ask for, set ana_ood so that 2 of {n} entities stay, or implicit=False"
            )

    @property
    def n_pairs(self) -> int:
        """Ordered pairs of different entities in one category."""
        return self.entities * (self.entities - 1)

    @property
    def n_relations(self) -> int:
        """Relations that occur."""
        if self.relations is not None:
            return self.relations
        return self.n_pairs if self.short_cut else self.entities - 1

    @property
    def n_known(self) -> int:
        """Entities whose analogy is not held out, for each functor."""
        return self.entities - _round_half_up(self.ana_ood * self.entities)

    @property
    def n_rewired(self) -> int:
        """Pairs that `noise` changes in each target category: the possible number nearest to asked.

        Relations are exchanged between pairs of one head entity, so one pair alone cannot change;
        of three entities each heads two pairs, which change together.
        """
        asked = self.noise * self.n_pairs
        by_twos = self.entities == 3 or asked < 1.5
        return 2 * _round_half_up(asked / 2) if by_twos else _round_half_up(asked)

    @property
    def d_vocab(self) -> int:
        return self.names.stop

    @property
    def names(self) -> range:
        """Token ids of the relation names, whether they occur or not."""
        tokens = self.entities * (self.functors + 1) + (0 if self.implicit else self.functors)
        return range(tokens, tokens + self.vocabulary)


class Split(NamedTuple):
    """Facts of one kind, prompt first and answer last: to train on, and held out."""

    id: Int[Tensor, "facts width"]
    ood: Int[Tensor, "facts width"]


class Analogy(NamedTuple):
    """A world in token ids and all its facts.

    Category 0 is E1, and entity[c, i] is what functor c - 1 makes of entity[0, i]. Relations have
    -1 on the diagonal. Implicit functors have no token.
    """

    entity: Int[Tensor, "categories entities"]
    relation: Int[Tensor, "categories entities entities"]
    functor: Int[Tensor, " functors"]
    atomic: Int[Tensor, "atomic 3"]
    compositional: Split
    analogical: Split


def draw(config: AnalogyConfig, generator: torch.Generator) -> Analogy:
    """Draw a world and list its facts; the generator lives on the CPU, as in `logic.sample`.

    Held-out compositions are drawn from those of all categories together, held-out analogies for
    each functor alone; their numbers are share times total, halves rounded up. A rewired category's
    facts follow its own relations. An implicit analogy is asked with every other known entity s as
    its example: n_known (n_known - 1) to train on and n_known (n - n_known) held out a functor.
    """
    n, functors = config.entities, config.functors
    # One shuffle over all categories: an id says nothing about its category, and F is random.
    entity = torch.randperm((functors + 1) * n, generator=generator).view(-1, n)
    functor = torch.arange(entity.numel(), config.names.start)
    used = torch.randperm(config.vocabulary, generator=generator)[: config.n_relations]
    first = (used + config.names.start)[_pattern(config, generator)].fill_diagonal_(-1)
    relation = torch.stack([first, *(_rewire(first, config, generator) for _ in range(functors))])

    other = ~torch.eye(n, dtype=torch.bool)
    a, b = torch.where(other)
    atomic = torch.stack([entity[:, a], relation[:, a, b], entity[:, b]], dim=-1).flatten(0, 1)

    a, b, c = torch.where(other[:, :, None] & other[:, None, :] & other[None, :, :])
    steps = [entity[:, a], relation[:, a, b], relation[:, b, c], entity[:, c]]
    compositions = torch.stack(steps, dim=-1).flatten(0, 1)
    held = _held_out(len(compositions), config.comp_ood, generator)

    known = torch.stack([~_held_out(n, config.ana_ood, generator) for _ in range(functors)])
    source, target = entity[0].expand(functors, n), entity[1:]
    if config.implicit:
        asked = [source[:, :, None], target[:, :, None], source[:, None, :], target[:, None, :]]
        analogies = torch.stack(torch.broadcast_tensors(*asked), dim=-1)
        possible, trained = known[:, :, None] & other, known[:, None, :]
        analogical = Split(analogies[possible & trained], analogies[possible & ~trained])
    else:
        analogies = torch.stack([source, functor[:, None].expand(-1, n), target], dim=-1)
        analogical = Split(analogies[known], analogies[~known])

    compositional = Split(compositions[~held], compositions[held])
    return Analogy(entity, relation, functor, atomic, compositional, analogical)


def _pattern(config: AnalogyConfig, generator: torch.Generator) -> Int[Tensor, "entities entities"]:
    """Which of the relations that occur each pair carries; the diagonal means nothing.

    With the short cut, each head entity in turn draws from the relations used least so far: all of
    them occur, equally often up to one, and each pair has its own where there are enough.
    """
    n, k = config.entities, config.n_relations
    place = torch.arange(n)
    if not config.short_cut:
        return (place - place[:, None]) % n - 1
    uses = torch.zeros(k)
    pattern = torch.zeros(n, n, dtype=torch.long)
    for head in range(n):
        least = (uses + torch.rand(k, generator=generator)).argsort()[: n - 1]
        uses[least] += 1
        # Shuffled again: sorted by use, the rarest would always lead to the first entities.
        pattern[head, place != head] = least[torch.randperm(n - 1, generator=generator)]
    return pattern


def _rewire(
    relation: Int[Tensor, "entities entities"], config: AnalogyConfig, generator: torch.Generator
) -> Int[Tensor, "entities entities"]:
    """The relations with `n_rewired` of them changed, spread evenly over the head entities.

    Each head entity passes the relations of its chosen pairs round in a random cycle: all of them
    change, and (a, r) keeps one answer.
    """
    n, changed = config.entities, config.n_rewired
    if changed == 0:
        return relation
    heads = min(n, changed // 2)  # two pairs at least, or nothing could change
    lengths = torch.zeros(n, dtype=torch.long)
    chosen = torch.randperm(n, generator=generator)[:heads]
    lengths[chosen] = changed // heads + (torch.arange(heads) < changed % heads).long()
    # Pairs of each head in random order, the diagonal last; the first `lengths` form the cycle.
    order = torch.rand(n, n, generator=generator).fill_diagonal_(2).argsort(dim=1)
    place, length = torch.arange(n), lengths[:, None]
    following = torch.where(place < length, (place + 1) % length.clamp(min=1), place)
    return relation.scatter(1, order, relation.gather(1, order.gather(1, following)))


def _held_out(total: int, share: float, generator: torch.Generator) -> Bool[Tensor, " total"]:
    """True for a random choice of `share` of `total`, halves rounded up."""
    return torch.randperm(total, generator=generator) < _round_half_up(share * total)


def _round_half_up(number: float) -> int:
    """0.29 x 50 is a hair below 14.5 in floating point; the 1e-9 counts it as a half."""
    return math.floor(number + 0.5 + 1e-9)
