"""Rows changed without training: each repair and each ruin against another way to the same rows."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import geometry, repair
from lib.models.transformer import Transformer, TransformerConfig, initialise

SEEN, UNSEEN = range(6, 26), range(26, 34)
SIZES = TransformerConfig(d_vocab=UNSEEN.stop, d_model=8, n_layers=1, n_heads=2)
DRAWN = ("fresh", "mean_cov", "duplicates", "swapped")  # the rest draws nothing
each_method = pytest.mark.parametrize("method", repair.METHODS)
each_tying = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def matrix(seed=0, unseen=8, d=5, dtype=torch.float32):
    """Specials, seen rows about one vector, unseen rows close about another."""
    g = seeded(seed)
    shift = torch.cat([torch.zeros(SEEN.start, d), *torch.randn(2, d, generator=g).split(1)])
    group = [*range(SEEN.start), *[SEEN.start] * len(SEEN), *[SEEN.start + 1] * unseen]
    size = torch.tensor([1.0] * SEEN.stop + [0.1] * unseen)[:, None]
    return (shift[group] + size * torch.randn(len(group), d, generator=g)).to(dtype)


def redrawn(method, W=None, seed=1, **settings):
    return repair.redraw(
        matrix() if W is None else W, SEEN, UNSEEN, method, seeded(seed), **settings
    )


def changed_rows(before, after):
    return {int(i) for i in (before != after).any(dim=1).nonzero()[:, 0]}


def rows_of(x):
    return sorted(map(tuple, x.tolist()))


@each_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_unseen_rows_change_and_the_input_stays(method, dtype):
    W = matrix(dtype=dtype)
    before = W.clone()
    new = redrawn(method, W)
    assert torch.equal(W, before) and new.data_ptr() != W.data_ptr()
    assert new.dtype == dtype and new.shape == W.shape and new.isfinite().all()
    assert set(UNSEEN) <= changed_rows(W, new)
    if method != "swapped":
        assert changed_rows(W, new) == set(UNSEEN)


@each_method
def test_a_seed_is_one_set_of_rows(method):
    assert torch.equal(redrawn(method), redrawn(method))
    assert torch.equal(redrawn(method), redrawn(method, seed=2)) == (method not in DRAWN)


@pytest.mark.parametrize("embed_std", [0.25, 2.0])
def test_fresh_rows_are_drawn_like_the_first_weights(embed_std):
    W = matrix(unseen=5000)
    new = repair.redraw(W, SEEN, range(26, 5026), "fresh", seeded(), embed_std)[26:]
    assert float(new.std()) == pytest.approx(embed_std, rel=0.02)
    torch.testing.assert_close(new.mean(dim=0), torch.zeros(5), atol=0.06 * embed_std, rtol=0)
    covariance = torch.cov(new.T) / embed_std**2
    torch.testing.assert_close(covariance, torch.eye(5), atol=0.08, rtol=0)


def test_fresh_rows_know_nothing_of_the_old_ones():
    assert torch.equal(redrawn("fresh")[26:], redrawn("fresh", matrix(seed=9))[26:])


def numpy_shrunk(x):
    """The covariance by numpy, then w of it moved to the diagonal, trace kept."""
    n, d = x.shape
    cov, w = np.atleast_2d(np.cov(x, rowvar=False)), d / (n + d)
    return cov - w * (cov - np.diag(np.full(d, np.trace(cov) / d)))


def test_mean_cov_draws_have_the_mean_and_covariance_of_seen_rows():
    draws = 40_000
    W = matrix(unseen=draws)
    W[list(SEEN), 0] *= 3  # one long axis, and one tilted: more than a sphere has to be met
    W[list(SEEN), 1] += 0.7 * W[list(SEEN), 2]
    new = repair.redraw(W, SEEN, range(26, 26 + draws), "mean_cov", seeded())[26:]
    got, x = new.double().numpy(), W[list(SEEN)].double().numpy()
    spread = np.sqrt(np.diag(numpy_shrunk(x)))
    assert np.abs(got.mean(axis=0) - x.mean(axis=0)).max() < 4 * spread.max() / draws**0.5
    want = numpy_shrunk(x)
    scale = np.outer(spread, spread)
    assert np.abs((np.cov(got, rowvar=False) - want) / scale).max() < 0.03
    assert np.abs((np.cov(got, rowvar=False) - np.cov(x, rowvar=False)) / scale).max() > 0.03


def test_shrinking_by_hand():
    """Covariance [[2, 0], [0, 0]], mean variance 1, weight 2 / (2 + 2)."""
    got = repair.moments(torch.tensor([[0.0, 5.0], [2.0, 5.0]]), [0, 1])[1]
    torch.testing.assert_close(got, torch.tensor([[1.5, 0.0], [0.0, 0.5]], dtype=torch.double))


@given(st.integers(2, 30), st.integers(2, 12), st.integers(0, 100))
def test_shrunk_covariances_are_positive_definite_also_with_few_rows(rows, d, seed):
    x = torch.randn(rows, d, generator=seeded(seed), dtype=torch.double)
    got = repair.moments(x, range(len(x)))[1]
    np.testing.assert_allclose(got.numpy(), numpy_shrunk(x.numpy()), atol=1e-12)
    lowest = torch.linalg.eigvalsh(got)[0]
    assert lowest >= d / (rows + d) * x.var(dim=0).mean() - 1e-12
    assert lowest > 0
    torch.testing.assert_close(got.trace(), x.var(dim=0).sum())  # as much variance as before


def test_shrinking_fades_as_rows_come_in():
    x = torch.randn(4000, 3, generator=seeded(), dtype=torch.double) * torch.tensor([1.0, 2, 3])
    torch.testing.assert_close(
        repair.moments(x, range(len(x)))[1], torch.cov(x.T), rtol=0.01, atol=0.01
    )


def test_mean_cov_works_with_fewer_seen_rows_than_dimensions():
    W = matrix(d=40)
    assert redrawn("mean_cov", W).isfinite().all()


@given(st.integers(0, 100), st.integers(1, len(SEEN)))
def test_duplicates_are_different_seen_rows_which_stay(seed, unseen):
    W = matrix(unseen=unseen)
    new = repair.redraw(W, SEEN, range(26, 26 + unseen), "duplicates", seeded(seed))
    assert torch.equal(new[:26], W[:26])
    copies = rows_of(new[26:])
    assert set(copies) <= set(rows_of(W[list(SEEN)]))
    assert len(set(copies)) == unseen


@given(st.integers(0, 100), st.integers(1, len(SEEN)))
def test_swapped_is_a_permutation_of_rows(seed, unseen):
    W = matrix(unseen=unseen)
    new = repair.redraw(W, SEEN, range(26, 26 + unseen), "swapped", seeded(seed))
    assert rows_of(new) == rows_of(W)
    assert torch.equal(new[: SEEN.start], W[: SEEN.start])  # specials stay
    assert set(rows_of(new[26:])) <= set(rows_of(W[list(SEEN)]))
    moved = changed_rows(W, new)
    assert len(moved) == 2 * unseen and moved >= set(range(26, 26 + unseen))
    for here in moved:  # two by two: each row lies where the one it made room for came from
        there = next(i for i in moved if torch.equal(W[i], new[here]))
        assert torch.equal(W[here], new[there])


def test_duplicates_and_swaps_take_any_seen_row():
    taken = {
        method: {row for seed in range(30) for row in rows_of(redrawn(method, seed=seed)[26:])}
        for method in ("duplicates", "swapped")
    }
    assert all(len(rows) == len(SEEN) for rows in taken.values())


@pytest.mark.parametrize("method", ["duplicates", "swapped"])
def test_too_few_seen_rows_are_refused(method):
    with pytest.raises(ValueError, match=f"{method} needs 8 seen rows, there are 3"):
        repair.redraw(matrix(), SEEN[:3], UNSEEN, method, seeded())


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="nearest: mean_cov"):
        redrawn("mean_cof")


def parts(W, rows):
    """Mean row and individual parts, by numpy."""
    x = W[list(rows)].double().numpy()
    return x.mean(axis=0), x - x.mean(axis=0)


def mean_length(part):
    return np.sqrt((part**2).sum(axis=1)).mean()


@pytest.mark.parametrize("method", ["stretched", "recentred", "recentred_stretched"])
def test_means_and_individual_parts_go_where_they_should(method):
    W = matrix()
    seen_mean, seen_part = parts(W, SEEN)
    old_mean, old_part = parts(W, UNSEEN)
    new_mean, new_part = parts(redrawn(method, W), UNSEEN)
    want_mean = seen_mean if "recentred" in method else old_mean
    np.testing.assert_allclose(new_mean, want_mean, atol=1e-5)
    if "stretched" in method:
        assert mean_length(new_part) == pytest.approx(mean_length(seen_part), rel=1e-5)
        assert mean_length(old_part) < 0.2 * mean_length(seen_part)
    ratio = new_part / old_part  # one factor for all entries: directions stay
    np.testing.assert_allclose(ratio, mean_length(new_part) / mean_length(old_part), rtol=1e-3)
    if method == "recentred":
        np.testing.assert_allclose(new_part, old_part, atol=1e-6)


def test_both_is_one_after_the_other():
    one_by_one = redrawn("stretched", redrawn("recentred"))
    torch.testing.assert_close(redrawn("recentred_stretched"), one_by_one)


ruined = st.tuples(
    st.integers(2, 12), st.integers(3, 12), st.integers(0, 100), st.floats(0, 1), st.floats(0, 3)
)


def with_common_part(n, d, seed, common):
    """Rows of different lengths, with more or less in common."""
    g = seeded(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.double) + common
    return x * (0.5 + torch.rand(n, 1, generator=g, dtype=torch.double))


@given(ruined)
def test_collapsed_rows_keep_their_lengths_and_lean_on_the_mean_as_asked(case):
    """Each row's cosine with the mean direction is sqrt(c). Pairs then have c + (1 - c) u, with u the
    cosine of what is the rows' own, whose mean over pairs is at least -1 / (n - 1)."""
    n, d, seed, cosine, common = case
    x = with_common_part(n, d, seed, common)
    W = torch.cat([x, torch.ones(2, d, dtype=torch.double)])
    new = repair.collapse(W, range(n), cosine)
    assert torch.equal(new[n:], W[n:])
    torch.testing.assert_close(new[:n].norm(dim=1), x.norm(dim=1), rtol=1e-9, atol=0)
    leaning = torch.cosine_similarity(new[:n], x.mean(dim=0, keepdim=True))
    torch.testing.assert_close(leaning, torch.full_like(leaning, cosine**0.5), atol=1e-7, rtol=0)
    assert geometry.mean_cosine(new[:n]) >= cosine - (1 - cosine) / (n - 1) - 1e-9


