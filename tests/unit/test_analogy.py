"""The analogy task: every fact right and none missing, honest splits, blind ids, one seed one world."""

import dataclasses
import hashlib
import math
import time
from collections import Counter, defaultdict
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.generators import analogy
from lib.generators.analogy import AnalogyConfig, draw

KINDS = ("compositional", "analogical")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(facts):
    return [tuple(fact) for fact in facts.tolist()]


def z_of_uniform(counts):
    """How many standard deviations chi-square lies above its expectation if all are as likely."""
    expected = counts.sum() / counts.numel()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    cells = counts.numel() - 1
    return (statistic - cells) / math.sqrt(2 * cells)


@st.composite
def configs(drawn):
    n = drawn(st.integers(3, 7))
    short_cut = drawn(st.booleans())
    relations = drawn(st.none() | st.integers(n - 1, n * (n - 1))) if short_cut else None
    least = relations or (n * (n - 1) if short_cut else n - 1)
    share = st.sampled_from([0.0, 1.0, 0.5]) | st.floats(0, 1)
    implicit = drawn(st.booleans())
    return AnalogyConfig(
        entities=n,
        relations=relations,
        vocabulary=drawn(st.integers(least, least + 20)),
        comp_ood=drawn(share),
        ana_ood=drawn(st.floats(0, 1 - 2 / n)) if implicit else drawn(share),
        noise=drawn(st.just(0.0) | share),
        functors=drawn(st.integers(1, 3)),
        implicit=implicit,
        short_cut=short_cut,
    )


# ---- every fact, by plain loops that know nothing of tensors ----


def world(config, drawn):
    """The same as dictionaries: members of each category, r of a pair, F of a functor."""
    members = drawn.entity.tolist()
    r = {}
    for names, table in zip(members, drawn.relation.tolist()):
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                if i != j:
                    r[a, b] = table[i][j]
    f = [dict(zip(members[0], names)) for names in members[1:]]
    return members, r, f


@settings(max_examples=100)
@given(configs(), st.integers(0, 5))
def test_facts_are_what_loops_over_the_graph_find(config, seed):
    drawn = draw(config, seeded(seed))
    members, r, f = world(config, drawn)

    atomic = {(a, r[a, b], b) for names in members for a in names for b in names if a != b}
    assert sorted(rows(drawn.atomic)) == sorted(atomic)

    compositional = set()
    for names in members:
        for a in names:
            for b in names:
                for c in names:
                    if len({a, b, c}) == 3:
                        compositional.add((a, r[a, b], r[b, c], c))
    comp_id, comp_ood = rows(drawn.compositional.id), rows(drawn.compositional.ood)
    assert sorted(comp_id + comp_ood) == sorted(compositional)

    ana_id, ana_ood = rows(drawn.analogical.id), rows(drawn.analogical.ood)
    if config.implicit:
        known = [{a for s, fs, a, _ in ana_id if fs in F.values()} for F in f]
        expected_id, expected_ood = [], []
        for F, inside in zip(f, known):
            for s in inside:
                expected_id += [(s, F[s], a, F[a]) for a in inside if a != s]
                expected_ood += [(s, F[s], a, F[a]) for a in F if a not in inside]
        assert sorted(ana_id) == sorted(expected_id)
        assert sorted(ana_ood) == sorted(expected_ood)
        held_out = [config.entities - len(inside) for inside in known]
    else:
        tokens = drawn.functor.tolist()
        everything = [(a, token, F[a]) for token, F in zip(tokens, f) for a in F]
        assert sorted(ana_id + ana_ood) == sorted(everything)
        held_out = [sum(fact[1] == token for fact in ana_ood) for token in tokens]

    def half_up(share, total):  # exact, unlike the product of floats
        return math.floor(Fraction(share) * total + Fraction(1, 2) + Fraction(1, 10**9))

    assert len(comp_ood) == half_up(config.comp_ood, len(compositional))
    assert held_out == [half_up(config.ana_ood, config.entities)] * config.functors


