"""Prompts in text: one right answer, no hint in places, short cuts only where asked; word pairs."""

import csv
import itertools
import string
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.generators import prompts

CSV = Path(prompts.__file__).with_name("word_pairs.csv")
PLACE = {c: i for order in (string.digits, string.ascii_uppercase) for i, c in enumerate(order)}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def kinds():
    """Every setting that exists."""
    for entities, alphabet in itertools.product((2, 3, 5), prompts.ALPHABETS):
        for short_cut, shared in ((False, False), (True, False), (False, True)):
            if not short_cut or alphabet in ("digits", "letters"):
                shown = (entities - 1) * (alphabet != "nonsense")
                yield prompts.PromptConfig(entities, shown, alphabet, short_cut, shared)


def label(c):
    return f"{c.alphabet}{c.entities}" + "-short" * c.short_cut + "-shared" * c.shared


every_kind = pytest.mark.parametrize("config", list(kinds()), ids=label)


def read(prompt):
    """Facts of the queried category and of the other, shown pairs, queried source; from the text alone."""
    *sentences, last = prompt.text.split(". ")
    words = [sentence.split() for sentence in sentences]
    facts = [tuple(w) for w in words if len(w) == 3]
    shown = [(w[0], w[3]) for w in words if w[1:3] == ["is", "to"]]
    assert len(facts) + len(shown) == len(sentences)
    query, *rest = last.split()
    assert rest == ["is", "to"]
    category = {query}  # all that facts connect to the query
    for _ in facts:
        category |= {x for h, _, t in facts if {h, t} & category for x in (h, t)}
    inside = [f for f in facts if f[0] in category]
    outside = [f for f in facts if f[0] not in category]
    return inside, outside, shown, query


def mentioned(facts):
    return list(dict.fromkeys(x for h, _, t in facts for x in (h, t)))


@every_kind
def test_one_bijection_alone_carries_the_relations_over(config):
    for prompt in prompts.analogy_prompts(config, 20, seeded(1)):
        inside, outside, shown, query = read(prompt)
        sources, targets = mentioned(inside), mentioned(outside)
        assert len(sources) == len(targets) == config.entities
        assert not set(sources) & set(targets)
        found = []
        for images in itertools.permutations(targets):
            to = dict(zip(sources, images))
            if {(to[h], r, to[t]) for h, r, t in inside} == set(outside):
                found.append(to)
        assert len(found) == 1
        assert prompt.answer == f" {found[0][query]}"
        assert dict(zip(prompt.sources, prompt.targets)) == found[0]
        assert set(shown) < set(found[0].items()) and len(set(shown)) == config.shown
        assert query not in dict(shown)


@every_kind
def test_facts_and_fields_follow_their_description(config):
    for prompt in prompts.analogy_prompts(config, 20, seeded(2)):
        inside, outside, _, query = read(prompt)
        assert list(prompt.sources) == mentioned(inside)
        assert prompt.sources[prompt.query] == query
        assert prompt.answer == f" {prompt.targets[prompt.query]}"
        wrong = set(mentioned(outside)) - {prompt.answer.strip()}
        assert Counter(prompt.candidates) == Counter(f" {name}" for name in wrong)
        for facts in (inside, outside):
            assert len({r for _, r, _ in facts}) == len(facts) == 2 * (config.entities - 1)
            assert len({(h, t) for h, _, t in facts}) == len(facts)
            assert all(h != t and r in prompts.RELATION_NAMES for h, r, t in facts)
            for side in (0, 2):  # each entity is head and tail of some fact
                assert {fact[side] for fact in facts} == set(mentioned(facts))


def test_facts_of_both_categories_are_mixed():
    first = Counter()
    for prompt in prompts.analogy_prompts(prompts.PromptConfig(5), 200, seeded(3)):
        first[prompt.text.split()[0] in prompt.sources] += 1
    assert 70 < first[True] < 130