@pytest.mark.parametrize("cosine", [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0])
@pytest.mark.parametrize("common", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("start", ["float32", "float64"])
def test_the_realised_cosine_is_the_asked_one(cosine, common, start):
    """50 rows as in the sweep: within .03 (1 - c), most of which is the -1 / (n - 1) of centred parts."""
    W = with_common_part(50, 64, 0, common).to(getattr(torch, start))
    new = repair.collapse(W, range(50), cosine)
    assert geometry.mean_cosine(new) == pytest.approx(cosine, abs=0.03 * (1 - cosine) + 1e-6)
    torch.testing.assert_close(new.norm(dim=1), W.norm(dim=1))
    low, high = geometry.cosine_quantiles(new, (0.0, 1.0))
    assert cosine - 0.6 * (1 - cosine) - 1e-5 < low <= high < cosine + 0.6 * (1 - cosine) + 1e-5


def test_the_ends_of_collapse():
    W = with_common_part(12, 8, 0, 0.5)
    mean = W.mean(dim=0) / W.mean(dim=0).norm()
    none, all_ = (repair.collapse(W, range(12), cosine) for cosine in (0.0, 1.0))
    torch.testing.assert_close(none @ mean, torch.zeros(12, dtype=torch.double), atol=1e-12, rtol=0)
    own = W @ (torch.eye(8) - torch.outer(mean, mean)).double()  # by a projection
    torch.testing.assert_close(torch.cosine_similarity(none, own), torch.ones(12).double())
    torch.testing.assert_close(all_, W.norm(dim=1, keepdim=True) * mean)


@pytest.mark.parametrize("cosine", [-0.01, 1.01, float("nan"), float("inf")])
def test_impossible_cosines_are_refused(cosine):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        repair.collapse(matrix(), UNSEEN, cosine)


@pytest.mark.parametrize("factor", [0.0, 0.1, 1.0, 2.0])
def test_scaled_rows_are_longer_and_nothing_else(factor):
    W = matrix()
    new = repair.scaled(W, UNSEEN, factor)
    assert torch.equal(new[:26], W[:26])
    np.testing.assert_array_equal(new[26:].numpy(), W[26:].numpy() * np.float32(factor))


@pytest.mark.parametrize(
    "change", [lambda W: repair.collapse(W, UNSEEN, 0.5), lambda W: repair.scaled(W, UNSEEN, 2.0)]
)
def test_ruins_leave_the_input_alone(change):
    W = matrix()
    new = change(W)
    assert torch.equal(W, matrix()) and changed_rows(W, new) == set(UNSEEN)


def model(**changes):
    return initialise(Transformer(dataclasses.replace(SIZES, **changes)), seeded(3))


def weights(subject):
    return {name: p.detach().clone() for name, p in subject.named_parameters()}


def unchanged(before, subject):
    after = dict(subject.named_parameters())
    return before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)