@settings(max_examples=100)
@given(configs(), st.integers(0, 5))
def test_the_graph_is_what_was_asked_for(config, seed):
    drawn = draw(config, seeded(seed))
    members, r, f = world(config, drawn)
    n = config.entities
    assert [len(names) for names in members] == [n] * (config.functors + 1)
    flat = [a for names in members for a in names]
    assert sorted(flat) == list(range(n * (config.functors + 1)))
    assert drawn.functor.tolist() == (
        [] if config.implicit else list(range(len(flat), len(flat) + config.functors))
    )
    for a in flat:  # (a, r) -> b is a function
        heads = [name for (head, _), name in r.items() if head == a]
        assert len(heads) == len(set(heads)) == n - 1
    for c in range(len(members)):  # permuted, never replaced
        assert {r[a, b] for a in members[c] for b in members[c] if a != b} == set(r.values())
    assert len(set(r.values())) == config.n_relations
    assert set(r.values()) <= set(config.names)
    assert (drawn.relation.diagonal(dim1=1, dim2=2) == -1).all()
    for F in f:
        changed = sum(r[F[a], F[b]] != r[a, b] for a in F for b in F if a != b)
        assert changed == config.n_rewired
    assert config.d_vocab == len(flat) + len(drawn.functor) + config.vocabulary
    for split in (drawn.compositional, drawn.analogical):
        for facts in split:
            assert facts.dtype == torch.long
            assert not len(facts) or 0 <= int(facts.min()) <= int(facts.max()) < config.d_vocab


@given(configs(), st.integers(0, 5))
def test_held_out_facts_follow_from_facts_to_train_on(config, seed):
    """Compositions from atomic facts alone; implicit examples show no held-out analogy."""
    drawn = draw(config, seeded(seed))
    answer = {(a, name): b for a, name, b in rows(drawn.atomic)}
    for split in drawn.compositional:
        for a, r1, r2, c in rows(split):
            assert answer[answer[a, r1], r2] == c
    if config.implicit:
        known = {(a, fa) for _, _, a, fa in rows(drawn.analogical.id)}
        for split in drawn.analogical:
            assert {(s, fs) for s, fs, _, _ in rows(split)} == (known if len(split) else set())
        assert not known & {(a, fa) for _, _, a, fa in rows(drawn.analogical.ood)}


# ---- numbers ----


@pytest.mark.parametrize(
    ("n", "atomic", "comp_id", "comp_ood", "ana_id", "ana_ood", "implicit_id", "implicit_ood"),
    [(15, 420, 546, 4914, 10, 5, 90, 50), (10, 180, 144, 1296, 7, 3, 42, 21)],
)
def test_numbers_of_facts(n, atomic, comp_id, comp_ood, ana_id, ana_ood, implicit_id, implicit_ood):
    config = AnalogyConfig(entities=n)
    drawn = draw(config, seeded())
    assert drawn.atomic.shape == (atomic, 3)
    assert [tuple(facts.shape) for facts in drawn.compositional] == [(comp_id, 4), (comp_ood, 4)]
    assert [tuple(facts.shape) for facts in drawn.analogical] == [(ana_id, 3), (ana_ood, 3)]
    implicit = draw(dataclasses.replace(config, implicit=True), seeded()).analogical
    assert [tuple(facts.shape) for facts in implicit] == [(implicit_id, 4), (implicit_ood, 4)]
    assert config.n_relations == n * (n - 1)
    assert config.d_vocab == 2 * n + 1 + 10_000


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_or_everything_held_out(share):
    drawn = draw(AnalogyConfig(6, comp_ood=share, ana_ood=share), seeded())
    for kind, total, width in zip(KINDS, (240, 6), (4, 3)):
        split = getattr(drawn, kind)
        full, empty = (split.id, split.ood) if share == 0 else (split.ood, split.id)
        assert full.shape == (total, width)
        assert empty.shape == (0, width)


@pytest.mark.parametrize(
    ("n", "noise", "changed"),
    [
        (15, 0.0, 0), (15, 0.1, 21), (15, 0.5, 105), (15, 1.0, 210), (10, 0.25, 23),
        (10, 0.9 / 90, 0), (10, 1.0 / 90, 2), (10, 1.4 / 90, 2), (10, 3 / 90, 3), (4, 11 / 12, 11),
        (4, 7 / 12, 7), (3, 0.1, 0), (3, 1 / 6, 2), (3, 2.9 / 6, 2), (3, 3 / 6, 4), (3, 1.0, 6),
    ],
)  # fmt: skip
def test_noise_changes_as_many_pairs_as_it_can(n, noise, changed):
    config = AnalogyConfig(n, noise=noise, functors=2)
    assert config.n_rewired == changed
    relation = draw(config, seeded()).relation
    counts = (relation[1:] != relation[0]).sum(2)
    assert counts.sum(1).tolist() == [changed] * 2
    if changed >= 2 * n:  # spread evenly over head entities
        assert int(counts.max() - counts.min()) <= 1
    if changed > 2 and n > 3:  # of three entities there is one way to change all pairs
        assert not torch.equal(relation[1], relation[2])