@given(st.integers(2, 5), st.integers(1, 80), st.integers(0, 9))
def test_places_of_query_and_answer_are_balanced(entities, n, seed):
    config = prompts.PromptConfig(entities, 0, "words")
    sources, answers, both = Counter(), Counter(), Counter()
    for prompt in prompts.analogy_prompts(config, n, seeded(seed)):
        inside, outside, _, query = read(prompt)
        place = mentioned(inside).index(query), mentioned(outside).index(prompt.answer.strip())
        sources[place[0]] += 1
        answers[place[1]] += 1
        both[place] += 1
    for counts in (sources, answers):
        filled = [counts[place] for place in range(entities)]
        assert sum(filled) == n and max(filled) - min(filled) <= 1
    if n % entities**2 == 0:
        assert set(both.values()) == {n // entities**2} and len(both) == entities**2


def test_the_order_of_prompts_gives_no_hint():
    queries = [p.query for p in prompts.analogy_prompts(prompts.PromptConfig(3), 60, seeded(4))]
    assert queries != sorted(queries)
    assert len({tuple(queries[i : i + 3]) for i in range(0, 60, 3)}) > 6


@pytest.mark.parametrize("alphabet", ["digits", "letters"])
@pytest.mark.parametrize("entities", [2, 3, 4, 5])
def test_the_short_cut_holds(alphabet, entities):
    config = prompts.PromptConfig(entities, 1, alphabet, short_cut=True)
    offsets = Counter()
    for prompt in prompts.analogy_prompts(config, 60, seeded(5)):
        pairs = zip(prompt.sources, prompt.targets)
        (offset,) = {PLACE[target] - PLACE[source] for source, target in pairs}
        offsets[offset > 0] += 1
        assert offset != 0
    assert len(offsets) == 2  # both directions


@pytest.mark.parametrize("alphabet", ["digits", "letters"])
@pytest.mark.parametrize("entities", [2, 3, 4, 5])
def test_without_the_short_cut_no_offset_and_no_mirror_gives_the_answer(alphabet, entities):
    config = prompts.PromptConfig(entities, entities - 1, alphabet)
    size = len(prompts.ALPHABETS[alphabet])
    for prompt in prompts.analogy_prompts(config, 100, seeded(6)):
        pairs = list(zip(prompt.sources, prompt.targets))
        asked = PLACE[pairs.pop(prompt.query)[0]]
        for source, target in pairs:
            step, total = PLACE[target] - PLACE[source], PLACE[target] + PLACE[source]
            for guess in (asked + step, total - asked):
                assert guess % size != PLACE[prompt.answer.strip()]


@every_kind
def test_source_and_target_share_what_they_should(config):
    symbols = set(prompts.ALPHABETS[config.alphabet])
    for prompt in prompts.analogy_prompts(config, 20, seeded(7)):
        names = [*prompt.sources, *prompt.targets]
        assert len(set(names)) == 2 * config.entities
        if not config.shared:
            assert set(names) <= symbols
            continue
        dash = config.alphabet != "digits"
        assert all(name[1] == "-" for name in names) == dash
        parts = [(name[0], name[1 + dash :]) for name in names]
        assert {index for _, index in parts} <= symbols
        first, second = parts[: config.entities], parts[config.entities :]
        assert [index for _, index in first] == [index for _, index in second]
        assert len({mark for mark, _ in first}) == len({mark for mark, _ in second}) == 1
        assert first[0][0] != second[0][0]
        assert not {mark for mark, _ in parts} & {index for _, index in parts}


@every_kind
def test_one_seed_is_one_list(config):
    torch.manual_seed(1)
    once = prompts.analogy_prompts(config, 6, seeded(0))
    torch.manual_seed(2)
    assert once == prompts.analogy_prompts(config, 6, seeded(0))
    assert once != prompts.analogy_prompts(config, 6, seeded(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entities": 1, "shown": 0}, "entities is 1: set 2 <= entities <= 5"),
        ({"entities": 6}, "entities is 6"),
        ({"entities": 3, "shown": 3}, "set 0 <= shown <= 2"),
        ({"shown": -1}, "shown is -1"),
        ({"alphabet": "runes"}, "use one of digits, letters, words, nonsense"),
        ({"alphabet": "words", "short_cut": True}, "no order: set short_cut=False"),
        ({"alphabet": "nonsense", "short_cut": True}, "no order: set short_cut=False"),
        ({"short_cut": True, "shared": True}, "set one of them to False"),
    ],
)
def test_impossible_settings_say_what_to_do(settings, message):
    with pytest.raises(ValueError, match=message):
        prompts.PromptConfig(**settings)


@pytest.mark.parametrize("n", [0, -1])
def test_no_prompts_at_all_are_refused(n):
    with pytest.raises(ValueError, match="at least one"):
        prompts.analogy_prompts(prompts.PromptConfig(), n, seeded())


def test_lists_of_words_are_different_and_plain():
    lists = [prompts.WORDS, prompts.NONSENSE, prompts.RELATION_NAMES]
    together = list(itertools.chain(*lists))
    assert len(set(together)) == len(together)
    assert not {"is", "to"} & set(together)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in together)
    assert [len(words) for words in lists] == [66, 40, 40]


