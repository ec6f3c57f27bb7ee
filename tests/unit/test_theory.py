"""The recursion against autograd, the bound against random problems, the condition against its absence."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib import theory

A, B = 0, 1  # labels that never occur


def problem(seed, spread, vocab=7, d=5, features=11):
    generator = torch.Generator().manual_seed(seed)
    W = spread * torch.randn(vocab, d, generator=generator, dtype=torch.double)
    h = torch.randn(features, d, generator=generator, dtype=torch.double)
    label = torch.randint(2, vocab, (features,), generator=generator)
    return W, h, label


def largest_probability(W, h):
    return float((h @ W.T).softmax(dim=1)[:, [A, B]].max())


problems = st.tuples(st.integers(0, 10**6), st.floats(1e-3, 5))
rates = st.tuples(st.floats(1e-4, 3), st.floats(0, 2))


@given(problems)
def test_the_step_is_autograds(drawn):
    W, h, label = problem(*drawn)
    leaf = W.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(h @ leaf.T, label) + 0.3 / 2 * leaf.square().sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert torch.allclose(
        theory.gradient_step(W, h, label, 0.1, 0.3), W - 0.1 * gradient, atol=1e-12
    )


@settings(max_examples=200)
@given(problems, rates)
def test_the_recursion_is_exact(drawn, rate):
    W, h, label = problem(*drawn)
    lr, decay = rate
    after = theory.gradient_step(W, h, label, lr, decay)
    M = theory.curvature(W, h, A, B)
    d = theory.difference_step(W[A] - W[B], M, lr, decay)
    assert torch.allclose(d, after[A] - after[B], rtol=1e-10, atol=1e-10)


@settings(max_examples=200)
@given(problems, rates)
def test_the_bound_holds_under_its_condition(drawn, rate):
    W, h, label = problem(*drawn)
    lr, decay = rate
    r, p = float(h.norm(dim=1).max()), largest_probability(W, h)
    assume(theory.step_condition(r, p, lr, decay))
    after = theory.gradient_step(W, h, label, lr, decay)
    before = (W[A] - W[B]).norm()
    # the condition allows lr * decay up to 1 and no more: 2 lr decay <= 2
    assert (after[A] - after[B]).norm() <= theory.remaining(lr, decay, 1) * before * (1 + 1e-12)


@given(problems)
def test_curvature_is_between_its_bounds(drawn):
    W, h, _ = problem(*drawn)
    values = torch.linalg.eigvalsh(theory.curvature(W, h, A, B))
    r, p = float(h.norm(dim=1).max()), largest_probability(W, h)
    assert values.min() >= -1e-12 and values.max() <= r * r * p * (1 + 1e-12)


def test_equal_rows_take_the_limit():
    W, h, _ = problem(0, 1.0)
    W[B] = W[A]
    p = (h @ W.T).softmax(1)[:, A]
    assert torch.allclose(theory.curvature(W, h, A, B), (h * p[:, None]).T @ h / len(h))


def test_without_a_step_condition_the_distance_can_grow():
    W, h, label = problem(0, 1.0)
    after = theory.gradient_step(W, 0 * h, label, lr=3.0, decay=1.0)
    assert torch.allclose(after[A] - after[B], -2 * (W[A] - W[B]))
    assert not theory.step_condition(0.0, 1.0, 3.0, 1.0)


def test_gradient_flow_is_the_limit_of_small_steps():
    W, h, label = problem(1, 1.0)
    start, decay, time = (W[A] - W[B]).norm(), 0.5, 2.0
    for _ in range(4000):
        W = theory.gradient_step(W, h, label, time / 4000, decay)
    assert (W[A] - W[B]).norm() <= start * torch.exp(torch.tensor(-decay * time)) * 1.001