@pytest.mark.parametrize("relations", [9, 15, 30, 60, 89, 90])
def test_relations_that_occur_are_used_equally_often(relations):
    table = draw(AnalogyConfig(10, relations), seeded()).relation[0]
    counts = Counter(table[table >= 0].tolist())
    assert len(counts) == relations
    assert max(counts.values()) - min(counts.values()) <= 1


# ---- the short cut ----


def targets_by(facts, *places):
    found = defaultdict(Counter)
    for fact in facts:
        found[tuple(fact[place] for place in places)][fact[-1]] += 1
    return found


def everything(split):
    return rows(torch.cat(list(split)))


@pytest.mark.parametrize("functors", [1, 2])
def test_with_the_short_cut_the_last_relation_leaves_one_target_a_category(functors):
    drawn = draw(AnalogyConfig(functors=functors), seeded())
    column = {entity: i for names in drawn.entity.tolist() for i, entity in enumerate(names)}
    for targets in targets_by(everything(drawn.compositional), 2).values():
        assert len(targets) == functors + 1
        assert len({column[target] for target in targets}) == 1


def test_without_the_short_cut_the_last_relation_says_nothing():
    config = AnalogyConfig(short_cut=False)
    drawn = draw(config, seeded())
    n = config.entities
    facts = everything(drawn.compositional)
    by_last = targets_by(facts, 2)
    assert len(by_last) == config.n_relations == n - 1
    for targets in by_last.values():
        assert dict(targets) == dict.fromkeys(drawn.entity.flatten().tolist(), n - 2)
    for places in [(0, 1), (0, 2)]:  # nor does it with the source, which tells the category
        assert {len(targets) for targets in targets_by(facts, *places).values()} == {n - 2}
    assert {len(targets) for targets in targets_by(facts, 1, 2).values()} == {2 * n}


def test_without_the_short_cut_relations_add_up():
    drawn = draw(AnalogyConfig(7, short_cut=False, ana_ood=0.0), seeded(3))
    for table in drawn.relation:
        for shift in range(7):  # turned, the circle is the same
            assert torch.equal(table, table.roll((shift, shift), (0, 1)))
        for name in table[0, 1:]:
            assert ((table == name).sum(0) == 1).all()
            assert ((table == name).sum(1) == 1).all()


# ---- chance ----


def test_ids_are_blind_to_the_category():
    config = AnalogyConfig(8, vocabulary=60, functors=2)
    seeds, tokens = 600, 24
    entity = torch.stack([draw(config, seeded(seed)).entity for seed in range(seeds)])
    for category in range(3):
        counts = torch.bincount(entity[:, category].flatten(), minlength=tokens).double()
        assert abs(z_of_uniform(counts)) < 4
    # Mean id of a category, in standard errors of drawing 8 of 24 without replacement.
    error = math.sqrt((tokens**2 - 1) / 12 / 8 * (tokens - 8) / (tokens - 1) / seeds)
    means = entity.double().mean((0, 2))
    assert ((means - (tokens - 1) / 2).abs() < 4 * error).all()
    # And within a world: how often do neighbouring ids share a category? 7 / 23 by chance.
    category = torch.empty(seeds, tokens, dtype=torch.long)
    category.scatter_(1, entity.flatten(1), torch.arange(3).repeat_interleave(8).expand(seeds, -1))
    same = (category[:, 1:] == category[:, :-1]).double().mean()
    assert abs(float(same) - 7 / 23) < 0.02