def add_one(W):
    return W + 1


@each_tying
@pytest.mark.parametrize("trains", [True, False])
def test_replaced_changes_each_matrix_once_and_puts_it_back(tied, trains):
    subject = model(tied=tied)
    for parameter in subject.embedding_parameters():
        parameter.requires_grad_(trains)
    ids = [id(p) for p in subject.parameters()]
    before, tokens = weights(subject), torch.arange(9)[None]
    logits = subject(tokens)
    with repair.replaced(subject, add_one) as inside:
        assert inside is subject
        assert (subject.W_E is subject.W_U) == tied
        for matrix_name in ("W_E", "W_U"):
            old = before["W_E"] if tied else before[matrix_name]
            assert torch.equal(getattr(subject, matrix_name), old + 1)
        rest = {n: p for n, p in before.items() if n not in ("W_E", "W_U")}
        assert all(torch.equal(p, dict(subject.named_parameters())[n]) for n, p in rest.items())
        assert not torch.equal(subject(tokens), logits)
    assert unchanged(before, subject) and torch.equal(subject(tokens), logits)
    assert [id(p) for p in subject.parameters()] == ids
    assert (subject.W_E is subject.W_U) == tied
    assert all(p.requires_grad == trains for p in subject.embedding_parameters())


@each_tying
def test_replaced_puts_back_after_a_failure_inside(tied):
    subject = model(tied=tied)
    before = weights(subject)
    with pytest.raises(RuntimeError, match="inside"), repair.replaced(subject, add_one):
        raise RuntimeError("inside")
    assert unchanged(before, subject)


