"""Measures of sets of rows: slow float64 versions, closed forms, what must not change them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import geometry

rows = st.builds(
    lambda n, d, seed, shift: (
        torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) + shift
    ),
    st.integers(2, 12),
    st.integers(2, 8),
    st.integers(0, 1000),
    st.floats(-2, 2),
)


def slow_cosines(x):
    x = x.double().numpy()
    return [
        float(a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b))) for a, b in itertools.combinations(x, 2)
    ]


def slow_share(x):
    x = x.double().numpy()
    own = sum(((row - x.mean(0)) ** 2).sum() for row in x)
    return float(np.sqrt(own / sum((row**2).sum() for row in x)))


def slow_rank(x):
    """From the eigenvalues of x x^T, not from singular values."""
    x = x.double().numpy()
    values = np.sqrt(
        np.clip(np.linalg.eigvalsh(x @ x.T if len(x) < x.shape[1] else x.T @ x), 0, None)
    )
    p = [v / values.sum() for v in values if v > 0]
    return math.exp(-sum(v * math.log(v) for v in p))


def slow_distance(x):
    x = x.double().numpy()
    return math.sqrt(np.mean([((a - b) ** 2).sum() for a, b in itertools.combinations(x, 2)]))


MEASURES = {
    "mean_cosine": (geometry.mean_cosine, lambda x: float(np.mean(slow_cosines(x)))),
    "median_cosine": (
        lambda x: geometry.cosine_quantiles(x, (0.5,))[0],
        lambda x: float(np.median(slow_cosines(x))),
    ),
    "individual_share": (geometry.individual_share, slow_share),
    "effective_rank": (geometry.effective_rank, slow_rank),
    "pair_distance": (geometry.pair_distance, slow_distance),
    "mean_norm": (
        lambda x: float(geometry.norms(x).mean()),
        lambda x: float(np.mean([np.sqrt((r**2).sum()) for r in x.double().numpy()])),
    ),
}
SCALE_FREE = ("mean_cosine", "median_cosine", "individual_share", "effective_rank")
each_measure = pytest.mark.parametrize("name", MEASURES)


def near(value):
    return pytest.approx(value, rel=1e-4, abs=1e-5)


@each_measure
@given(x=rows)
def test_the_same_as_a_slow_version(name, x):
    fast, slow = MEASURES[name]
    assert fast(x) == near(slow(x))


@each_measure
@given(x=rows, data=st.data())
def test_the_order_of_rows_does_not_matter(name, x, data):
    fast, order = MEASURES[name][0], data.draw(st.permutations(range(len(x))))
    assert fast(x[list(order)]) == near(fast(x))


@each_measure
@given(x=rows, seed=st.integers(0, 1000))
def test_turning_space_does_not_matter(name, x, seed):
    fast, d = MEASURES[name][0], x.shape[1]
    noise = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    turn = torch.linalg.qr(noise).Q
    assert fast(x.double() @ turn) == near(fast(x))


@each_measure
@given(x=rows, factor=st.floats(1e-3, 1e3))
def test_scale_matters_only_for_lengths(name, x, factor):
    fast = MEASURES[name][0]
    assert fast(x.double() * factor) == near(fast(x) * (1 if name in SCALE_FREE else factor))


@given(x=rows)
def test_ranges(x):
    assert -1 - 1e-9 <= geometry.mean_cosine(x) <= 1 + 1e-9
    assert 0 <= geometry.individual_share(x) <= 1 + 1e-9
    assert 1 - 1e-9 <= geometry.effective_rank(x) <= min(x.shape) + 1e-9
    low, middle, high = geometry.cosine_quantiles(x)
    assert low <= middle <= high


@given(x=rows, q=st.lists(st.floats(0, 1), min_size=1, max_size=4).map(tuple))
def test_quantiles_are_numpys(x, q):
    want = np.quantile(slow_cosines(x), q)
    assert geometry.cosine_quantiles(x, q) == pytest.approx(want.tolist(), abs=1e-9)


@given(x=rows)
def test_individual_parts_sum_to_nothing_and_add_up(x):
    own = geometry.individual_part(x)
    torch.testing.assert_close(own.sum(0), torch.zeros(x.shape[1]), atol=1e-4, rtol=0)
    torch.testing.assert_close(own + x.mean(0), x)


def test_equal_rows_have_collapsed():
    x = torch.tensor([0.3, -1.2, 0.5]).repeat(7, 1)
    assert geometry.mean_cosine(x) == pytest.approx(1)
    assert geometry.cosine_quantiles(x) == pytest.approx([1, 1, 1])
    assert geometry.effective_rank(x) == pytest.approx(1)
    assert geometry.individual_share(x) == pytest.approx(0, abs=1e-7)
    assert geometry.pair_distance(x) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_orthonormal_rows_have_not(n):
    x = torch.eye(n, 6)
    assert geometry.mean_cosine(x) == pytest.approx(0, abs=1e-12)
    assert geometry.effective_rank(x) == pytest.approx(n)
    assert geometry.individual_share(x) == pytest.approx(math.sqrt(1 - 1 / n))
    assert geometry.pair_distance(x) == pytest.approx(math.sqrt(2))
    assert torch.equal(geometry.norms(x), torch.ones(n))


def test_opposite_rows():
    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    assert geometry.mean_cosine(x) == pytest.approx(-1)
    assert geometry.individual_share(x) == pytest.approx(1)
    assert geometry.effective_rank(x) == pytest.approx(1)


def test_for_equal_lengths_the_cosine_is_one_minus_share_squared():
    x = torch.randn(4000, 40, generator=torch.Generator().manual_seed(0)) + 1.5
    x = x / x.norm(dim=1, keepdim=True)
    assert geometry.mean_cosine(x) == pytest.approx(1 - geometry.individual_share(x) ** 2, abs=1e-3)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_quantiles_of_many_rows_are_close_to_exact(monkeypatch, spread):
    n = 300
    x = torch.randn(n, 10, generator=torch.Generator().manual_seed(1)) + spread
    q = (0.01, 0.25, 0.5, 0.75, 0.99)
    exact = geometry.cosine_quantiles(x, q)
    monkeypatch.setattr(geometry, "EXACT_ROWS", n - 1)
    assert geometry.cosine_quantiles(x, q, pairs=200_000) == pytest.approx(exact, abs=0.01)


def test_no_row_is_paired_with_itself(monkeypatch):
    monkeypatch.setattr(geometry, "EXACT_ROWS", 2)
    assert max(geometry.cosine_quantiles(torch.eye(3), (0.0, 1.0), pairs=70_000)) < 0.5


def test_many_rows_need_no_table_of_all_pairs():
    """60,000 rows: all pairs would take 29 GB."""
    x = torch.randn(60_000, 4, generator=torch.Generator().manual_seed(2))
    assert geometry.cosine_quantiles(x, (0.5,), pairs=50_000)[0] == pytest.approx(0, abs=0.02)
    assert geometry.mean_cosine(x) == pytest.approx(0, abs=0.01)


def test_sampled_quantiles_are_the_same_twice():
    x = torch.randn(geometry.EXACT_ROWS + 1, 4, generator=torch.Generator().manual_seed(3))
    once = geometry.cosine_quantiles(x, pairs=1000)
    torch.manual_seed(5)
    assert once == geometry.cosine_quantiles(x, pairs=1000)


@given(x=rows, lr=st.floats(1e-4, 0.1), decay=st.floats(0, 1), steps=st.integers(1, 50))
def test_decay_alone_contracts_by_its_power(x, lr, decay, steps):
    start, x = x.double(), x.double().clone().requires_grad_()
    optimizer = torch.optim.AdamW([x], lr=lr, weight_decay=decay)
    for _ in range(steps):
        x.grad = torch.zeros_like(x)
        optimizer.step()
    want = (1 - lr * decay) ** steps
    assert geometry.distance_contraction(start, x.detach()) == pytest.approx(want, rel=1e-9)


@given(x=rows, shift=st.floats(-5, 5))
def test_a_common_shift_contracts_nothing(x, shift):
    assert geometry.distance_contraction(x, x + shift) == pytest.approx(1, rel=1e-4)


def test_rows_that_coincide_cannot_contract():
    with pytest.raises(ValueError, match="all rows of `before` are equal"):
        geometry.distance_contraction(torch.ones(3, 2), torch.eye(3, 2))


@pytest.mark.parametrize(
    "measure",
    [
        geometry.mean_cosine,
        geometry.cosine_quantiles,
        geometry.individual_share,
        geometry.pair_distance,
    ],
)
@pytest.mark.parametrize("n", [0, 1])
def test_pairs_need_two_rows(measure, n):
    with pytest.raises(ValueError, match="at least two"):
        measure(torch.ones(n, 3))


def test_a_row_of_zeros_has_no_direction():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert math.isnan(geometry.mean_cosine(x))
    assert math.isnan(geometry.effective_rank(torch.zeros(3, 2)))


def test_half_precision_is_as_good_as_its_values():
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(4)).bfloat16()
    for name in SCALE_FREE:
        assert MEASURES[name][0](x) == near(MEASURES[name][1](x.float()))


@given(x=rows, k=st.integers(1, 2))
def test_principal_axes_are_those_of_the_covariance(x, k):
    x = x.double()
    mean, axes = geometry.principal_axes(x, k)
    values = torch.linalg.eigvalsh((x - mean).T @ (x - mean)).flip(0)[:k]
    held = ((x - mean) @ axes).square().sum(0)
    width = min(k, len(x))
    torch.testing.assert_close(held, values[:width], atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(axes.T @ axes, torch.eye(width, dtype=torch.float64))
    assert (axes.gather(0, axes.abs().argmax(0, keepdim=True)) > 0).all()