def test_names_and_held_out_facts_are_drawn_evenly():
    config = AnalogyConfig(5, relations=8, vocabulary=30, ana_ood=0.4, functors=2)
    names, held, categories = Counter(), Counter(), Counter()
    for seed in range(600):
        drawn = draw(config, seeded(seed))
        names.update(set(drawn.relation[0][drawn.relation[0] >= 0].tolist()))
        column = {entity: i for i, entity in enumerate(drawn.entity[0].tolist())}
        held.update((f, column[a]) for a, f, _ in rows(drawn.analogical.ood))
        category = (drawn.compositional.id[:, :1, None] == drawn.entity.flatten()).flatten(1)
        categories.update((category.long().argmax(1) // 5).tolist())
    assert set(names) == set(config.names)
    for counts in (names, held, categories):
        assert z_of_uniform(torch.tensor(list(counts.values())).double()) < 5
    assert len(held) == 10


def test_relations_meet_pairs_and_noise_meets_heads_by_chance():
    config = AnalogyConfig(5, relations=14, vocabulary=14, noise=0.2)
    repeated, rewired = torch.zeros(5), torch.zeros(5)
    for seed in range(500):
        first, second = draw(config, seeded(seed)).relation
        repeated += torch.isin(first[3], first[:3][first[:3] >= 0])  # two of head 3's relations
        rewired += (first != second).any(1)
    assert repeated[3] == 0
    assert z_of_uniform(repeated[[0, 1, 2, 4]]) < 4
    assert z_of_uniform(rewired) < 4
    assert repeated.sum() == rewired.sum() == 500 * 2


def test_each_functor_holds_out_entities_of_its_own():
    drawn = draw(AnalogyConfig(functors=3), seeded())
    held = defaultdict(set)
    for a, f, _ in rows(drawn.analogical.ood):
        held[f].add(a)
    assert len({frozenset(entities) for entities in held.values()}) == 3


def sha(drawn):
    tensors = [*drawn[:4], *drawn.compositional, *drawn.analogical]
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"noise": 0.3, "functors": 2},
        {"implicit": True},
        {"short_cut": False},
        {"relations": 20},
    ],
)
def test_one_seed_is_one_world(change):
    config = AnalogyConfig(**change)
    torch.manual_seed(1)
    once = sha(draw(config, seeded(0)))
    torch.manual_seed(2)
    assert once == sha(draw(config, seeded(0)))
    assert once != sha(draw(config, seeded(1)))


def test_noise_leaves_the_source_category_alone():
    clean, noisy = AnalogyConfig(), AnalogyConfig(noise=0.5)
    clean, noisy = draw(clean, seeded()), draw(noisy, seeded())
    assert torch.equal(clean.relation[0], noisy.relation[0])
    assert torch.equal(clean.relation[0], clean.relation[1])


# ---- settings ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entities": 2}, "set entities >= 3"),
        ({"functors": 0}, "set functors >= 1"),
        ({"comp_ood": 1.1}, "set 0 <= comp_ood <= 1"),
        ({"ana_ood": -0.1}, "set 0 <= ana_ood <= 1"),
        ({"noise": math.nan}, "set 0 <= noise <= 1"),
        ({"relations": 13}, "set 14 <= relations <= 210"),
        ({"relations": 211}, "set 14 <= relations <= 210"),
        ({"relations": 0}, "set 14 <= relations <= 210"),
        ({"relations": 20, "short_cut": False}, "leave relations at None"),
        ({"vocabulary": 209}, "set vocabulary >= 210"),
        ({"vocabulary": 13, "short_cut": False}, "set vocabulary >= 14"),
        ({"implicit": True, "ana_ood": 0.9}, "2 of 15 entities stay"),
        ({"implicit": True, "ana_ood": 1.0}, "2 of 15 entities stay"),
    ],
)
def test_impossible_settings_say_what_to_do(change, message):
    with pytest.raises(ValueError, match=message):
        AnalogyConfig(**change)


def test_just_enough_suffices():
    draw(AnalogyConfig(3, relations=2, vocabulary=2, noise=1.0), seeded())
    draw(AnalogyConfig(vocabulary=14, relations=14, short_cut=False), seeded())
    assert len(draw(AnalogyConfig(implicit=True, ana_ood=0.87), seeded()).analogical.id) == 2


def test_halves_are_rounded_up_in_spite_of_floating_point():
    assert 0.29 * 50 < 14.5
    assert analogy._round_half_up(0.29 * 50) == 15
    assert [analogy._round_half_up(x) for x in (0.0, 0.4, 0.5, 1.5, 2.49)] == [0, 0, 1, 2, 2]


def test_drawing_is_quick():
    spent = []
    for seed in range(5):
        start = time.process_time()
        draw(AnalogyConfig(), seeded(seed))
        spent.append(time.process_time() - start)
    assert min(spent) < 0.05
