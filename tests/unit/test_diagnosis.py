"""Collapsed rows of a matrix: planted ones are found, what only looks like them is not."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import diagnosis
from lib.diagnosis import diagnose, reserved_tokens

N, D = 400, 64
UNUSED, HIDDEN = list(range(300, 340)), [17, 251, 390]
GROUPS = {"low": UNUSED[:15], "high": UNUSED[15:]}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def plant(W, rows, own=0.1, seed=1):
    """`rows` become one direction and small parts of their own, lengths kept."""
    new = normal(W.shape[1], seed=seed) + own * normal(len(rows), W.shape[1], seed=seed + 1)
    planted = W.clone()
    planted[rows] = new / new.norm(dim=1, keepdim=True) * W[rows].norm(dim=1, keepdim=True)
    return planted


def collapsed():
    return plant(normal(N, D), UNUSED + HIDDEN)


# ---- rows that nothing writes ----


@pytest.mark.parametrize(
    "name",
    ["<unused7>", "[unused7]", "<|reserved_special_token_3|>", "<RESERVED_0>", "<dummy12>"],
)
def test_names_that_say_so_are_found(name):
    vocabulary = {"the": 0, name: 1, "unused7": 2, "<b>": 3, "<unused>": 4, "<eos>": 5}
    assert list(reserved_tokens(vocabulary, 6).values()) == [[1]]


@pytest.mark.parametrize("name", ["<unusedX>", "x<unused1>", "<unused1> ", "<h1>", "(unused1)"])
def test_other_names_are_not(name):
    assert reserved_tokens({name: 0}, 1) == {}


def test_each_stretch_is_a_group_whatever_the_order_of_names():
    vocabulary = {f"<unused{i}>": i for i in (9, 3, 8, 4, 5)}
    vocabulary |= {str(i): i for i in (0, 1, 2, 6, 7)}
    assert reserved_tokens(vocabulary, 10) == {
        "names like <unused0>, ids 3 to 5": [3, 4, 5],
        "names like <unused0>, ids 8 to 9": [8, 9],
    }


def test_rows_that_the_tokenizer_has_no_name_for_are_a_group_of_their_own():
    vocabulary = {"a": 0, "<unused0>": 1, "b": 3}
    assert reserved_tokens(vocabulary, 6) == {
        "names like <unused0>, ids 1 to 1": [1],
        "rows beyond the tokenizer": [2, 4, 5],
    }


def test_names_that_the_matrix_has_no_row_for_do_not_count():
    assert reserved_tokens({"a": 0, "<unused0>": 1, "<unused1>": 2}, 2) == {
        "names like <unused0>, ids 1 to 1": [1]
    }


# ---- what is found ----


def test_planted_rows_are_found_named_or_not():
    found = diagnose(collapsed(), GROUPS)
    assert found.collapsed and not found.short and found.zero == []
    assert set(found.hidden) == set(HIDDEN)
    ordered = found.score[found.hidden].tolist()
    assert ordered == sorted(ordered, reverse=True) and ordered[-1] > 0.9
    assert list(found.spreads) == ["low", "high", "used, at random"]
    for name, ids in GROUPS.items():
        spread = found.spreads[name]
        assert spread.rows == len(ids) and spread.effective_rank < len(ids) / 2
        assert spread.mean_cosine > 0.9 > 0.2 > spread.individual_share
        assert spread.score > 0.9
    used = found.spreads["used, at random"]
    assert used.rows == len(UNUSED)
    assert abs(used.mean_cosine) < 0.05 and abs(used.score) < 0.2 and used.individual_share > 0.9


def test_rows_of_a_frozen_matrix_have_not_collapsed():
    found = diagnose(normal(N, 128), GROUPS)
    assert not found.collapsed and not found.short
    assert found.hidden == [] and found.zero == []
    assert all(abs(spread.score) < 0.2 for spread in found.spreads.values())


@pytest.mark.parametrize(
    "W",
    [normal(N, 128) + 3 * normal(128, seed=5), normal(N, 128).abs(), 2 - normal(N, 128).abs()],
    ids=["a common vector", "equal signs", "mostly equal signs"],
)
def test_what_all_rows_share_is_no_collapse(W):
    found = diagnose(W, GROUPS)
    assert found.spreads["high"].mean_cosine > 0.5  # what a cosine alone would call collapsed
    assert not found.collapsed and found.hidden == []


def test_a_collapse_shows_under_a_vector_that_all_rows_share():
    found = diagnose(collapsed() + 2 * normal(D, seed=5), GROUPS)
    assert found.collapsed and set(found.hidden) == set(HIDDEN)


@pytest.mark.parametrize("power", [-9, 0.3, 9])
def test_no_length_changes_a_score(power):
    W, before = collapsed(), diagnose(collapsed(), GROUPS)
    for factor in (2.0**power, torch.exp(power / 9 * normal(N, 1, seed=7))):
        after = diagnose(factor * W, GROUPS)
        torch.testing.assert_close(after.score, before.score, atol=1e-5, rtol=0)
        assert after.collapsed == before.collapsed
    torch.testing.assert_close(diagnose(2.0**power * W, GROUPS).length, before.length)


def test_lengths_are_over_that_of_a_used_row():
    W = normal(N, D)
    W[UNUSED] *= 3
    W[5] = 0
    norm = W.double().norm(dim=1)
    typical = norm[[i for i in range(N) if i not in [*UNUSED, 5]]].median()
    found = diagnose(W, GROUPS)
    torch.testing.assert_close(found.length.double(), norm / typical)
    high = (norm / typical)[GROUPS["high"]].median()
    assert found.spreads["high"].length == pytest.approx(float(high))


def test_rows_that_are_zero_are_collapsed_and_those_without_a_name_hidden():
    W = normal(N, D)
    W[[*UNUSED, *HIDDEN]] = 0
    found = diagnose(W, GROUPS)
    assert found.collapsed and found.short
    assert found.zero == sorted([*UNUSED, *HIDDEN])
    assert sorted(found.hidden) == HIDDEN
    assert np.isnan([found.spreads["low"].score, found.spreads["low"].mean_cosine]).all()
    assert found.spreads["low"].length == 0


def test_zero_rows_come_first_and_are_no_reason_to_call_the_rest_collapsed():
    W = collapsed()
    W[40] = 0
    assert diagnose(W, GROUPS).hidden[0] == 40
    W = normal(N, D)
    W[[40, *UNUSED[:4]]] = 0
    found = diagnose(W, GROUPS)
    assert found.hidden == [40] and found.zero == [40, *UNUSED[:4]] and not found.collapsed


def test_rows_that_only_decayed_are_short_and_not_collapsed():
    W = normal(N, D)
    W[UNUSED + HIDDEN] *= 0.05
    found = diagnose(W, GROUPS)
    assert found.short and not found.collapsed
    assert set(found.hidden) <= set(HIDDEN) and len(found.hidden) >= 2


def test_a_few_long_rows_among_short_ones_make_no_used_row_hidden():
    W = normal(N, D)
    W[UNUSED[4:] + HIDDEN] *= 0.05  # four names said to be unused are in use
    found = diagnose(W, GROUPS)
    assert found.short and set(found.hidden) == set(HIDDEN)


def test_one_direction_alone_is_not_judged():
    """No other row is left to take the direction from."""
    W = normal(N, D)
    W[UNUSED[1:]] = 0
    found = diagnose(W, GROUPS)
    assert found.score[UNUSED[0]].isnan() and found.collapsed
    one = W[UNUSED[0]] / W[UNUSED[0]].norm()
    assert found.hidden == [] and found.score[:300].abs().max() < 0.6
    assert diagnose(torch.cat([W, one[None]]), GROUPS).score[-1] == pytest.approx(1, abs=1e-5)


# ---- another way to the same numbers ----


def by_hand(W, unused):
    """Scores in float64, a row at a time; each row left out of the direction it is held against."""
    x = W.double().numpy()
    unit = [row / np.sqrt(row @ row) for row in x]
    centre = np.mean([unit[i] for i in range(len(x)) if i not in unused], axis=0)
    own = [(u - centre) / np.linalg.norm(u - centre) for u in unit]
    scores = []
    for i, row in enumerate(own):
        direction = np.sum([own[j] for j in unused if j != i], axis=0)
        scores.append(row @ direction / np.linalg.norm(direction))
    return np.array(scores)


@pytest.mark.parametrize("unused", [UNUSED, UNUSED[:2], [0, 7, 399]])
def test_scores_are_those_of_a_loop(unused):
    for W in (normal(N, D), collapsed(), collapsed() + 1):
        found = diagnose(W, {"these": unused})
        np.testing.assert_allclose(found.score.numpy(), by_hand(W, unused), atol=2e-6)


def test_two_unused_rows_are_each_others_only_witness():
    W = normal(50, 8)
    score = diagnose(W, {"a": [3], "b": [9]}).score
    assert float(score[3]) == pytest.approx(float(score[9]), abs=1e-6)


def test_how_the_matrix_is_cut_changes_nothing(monkeypatch):
    whole = diagnose(collapsed(), GROUPS)
    for chunk in (7, 100, 399):
        monkeypatch.setattr(diagnosis, "CHUNK", chunk)
        cut = diagnose(collapsed(), GROUPS)
        torch.testing.assert_close(cut.score, whole.score, atol=1e-6, rtol=0)
        assert torch.equal(cut.length, whole.length)
        assert sorted(cut.hidden) == sorted(whole.hidden) and cut.collapsed
        assert cut.spreads["used, at random"].rows == whole.spreads["used, at random"].rows


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_give_the_same_judgement(dtype):
    W = collapsed().to(dtype)
    before = W.clone()
    found, single = diagnose(W, GROUPS), diagnose(W.float(), GROUPS)
    assert torch.equal(W, before)
    assert found.score.dtype == torch.float32
    torch.testing.assert_close(found.score, single.score, atol=1e-6, rtol=0)
    assert found.hidden == single.hidden and set(found.hidden) == set(HIDDEN)


def test_the_seed_chooses_which_used_rows_stand_beside_and_nothing_else():
    one, same, other = (diagnose(collapsed(), GROUPS, seed) for seed in (0, 0, 1))
    assert one.spreads == same.spreads
    assert one.spreads["used, at random"] != other.spreads["used, at random"]
    assert one.spreads["high"] == other.spreads["high"] and torch.equal(one.score, other.score)


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 30), st.integers(2, 20))
def test_scores_are_cosines(seed, unused, used, d):
    n = unused + used
    equal = normal(1, d, seed=seed).expand(n, d) + normal(n, d, seed=seed) * (
        torch.arange(n) >= unused
    ).unsqueeze(1)
    for W in (normal(n, d, seed=seed), equal):
        score = diagnose(W, {"these": range(unused)}).score
        assert score.abs().max() <= 1 and score.isfinite().all()


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 30), st.integers(8, 20))
def test_the_order_of_rows_says_nothing(seed, unused, used, d):
    n = unused + used
    W = normal(n, d, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    there = [int((order == i).nonzero()) for i in range(unused)]
    before, after = diagnose(W, {"a": range(unused)}), diagnose(W[order], {"a": there})
    torch.testing.assert_close(after.score, before.score[order], atol=1e-4, rtol=0)
    torch.testing.assert_close(after.length, before.length[order])


# ---- what cannot be judged ----


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({}, "no two rows are known to be unused: .*--unused"),
        ({"a": [3]}, "no two rows"),
        ({"a": [3], "b": [3]}, "no two rows"),
        ({"a": [3, 10]}, "between 0 and 9"),
        ({"a": [-1, 3]}, "between 0 and 9"),
        ({"a": list(range(10))}, "fewer than two rows are left"),
        ({"a": list(range(9))}, "fewer than two rows are left"),
    ],
)
def test_too_little_to_compare_is_refused(groups, says):
    with pytest.raises(ValueError, match=says) as caught:
        diagnose(normal(10, 4), groups)
    assert "\n" not in str(caught.value)


def test_zero_rows_are_none_to_compare_with():
    W = normal(10, 4)
    W[5:] = 0
    with pytest.raises(ValueError, match="fewer than two rows are left"):
        diagnose(W, {"a": range(4)})


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_matrix_is_refused_not_called_healthy(broken):
    W = collapsed()
    W[3, 5] = broken
    with pytest.raises(ValueError, match="1 row"):
        diagnose(W, GROUPS)


# ---- the worst ----


def test_table_lists_the_worst_first():
    found = diagnose(collapsed(), GROUPS)
    rows = diagnosis.table(found, {17: "<b>", 251: "x"}, top=2)
    assert [row["id"] for row in rows] == found.hidden[:2]
    assert len(diagnosis.table(found, {})) == 3
    for row in rows:
        assert row["token"] == {17: "<b>", 251: "x"}.get(row["id"], "")
        assert row["score"] == pytest.approx(float(found.score[row["id"]]), abs=6e-4)
        assert row["length"] == pytest.approx(float(found.length[row["id"]]), abs=6e-4)


def test_watched_numbers_equal_a_loop_over_pairs():
    W = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    rows = [3, 9, 17, 30]
    x = W[rows].double().numpy()
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.combinations(x, 2)
    ]
    own = np.linalg.norm(x - x.mean(axis=0)) / np.linalg.norm(x)
    lengths = np.sort(np.linalg.norm(W.numpy(), axis=1))
    found = diagnosis.watch(W, rows)
    assert found["cosine"] == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found["own"] == pytest.approx(own, abs=1e-6)
    assert found["length"] == pytest.approx(
        np.linalg.norm(x, axis=1).mean() / lengths[19], rel=1e-5
    )
