"""The task with two premises: right answers, honest splits, T and F alike but for the derivation."""

import functools
import hashlib
import math
import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.generators import horn
from lib.generators.logic import SPLITS, decode

TASKS = [horn.HornConfig(derived, facts, 30, 20) for derived, facts in ((1, 2), (3, 2), (4, 3))]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.derived}rules")
every_split = pytest.mark.parametrize("split", SPLITS)
# Just enough names.
any_task = st.tuples(st.integers(1, 5), st.integers(2, 4)).map(
    lambda size: horn.HornConfig(*size, 2 * sum(size), 2 * sum(size))
)
any_split = st.sampled_from(SPLITS)
any_seed = st.integers(0, 2**40)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(counts):
    """Within 5 standard deviations of what chi-square is on average (cells - 1)."""
    expected = counts.sum() / counts.numel()
    cells = counts.numel() - 1
    return ((counts - expected) ** 2 / expected).sum() < cells + 5 * math.sqrt(2 * cells)


def decoded(task, problems):
    """Problem by problem, the words of prompt and answer."""
    words = decode(task, problems.tokens.flatten()).split()
    for i in range(0, len(words), task.length):
        yield words[i : i + task.prompt_length], words[i + task.prompt_length : i + task.length]


def parts(prompt, answer):
    """A problem cut at its special words; `because` gives the premises of each concluded name."""
    text = " ".join(prompt)
    rules = re.findall(r"(?:(\w+) & )?(\w+) > (\w+)", text)
    p = SimpleNamespace(prompt=prompt, query=prompt[-2], answer=answer)
    p.facts = re.findall(r"FACT (\w+)", text)
    p.because = {name: [first, second] if first else [second] for first, second, name in rules}
    p.base = {*p.facts}.union(*p.because.values()) - {*p.because}  # of the false side too
    return p


def chain(problem, known, enough=all):
    """The round in which each name follows; `enough` of the premises must be known."""
    rules, rounds, step = problem.because.items(), dict.fromkeys(known, 0), 0
    while True:
        new = [c for c, names in rules if c not in rounds and enough(n in rounds for n in names)]
        if not new:
            return rounds
        step += 1
        rounds.update(dict.fromkeys(new, step))


@every_task
@every_split
def test_forward_chaining_agrees(task, split):
    n = 10_000 // (len(TASKS) * len(SPLITS)) + 1  # 10,000 in all
    for prompt, answer in decoded(task, horn.sample(task, n, seeded(1), split)):
        assert horn.solve(" ".join(prompt)).split() == answer


@pytest.mark.parametrize(
    ("rules", "query", "answer"),
    [
        ("A & C > D X > Z B > C Z & A > W", "D", "C D T"),
        ("A & C > D X > Z B > C Z & A > W", "W", "C D F"),
        ("A & X > C X & A > D", "C", "F"),  # half of a rule, from either side
        ("B > D A > C", "C", "D C T"),  # one round: order of the rules, not of the facts
        ("C > E A > D B > C D > F", "F", "D C E F T"),  # rounds before order
        ("C > E D > F A > C B > D", "E", "C D E T"),  # the query ends the answer
        ("A > C B > C C & A > D", "D", "C D T"),  # one name concluded twice
        ("A > C C > A", "Z", "C F"),  # a loop ends
    ],
)
def test_the_oracle_itself_on_problems_solved_by_hand(rules, query, answer):
    assert horn.solve(f"{rules} FACT A FACT B QUERY {query} ANS") == answer


@every_task
@every_split
def test_a_fair_coin_decides_the_verdict(task, split):
    problems = horn.sample(task, 10_000, seeded(2), split)
    assert 0.45 < problems.verdict.float().mean() < 0.55
    ends = torch.where(problems.verdict, horn.TRUE, horn.FALSE)
    assert torch.equal(problems.tokens[:, -1], ends)


@given(any_task, any_split, st.booleans(), any_seed)
def test_any_problem_has_its_form(task, split, verdict, seed):
    problems = horn.sample(task, 10, seeded(seed), split, verdict)
    assert problems.tokens.shape == (10, task.prompt_length + task.answer_length)
    assert (problems.verdict == verdict).all()
    for problem in (parts(*words) for words in decoded(task, problems)):
        text = " ".join(problem.prompt)
        assert re.fullmatch(r"((\w+ & )?\w+ > \w+ )+(FACT \w+ )+QUERY \w+ ANS", text)
        rules = problem.because.values()
        assert sorted(map(len, rules)) == [1] * task.derived + [2] * task.derived
        assert all(len(set(premises)) == len(premises) for premises in rules)
        assert len(set(problem.facts)) == task.facts and not set(problem.facts) & {*problem.because}
        assert len(problem.base) <= 2 * task.facts
        assert set(chain(problem, problem.base)) == problem.base | {*problem.because}  # no loop
        derived = set(chain(problem, problem.facts)) - set(problem.facts)
        assert len(derived) == task.derived  # and nothing of the false side
        assert sorted(derived) == sorted(problem.answer[:-1])
        assert (problem.query == problem.answer[-2]) == verdict


@given(any_task, any_split, any_seed)
def test_unseen_names_stand_where_the_split_says(task, split, seed):
    tokens, holds = horn.sample(task, 20, seeded(seed), split)
    unseen, names = tokens >= task.unseen.start, tokens >= task.seen.start
    if split == "query_unseen":
        assert torch.equal(unseen, tokens == tokens[:, task.prompt_length - 2, None])
        assert torch.equal(unseen.sum(1), 2 + holds.long())  # rule, query, the answer if T
    else:
        assert torch.equal(unseen, names & (split == "all_unseen"))


