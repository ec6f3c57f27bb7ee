"""The logic task: right answers, honest splits, no hint in the order, one seed one data set."""

import hashlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import training
from lib.generators import logic
from lib.models.transformer import TransformerConfig

TASKS = [logic.LogicConfig(depth, 24, 10) for depth in (1, 2, 3)]
EVERYWHERE = [(task, split) for task in TASKS for split in logic.SPLITS]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"depth{task.depth}")
everywhere = pytest.mark.parametrize(
    ("task", "split"), EVERYWHERE, ids=[f"depth{task.depth}-{split}" for task, split in EVERYWHERE]
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def chi_square(counts):
    """Above its expectation (cells - 1) by this many standard deviations, counts are not uniform."""
    expected = counts.sum() / counts.numel()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    cells = counts.numel() - 1
    return (statistic - cells) / math.sqrt(2 * cells)


def parts(task, tokens):
    """Rules, fact, query, answer of a batch, cut by position."""
    k = task.depth
    rules = tokens[:, : 6 * k].unflatten(1, (2 * k, 3))
    return rules, tokens[:, 6 * k + 1], tokens[:, 6 * k + 3], tokens[:, task.prompt_length :]


@everywhere
def test_forward_chaining_agrees(task, split):
    n = 10_000 // len(EVERYWHERE) + 1  # 10,000 in all
    for tokens in logic.sample(task, n, seeded(1), split).tokens:
        words = logic.decode(task, tokens).split()
        prompt, answer = words[: task.prompt_length], words[task.prompt_length :]
        assert logic.solve(" ".join(prompt)).split() == answer


def test_the_oracle_itself_on_a_problem_solved_by_hand():
    assert logic.solve("B > C X > Y A > B Y > Z FACT A QUERY C ANS") == "A B C T"
    assert logic.solve("B > C X > Y A > B Y > Z FACT A QUERY Z ANS") == "A B C F"


@everywhere
def test_a_fair_coin_decides_the_verdict(task, split):
    problems = logic.sample(task, 10_000, seeded(2), split)
    assert 0.45 < problems.verdict.float().mean() < 0.55
    last = problems.tokens[:, -1]
    assert torch.equal(problems.verdict, last == logic.TRUE)
    assert ((last == logic.TRUE) | (last == logic.FALSE)).all()


@everywhere
@pytest.mark.parametrize("verdict", [True, False])
def test_a_half_is_exact(task, split, verdict):
    assert (logic.sample(task, 500, seeded(), split, verdict).verdict == verdict).all()


@everywhere
def test_the_grid_of_tokens(task, split):
    tokens = logic.sample(task, 200, seeded(3), split).tokens
    rules, _, _, answer = parts(task, tokens)
    assert tokens.shape == (200, task.length)
    assert answer.shape[1] == task.answer_length
    assert (rules[:, :, 1] == logic.ARROW).all()
    tail = tokens[:, 6 * task.depth : task.prompt_length]
    assert (tail[:, [0, 2, 4]] == torch.tensor([logic.FACT, logic.QUERY, logic.ANS])).all()


@everywhere
def test_names_within_a_problem_differ(task, split):
    rules, _, _, _ = parts(task, logic.sample(task, 1000, seeded(4), split).tokens)
    for row in rules[:, :, [0, 2]].flatten(1):
        assert len(set(row.tolist())) == task.n_names


@every_task
def test_seen_problems_hold_no_unseen_name(task):
    tokens = logic.sample(task, 5000, seeded(5)).tokens
    assert int(tokens.max()) < task.unseen.start


@every_task
def test_all_unseen_problems_hold_no_seen_name(task):
    tokens = logic.sample(task, 2000, seeded(6), "all_unseen").tokens
    assert not ((tokens >= task.seen.start) & (tokens < task.seen.stop)).any()


@every_task
@pytest.mark.parametrize("verdict", [True, False])
def test_query_unseen_stands_at_query_rule_and_answer_only(task, verdict):
    tokens = logic.sample(task, 2000, seeded(7), "query_unseen", verdict).tokens
    rules, _, query, answer = parts(task, tokens)
    assert (query >= task.unseen.start).all()
    assert ((tokens >= task.unseen.start) == (tokens == query[:, None])).all()  # no other stranger
    assert ((rules[:, :, 2] == query[:, None]).sum(1) == 1).all()
    assert not (rules[:, :, 0] == query[:, None]).any()  # last of its chain
    assert ((answer[:, -2] == query) == verdict).all()
    assert ((tokens == query[:, None]).sum(1) == (3 if verdict else 2)).all()


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_no_unseen_name_reaches_a_training_batch(seed):
    for task in TASKS:
        model = TransformerConfig(d_vocab=task.d_vocab, d_model=8, n_layers=1, n_heads=2)
        config = training.RunConfig(task=task, model=model, batch=64, steps=100, seed=seed)
        for step in range(100):
            assert int(training.batch_of(config, step).tokens.max()) < task.unseen.start


@every_task
def test_each_name_is_drawn_equally_often_at_each_place(task):
    chain = parts(task, logic.sample(task, 20_000, seeded(8)).tokens)[3][:, :-1]
    for place in chain.unbind(1):
        counts = torch.bincount(place - task.seen.start, minlength=task.n_seen).double()
        assert len(counts) == task.n_seen
        assert chi_square(counts) < 5


def test_each_ordered_draw_is_equally_likely():
    draws = logic.distinct(4, 3, 24_000, seeded(9))
    codes = (draws * torch.tensor([16, 4, 1])).sum(1)
    counts = torch.bincount(codes, minlength=64).double()
    assert int((counts > 0).sum()) == 24  # 4 x 3 x 2 ordered draws without repetition
    assert chi_square(counts[counts > 0]) < 5


@given(st.integers(1, 12), st.data())
def test_draws_differ_for_any_sizes(k, data):
    high = data.draw(st.integers(k, 30))
    draws = logic.distinct(high, k, 20, seeded(data.draw(st.integers(0, 9))))
    assert all(len(set(row)) == k and set(row) <= set(range(high)) for row in draws.tolist())


@everywhere
@pytest.mark.parametrize("verdict", [True, False])
def test_the_order_of_rules_gives_no_hint(task, split, verdict):
    tokens = logic.sample(task, 8000, seeded(10), split, verdict).tokens
    rules, fact, query, _ = parts(task, tokens)
    for rule in (rules[:, :, 0] == fact[:, None], rules[:, :, 2] == query[:, None]):
        assert (rule.sum(1) == 1).all()
        places = torch.bincount(rule.long().argmax(1), minlength=2 * task.depth).double()
        assert chi_square(places) < 5


def sha(problems):
    return hashlib.sha256(problems.tokens.numpy().tobytes()).hexdigest()


@everywhere
def test_one_seed_is_one_data_set(task, split):
    torch.manual_seed(1)
    once = sha(logic.sample(task, 100, seeded(0), split))
    torch.manual_seed(2)
    assert once == sha(logic.sample(task, 100, seeded(0), split))
    assert once != sha(logic.sample(task, 100, seeded(1), split))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "set depth >= 1"),
        ({"depth": -2}, "set depth >= 1"),
        ({"depth": 2, "n_seen": 5}, "set n_seen >= 6"),
        ({"depth": 3, "n_unseen": 7}, "set n_unseen >= 8"),
        ({"n_seen": 0}, "set n_seen >= 6"),
    ],
)
def test_impossible_settings_say_what_to_do(settings, message):
    with pytest.raises(ValueError, match=message):
        logic.LogicConfig(**settings)


def test_just_enough_names_suffice():
    task = logic.LogicConfig(2, 6, 6)
    for split in logic.SPLITS:
        assert logic.sample(task, 50, seeded(), split).tokens.shape == (50, task.length)


def test_an_unknown_split_names_the_known_ones():
    with pytest.raises(ValueError, match="seen, query_unseen, all_unseen"):
        logic.sample(TASKS[0], 1, seeded(), "unseen")


@pytest.mark.parametrize("n", [0, -1])
def test_no_problems_at_all_are_refused(n):
    with pytest.raises(ValueError, match="at least one"):
        logic.sample(TASKS[0], n, seeded())


@pytest.mark.parametrize("token", [-1, TASKS[0].d_vocab])
def test_decode_refuses_what_is_no_token(token):
    with pytest.raises(ValueError, match="outside the vocabulary"):
        logic.decode(TASKS[0], [token])


def test_decoded_names_are_readable():
    task = logic.LogicConfig(1, 4, 4)
    ids = [task.seen[0], logic.ARROW, task.unseen[3], logic.FACT, task.seen[3], logic.TRUE]
    assert logic.decode(task, ids) == "s0 > u3 FACT s3 T"