@each_tying
def test_replaced_puts_back_after_a_change_that_fails(tied):
    subject, calls = model(tied=tied), []
    before = weights(subject)

    def fails_at_the_last(W):
        calls.append(1)
        W.zero_()  # bad manners: even these are put right
        if len(calls) == len(subject.embedding_parameters()):
            raise RuntimeError("in the change")
        return W

    with (
        pytest.raises(RuntimeError, match="in the change"),
        repair.replaced(subject, fails_at_the_last),
    ):
        pytest.fail("the body must not run")
    assert len(calls) == 1 + (not tied)
    assert unchanged(before, subject)


def test_replaced_and_silenced_may_be_nested():
    subject = model(copy=True)
    before = weights(subject)
    with repair.replaced(subject, add_one), repair.silenced_copy(subject):
        assert not subject.copy.gate.any()
        with repair.replaced(subject, add_one):
            torch.testing.assert_close(subject.W_E, before["W_E"] + 2)
    assert unchanged(before, subject)


def test_silencing_takes_away_the_copy_head_and_nothing_else():
    subject, twin = model(copy=True), model()
    with torch.no_grad():
        subject.copy.gate.fill_(0.7)
    twin.load_state_dict(
        {name: v for name, v in subject.state_dict().items() if not name.startswith("copy")}
    )
    before, tokens = weights(subject), torch.arange(9)[None]
    with torch.no_grad():
        logits = subject(tokens)
        with repair.silenced_copy(subject) as inside:
            assert inside is subject
            torch.testing.assert_close(subject(tokens), twin(tokens))
            assert not torch.allclose(subject(tokens), logits)
            assert not subject.run(tokens, ["copy.out"])["copy.out"].any()
        assert torch.equal(subject(tokens), logits)
    assert unchanged(before, subject) and subject.copy.gate.requires_grad