@given(any_task, any_split, any_seed)
def test_one_seed_is_one_data_set(task, split, seed):
    def sha(seed):
        tokens = horn.sample(task, 50, seeded(seed), split).tokens
        return hashlib.sha256(tokens.numpy().tobytes()).hexdigest()

    assert sha(seed) == sha(seed) != sha(seed + 1)


# ---- nothing but the derivation tells T from F ----

SHORT_CUTS = {  # what a guess looks at, and the accuracy on T against F that it must stay below
    "rounds until the query": (lambda p: chain(p, p.base)[p.query], 0.515),
    "place of its rule": (lambda p: [*p.because].index(p.query), 0.515),
    "premises of its rule": (lambda p: len(p.because[p.query]), 0.515),
    "how often it appears": (lambda p: p.prompt.count(p.query), 0.505),
    # These do part of the derivation, and must not do all of it.
    "facts in its rule": (lambda p: sum(n in p.facts for n in p.because[p.query]), 0.77),
    "one step back": (lambda p: p.base - {*p.facts} & {*p.because[p.query]} == set(), 0.78),
    "any premise is enough": (lambda p: p.query in chain(p, p.facts, any), 0.86),
    "last premise is enough": (lambda p: p.query in chain(p, p.facts, lambda k: [*k][-1]), 0.94),
}


@functools.cache
def halves():
    """10,000 problems with verdict F, then 10,000 others with verdict T."""
    task = horn.HornConfig()
    draws = [horn.sample(task, 10_000, seeded(4 + v), "seen", v) for v in (False, True)]
    return [[parts(*words) for words in decoded(task, problems)] for problems in draws]


@pytest.mark.parametrize("name", SHORT_CUTS)
def test_a_short_cut_is_not_enough(name):
    """Accuracy of the best guess from one feature: a half, plus half of the total variation."""
    feature, bound = SHORT_CUTS[name]
    false, true = (Counter(map(feature, problems)) for problems in halves())
    assert sum(max(false[value], true[value]) for value in false | true) / 20_000 < bound


@every_task
@pytest.mark.parametrize("split", ["seen", "all_unseen"])
def test_the_two_verdicts_of_one_seed_differ_in_query_and_verdict_only(task, split):
    true, false = (horn.sample(task, 500, seeded(3), split, v).tokens for v in (True, False))
    differ = torch.zeros_like(true, dtype=torch.bool)
    differ[:, [task.prompt_length - 2, task.length - 1]] = True
    assert torch.equal(true != false, differ)


def test_a_false_rule_never_holds_though_half_of_it_may():
    lures = 0
    for p in halves()[0]:
        for name, why in p.because.items():
            if name not in p.answer:
                holds = [n in p.facts or n in p.answer for n in why]
                assert not all(holds)
                lures += any(holds)
    assert lures > 2000


@every_task
def test_half_of_the_base_names_beside_a_premise_that_fails_are_facts(task):
    premises, *_ = horn._rules(task, 20_000, seeded(9))
    second = premises[:, task.derived :, 1].flatten()
    base = task.facts + task.derived
    facts, own = (
        second[second < task.facts],
        second[(second >= base) & (second < base + task.facts)],
    )
    assert uniform(torch.tensor([len(facts), len(own)])) and uniform(torch.bincount(facts))


def test_any_rule_stands_anywhere():
    """True side or false, one premise or two: each place of the prompt gets as many."""
    rows = [[(c in p.answer, len(why) == 2) for c, why in p.because.items()] for p in halves()[0]]
    for counts in torch.tensor(rows).sum(0).unbind(1):
        assert counts.sum() == 30_000 and uniform(counts)


@every_task
def test_each_earlier_name_is_a_premise_equally_often(task):
    premises, double, _ = horn._rules(task, 20_000, seeded(7))
    assert uniform(double.sum(0))
    for i in range(task.derived):
        other = premises[:, task.derived + i, 0] - task.facts - task.derived
        for names in (premises[:, i, 0], premises[:, i, 1], other):
            counts = torch.bincount(names)
            assert len(counts) == task.facts + i and uniform(counts)


@every_task
def test_each_name_is_drawn_equally_often_as_fact_and_query(task):
    tokens = horn.sample(task, 20_000, seeded(8)).tokens[:, : task.prompt_length]
    for place in tokens[:, 8 * task.derived + 1 :: 2].unbind(1):
        counts = torch.bincount(place - task.seen.start)
        assert len(counts) == task.n_seen and uniform(counts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"derived": 0}, "set derived >= 1"),
        ({"facts": 1}, "set facts >= 2"),
        ({"n_seen": 9}, "set n_seen >= 10"),
        ({"derived": 2, "facts": 3, "n_unseen": 9}, "set n_unseen >= 10"),
    ],
)
def test_impossible_settings_say_what_to_do(settings, message):
    with pytest.raises(ValueError, match=message):
        horn.HornConfig(**settings)


@pytest.mark.parametrize(
    ("n", "split", "message"),
    [(1, "unseen", "seen, query_unseen, all_unseen"), (0, "seen", "one"), (-1, "seen", "one")],
)
def test_a_sample_that_makes_no_sense_is_refused(n, split, message):
    with pytest.raises(ValueError, match=message):
        horn.sample(TASKS[0], n, seeded(), split)


def test_decode_is_readable_and_refuses_what_is_no_token():
    task = horn.HornConfig(1, 2, 6, 6)
    ids = [task.seen[0], horn.AND, task.unseen[5], horn.ARROW, task.seen[5], horn.FACT, horn.TRUE]
    assert decode(task, ids) == "s0 & u5 > s5 FACT T"
    for token in (-1, task.d_vocab):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            decode(task, [token])
