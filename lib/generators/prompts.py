"""Analogies in plain text, for real language models: made-up categories (paper B) and word pairs.

A made-up prompt states relations within two categories, then analogies between them, then asks for
one more. Here with 2 entities a category and 1 analogy shown; the answer is N:

    W vadop K. N senuk V. V vadop N. K senuk W. W is to V. K is to

Every stated pair of entities has a relation name of its own and every entity stands in a pair, so
one bijection F alone carries the relations over, whether analogies are shown or not.
"""

from __future__ import annotations

import csv
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

WORDS = """apple bird boat book bread bridge chair church clock cloud coat corn cup desk door dress
drum fish flag floor flower forest garden glass hat hill horse house island key king knife lake lamp
leaf letter milk moon mountain nail paper pencil pipe plate ring river road rope salt school ship
shirt shoe snow spoon star stone sugar sun table tower train tree wall wheel window""".split()
# two tokens each for Gemma 3, and no token twice
NONSENSE = """kraimp kaib draif skeeng zwisk glelk fraip snolt praf pleesh vaix drilt shaf grex kliz
skoov groong dreft smelk quoob sneelt spuv vurb noorp blov kreg skoz smeeg moomp flalk peent hailk
keeft feez quap zint nenk deemp slolk kleex""".split()
RELATION_NAMES = """bafin dulop fimeg gorul hebat jarim kodub lufen mabor netig pilaz ruvok sadim
tigol vebar wolun zamek bipor cudan dofel fagur gimol hudar jolep kimub lobat murif nafol pegan ralob
senuk tulim vadop wefil zorag bonim digal fopek gulan havor""".split()
ORDERED = {"digits": string.digits, "letters": string.ascii_uppercase}
ALPHABETS: dict[str, Sequence[str]] = {**ORDERED, "words": WORDS, "nonsense": NONSENSE}

# Only "one-to-one" relations can be one translation e_t = e_s + f with f other than 0: many-to-one
# would give different sources one embedding, and what is its own inverse means e_s = e_s + 2 f.
# Colours and places of work are the usual ones, languages official or those of the majority.
RELATIONS = {
    **dict.fromkeys(("adjective", "agent", "capital", "comparative", "demonym"), "one-to-one"),
    **dict.fromkeys(
        ("female", "french", "ordinal", "past", "plural", "third_person"), "one-to-one"
    ),
    **dict.fromkeys(("colour", "language", "workplace", "young"), "many-to-one"),
    "opposite": "own inverse",
}
Item = TypeVar("Item")


@dataclass(frozen=True)
class PromptConfig:
    """One kind of made-up prompt.

    With `short_cut` each target lies a constant number of places after (or before) its source, so
    that shown analogies give the answer and no relation is needed. Without it, in the alphabets that
    have an order, the queried pair has neither the offset nor the sum of places of any other pair,
    round the end of the alphabet or not: no constant offset and no mirror holds. With `shared` an
    entity is the mark of its category and an index, which source and target share: A1 and B1, or
    A-cat and B-cat; without it all entities are different symbols. With `shown` at entities - 1 the
    answer is the one target not shown.
    """

    entities: int = 4  # in each category
    shown: int = 2  # analogies before the queried one
    alphabet: str = "letters"
    short_cut: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.entities <= 5:
            raise ValueError(f"entities is {self.entities}: set 2 <= entities <= 5")
        if not 0 <= self.shown < self.entities:
            raise ValueError(f"shown is {self.shown}: set 0 <= shown <= {self.entities - 1}")
        if self.alphabet not in ALPHABETS:
            raise ValueError(f"alphabet {self.alphabet!r}: use one of {', '.join(ALPHABETS)}")
        if self.short_cut and self.alphabet not in ORDERED:
            raise ValueError(f"alphabet {self.alphabet!r} has no order: set short_cut=False")
        if self.short_cut and self.shared:
            raise ValueError("short_cut moves what shared keeps: set one of them to False")


class AnalogyPrompt(NamedTuple):
    """A text and how it goes on; `candidates` are wrong answers, with their space as the answer has.

    `sources` stand in order of first mention; the last sentence asks for `targets[query]`.
    """

    text: str
    answer: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]  # targets[i] = F(sources[i])
    query: int
    candidates: tuple[str, ...]