def test_a_silenced_head_speaks_again_after_a_failure():
    subject = model(copy=True)
    before = weights(subject)
    with pytest.raises(RuntimeError, match="inside"), repair.silenced_copy(subject):
        raise RuntimeError("inside")
    assert unchanged(before, subject)


def test_there_must_be_a_head_to_silence():
    with pytest.raises(ValueError, match="copy=True"), repair.silenced_copy(model()):
        pytest.fail("the body must not run")


# ---- rows of a language model ----


def test_moments_are_those_of_numpy_however_the_rows_are_cut(monkeypatch):
    W = torch.randn(50, 6, generator=seeded()) * torch.arange(1.0, 7) + 3
    rows = list(range(0, 50, 2))
    x = W[rows].double().numpy()
    for chunk in (4, 1000):
        monkeypatch.setattr(repair, "CHUNK", chunk)
        mean, cov = repair.moments(W, rows)
        np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(cov, numpy_shrunk(x), atol=1e-10)
    with pytest.raises(ValueError, match="at least two"):
        repair.moments(W, [3])


@pytest.mark.parametrize("method", repair.DRAWS)
def test_drawn_rows_have_the_moments_that_the_method_promises(method):
    d, n = 24, 24 if method == "orthogonal" else 60_000
    x = torch.randn(d, d, generator=seeded(1), dtype=torch.double)
    mean, cov = torch.linspace(-3, 3, d, dtype=torch.double), x @ x.T / d + torch.eye(d)
    got = repair.draw(mean, cov, n, method, seeded(2)) - mean
    if method == "orthogonal":
        gram = got @ got.T
        torch.testing.assert_close(gram, cov.trace() * torch.eye(d, dtype=torch.double))
        return
    want = cov if method == "mean_cov" else cov.diagonal().diag()
    scale = want.diagonal().sqrt()
    assert (((got.T @ got) / n - want) / scale[:, None] / scale).abs().max() < 0.04
    assert (got.mean(dim=0) / scale).abs().max() < 0.03


def test_orthogonal_rows_must_fit():
    with pytest.raises(ValueError, match="5 orthogonal rows do not fit into 4 dimensions"):
        repair.draw(torch.zeros(4), torch.eye(4), 5, "orthogonal", seeded())
    with pytest.raises(ValueError, match="unknown method"):
        repair.draw(torch.zeros(4), torch.eye(4), 2, "mean_covv", seeded())


@pytest.mark.parametrize("method", repair.DRAWS)
def test_usable_rows_keep_their_length_and_touch_no_other(method):
    W = torch.randn(40, 8, generator=seeded()) + 2
    rows, used = [3, 5, 9], list(range(10, 40))
    W[3], W[5], W[9] = 3.0 * W[5], W[5] / W[5].norm() * 1e-3, 0.0
    got = repair.usable(W, used, rows, method, seeded(1))
    others = [i for i in range(40) if i not in rows]
    assert torch.equal(got[others], W[others])
    typical = W[used].norm(dim=1).median()
    torch.testing.assert_close(got[3].norm(), W[3].norm())
    torch.testing.assert_close(got[[5, 9]].norm(dim=1), typical.expand(2))
    assert torch.equal(got, repair.usable(W, used, rows, method, seeded(1)))
    assert not torch.equal(got, repair.usable(W, used, rows, method, seeded(2)))