# ---- word pairs ----


def test_the_table_is_well_formed():
    text = CSV.read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == ["relation", "source", "target"]
    assert all(len(row) == 3 and all(x and x == x.strip() for x in row) for row in rows)
    assert rows[1:] == sorted(rows[1:])
    assert [tuple(pair) for pair in prompts.word_pairs()] == [tuple(row) for row in rows[1:]]


def test_there_are_enough_pairs_and_no_source_twice():
    pairs = prompts.word_pairs()
    counts = Counter(pair.relation for pair in pairs)
    assert len(pairs) >= 420 and len(counts) >= 14
    assert all(25 <= count <= 35 for count in counts.values())
    assert len({(pair.relation, pair.source) for pair in pairs}) == len(pairs)
    assert all(pair.source != pair.target for pair in pairs)
    assert len({(pair.source, pair.target) for pair in pairs}) == len(pairs)  # nor in two relations


@pytest.mark.parametrize("relation", prompts.RELATIONS)
def test_relations_are_of_the_kind_they_are_said_to_be(relation):
    to = {p.source: p.target for p in prompts.word_pairs() if p.relation == relation}
    repeated = len(set(to.values())) < len(to)
    chains = set(to) & set(to.values())
    kind = prompts.RELATIONS[relation]
    if kind == "own inverse":
        assert all(to[to[source]] == source for source in to)
    else:
        assert repeated == (kind == "many-to-one")
        assert not chains  # no way back to where it started


def test_the_table_of_relations_is_complete():
    assert set(prompts.RELATIONS) == {pair.relation for pair in prompts.word_pairs()}


def test_pairs_of_single_tokens_by_hand():
    pairs = [
        prompts.WordPair("capital", "France", "Paris"),
        prompts.WordPair("capital", "Peru", "Lima"),
        prompts.WordPair("young", "goose", "gosling"),
    ]
    known = {" France": 1, " Paris": 2, " Peru": 3, "Lima": 4, " goose": 5}

    def encode(text):
        return [known[text]] if text in known else [0] * len(text)

    kept, counts = prompts.single_tokens(pairs, encode)
    assert kept == pairs[:1]
    assert counts == {"capital": (2, 1), "young": (1, 0)}


def test_a_natural_prompt():
    capital = {p.source: p for p in prompts.word_pairs() if p.relation == "capital"}
    shown = [capital["France"], capital["Japan"]]
    assert prompts.natural_prompt(shown, capital["Italy"]) == (
        "France is to Paris. Japan is to Tokyo. Italy is to",
        " Rome",
    )
    assert prompts.natural_prompt([], capital["Italy"]) == ("Italy is to", " Rome")
    with pytest.raises(ValueError, match="Japan is shown already"):
        prompts.natural_prompt(shown, capital["Japan"])
    with pytest.raises(ValueError, match="shown has capital, query has young"):
        prompts.natural_prompt(shown, prompts.WordPair("young", "cow", "calf"))