def analogy_prompts(
    config: PromptConfig, n: int, generator: torch.Generator
) -> list[AnalogyPrompt]:
    """`n` prompts in random order; the generator lives on the CPU, as in `logic.sample`.

    The queried source is the first, second, ... mentioned of its category equally often up to one,
    and so is the answer of its own. Raises ValueError for `n` below 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}: ask for at least one prompt")
    e = config.entities
    # one block of e prompts has all places of both; e blocks have all combinations
    places = [((i + i // e) % e, i % e) for i in range(n)]
    return [_prompt(config, *place, generator) for place in _draw(places, n, generator)]


def _prompt(
    config: PromptConfig, source_place: int, target_place: int, generator: torch.Generator
) -> AnalogyPrompt:
    """One prompt whose queried source and answer are mentioned at these places."""
    pairs = _pairs(config, generator)
    (source, target), others, image = pairs[0], pairs[1:], dict(pairs)
    stated = _stated(config.entities, generator)
    facts = [(names[h], r, names[t]) for names in zip(*pairs) for h, r, t in stated]
    while True:
        facts = _draw(facts, len(facts), generator)
        mentioned = list(dict.fromkeys(name for head, _, tail in facts for name in (head, tail)))
        sources = [name for name in mentioned if name in image]
        targets = [name for name in mentioned if name not in image]
        if (sources.index(source), targets.index(target)) == (source_place, target_place):
            break
    shown = [f"{a} is to {b}." for a, b in _draw(others, config.shown, generator)]
    text = " ".join([*(f"{' '.join(fact)}." for fact in facts), *shown, f"{source} is to"])
    images = tuple(image[name] for name in sources)
    wrong = tuple(f" {name}" for name in images if name != target)
    return AnalogyPrompt(text, f" {target}", tuple(sources), images, source_place, wrong)


def _pairs(config: PromptConfig, generator: torch.Generator) -> list[tuple[str, str]]:
    """Sources and their targets, the queried pair first."""
    symbols, e = ALPHABETS[config.alphabet], config.entities
    if config.shared:
        index = _draw(symbols, e, generator)
        free = [letter for letter in string.ascii_uppercase if letter not in index]
        dash = "" if config.alphabet == "digits" else "-"
        a, b = _draw(free, 2, generator)
        return [(f"{a}{dash}{symbol}", f"{b}{dash}{symbol}") for symbol in index]
    size = len(symbols)
    while True:
        order = _draw(range(size), size, generator)
        moved = config.short_cut
        pairs = _moved(order, e, generator) if moved else list(zip(order[:e], order[e : 2 * e]))
        if len(pairs) == e and (moved or config.alphabet not in ORDERED or _apart(pairs, size)):
            return [(symbols[s], symbols[t]) for s, t in pairs]


def _apart(pairs: list[tuple[int, int]], size: int) -> bool:
    """Whether neither offset nor sum of the first pair comes again, modulo `size`."""
    (s, t), others = pairs[0], pairs[1:]
    return all((t - s - v + u) % size and (t + s - v - u) % size for u, v in others)


def _moved(order: list[int], entities: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """At most `entities` pairs (p, p + offset), taken in `order` as long as no place comes twice."""
    (offset,) = _draw([k for k in range(1 - len(order), len(order)) if k], 1, generator)
    pairs: dict[int, int] = {}
    for place in order:
        free = {place, place + offset}.isdisjoint({*pairs, *pairs.values()})
        if free and place + offset in order and len(pairs) < entities:
            pairs[place] = place + offset
    return list(pairs.items())


def _stated(entities: int, generator: torch.Generator) -> list[tuple[int, str, int]]:
    """Head, relation name and tail of 2 (entities - 1) pairs: a random cycle, then random chords."""
    cycle = _draw(range(entities), entities, generator)
    stated = list(zip(cycle, [*cycle[1:], cycle[0]]))
    chords = [(h, t) for h in cycle for t in cycle if h != t and (h, t) not in stated]
    stated += _draw(chords, entities - 2, generator)
    names = _draw(RELATION_NAMES, len(stated), generator)
    return [(head, name, tail) for (head, tail), name in zip(stated, names)]


def _draw(items: Sequence[Item], k: int, generator: torch.Generator) -> list[Item]:
    """`k` different items in random order."""
    return [items[i] for i in torch.randperm(len(items), generator=generator)[:k].tolist()]


class WordPair(NamedTuple):
    relation: str
    source: str
    target: str


def word_pairs() -> list[WordPair]:
    """English word pairs in the relations of `RELATIONS`, written for this book, in order of relation."""
    text = Path(__file__).with_name("word_pairs.csv").read_text(encoding="utf-8")
    return [WordPair(*row) for row in csv.reader(text.splitlines()[1:])]


def single_tokens(
    pairs: Sequence[WordPair], encode: Callable[[str], list[int]]
) -> tuple[list[WordPair], dict[str, tuple[int, int]]]:
    """The pairs with one token a word after a space, and how many of each relation before and after."""
    kept = [p for p in pairs if all(len(encode(f" {word}")) == 1 for word in p[1:])]
    before, after = Counter(p.relation for p in pairs), Counter(p.relation for p in kept)
    return kept, {name: (before[name], after[name]) for name in before}


def natural_prompt(shown: Sequence[WordPair], query: WordPair) -> tuple[str, str]:
    """Text and answer: "France is to Paris. Italy is to" and " Rome".

    Raises ValueError when `query` is among `shown` or the relations differ.
    """
    if query.source in [pair.source for pair in shown]:
        raise ValueError(f"{query.source} is shown already: ask for another pair")
    if strange := {pair.relation for pair in shown} - {query.relation}:
        raise ValueError(f"shown has {', '.join(sorted(strange))}, query has {query.relation}")
    sentences = [f"{pair.source} is to {pair.target}." for pair in shown]
    return " ".join([*sentences, f"{query.source} is to"]), f" {query.target}"
