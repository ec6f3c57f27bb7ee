"""What each policy does to the (un)embedding and to the optimiser, step by step."""

import pytest
import torch
from torch import nn

from lib import training
from lib.generators import logic, stream
from lib.models.transformer import Transformer, TransformerConfig, initialise
from lib.policies import Freeze, FreezeRows, Learn, Refresh, Reset

TASK = logic.LogicConfig(1, 8, 4)
ROWS = (0, 7, TASK.unseen[0], TASK.unseen[-1])
each_tying = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
STEPS = {"adamw": 100, "adam_l2": 25, "sgd": 25}
each_optimiser = pytest.mark.parametrize("optimiser", training.OPTIMISERS)
POLICIES = [Learn(), Freeze(), Reset(every=2), FreezeRows(ROWS), Refresh(every=2)]
each_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)


def prepared(policy, tied=True, optimiser="adamw"):
    """Configuration, fresh model and optimiser; a large decay, so that a leak shows."""
    model = TransformerConfig(d_vocab=TASK.d_vocab, d_model=8, n_layers=1, n_heads=2, tied=tied)
    config = training.RunConfig(
        task=TASK,
        model=model,
        policy=policy,
        optimiser=optimiser,
        lr=0.01,
        embed_lr_scale=1.0,
        weight_decay=0.1,
        batch=8,
        steps=100,
    )
    fresh = initialise(Transformer(model), stream(0, "weights"))
    return config, fresh, training.make_optimiser(config, fresh)


def step(config, model, optimizer, policy, at):
    policy.before_step(model, optimizer, at, 0)
    tokens = training.batch_of(config, at).tokens
    policy.saw(tokens)
    optimizer.zero_grad()
    training.answer_loss(model, tokens, TASK.answer_length).backward()
    optimizer.step()
    policy.after_step(model, optimizer)


def copies(model):
    return [p.detach().clone() for p in model.embedding_parameters()]


def others():
    return [row for row in range(TASK.d_vocab) if row not in ROWS]


def in_optimiser(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def moments(optimizer, parameter):
    state = optimizer.state.get(parameter, {})
    return [m for m in state.values() if isinstance(m, torch.Tensor) and m.shape == parameter.shape]


@each_tying
@each_optimiser
def test_frozen_rows_stay_bit_for_bit(optimiser, tied):
    config, model, optimizer = prepared(FreezeRows(ROWS), tied, optimiser)
    before = copies(model)
    for at in range(STEPS[optimiser]):
        step(config, model, optimizer, config.policy, at)
    for old, new in zip(before, copies(model), strict=True):
        assert torch.equal(old[list(ROWS)], new[list(ROWS)])
        assert (old[others()] != new[others()]).any(dim=1).all()


@each_tying
@each_optimiser
def test_rows_frozen_in_mid_run_stay_although_moments_are_there(optimiser, tied):
    config, model, optimizer = prepared(Learn(), tied, optimiser)
    for at in range(20):
        step(config, model, optimizer, config.policy, at)
    policy = FreezeRows(ROWS)
    policy.trained(model)
    before = copies(model)
    if tied:
        assert all(m[list(ROWS)].abs().sum() > 0 for m in moments(optimizer, model.W_E))
    for at in range(20, 20 + STEPS[optimiser]):
        step(config, model, optimizer, policy, at)
    for old, new in zip(before, copies(model), strict=True):
        assert torch.equal(old[list(ROWS)], new[list(ROWS)])
        assert (old[others()] != new[others()]).any(dim=1).all()


@each_tying
@each_optimiser
def test_frozen_rows_have_empty_moments_and_others_keep_theirs(optimiser, tied):
    config, model, optimizer = prepared(FreezeRows(ROWS), tied, optimiser)
    for at in range(3):
        step(config, model, optimizer, config.policy, at)
    for parameter in model.embedding_parameters():
        assert moments(optimizer, parameter)
        for moment in moments(optimizer, parameter):
            assert not moment[list(ROWS)].any()
            assert moment[others()].any()


@each_tying
def test_a_zero_gradient_alone_would_not_freeze(tied):
    """Why the policy is needed: with the gradient of the rows at zero, decay moves them."""
    config, model, optimizer = prepared(Learn(), tied)
    before = copies(model)
    for parameter in model.embedding_parameters():
        keep = torch.ones(TASK.d_vocab, 1)
        keep[list(ROWS)] = 0
        parameter.register_hook(lambda grad, keep=keep: grad * keep)
    step(config, model, optimizer, config.policy, 0)
    for old, new in zip(before, copies(model), strict=True):
        assert not torch.equal(old[list(ROWS)], new[list(ROWS)])


@each_tying
def test_rows_of_a_range_or_a_list_freeze_alike(tied):
    ends = []
    for rows in (TASK.unseen, list(TASK.unseen), tuple(TASK.unseen)):
        config, model, optimizer = prepared(FreezeRows(rows), tied)
        for at in range(3):
            step(config, model, optimizer, config.policy, at)
        ends.append(copies(model))
    for end in ends[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ends[0], end, strict=True))


@each_tying
@each_optimiser
def test_freeze_keeps_the_embedding_and_trains_the_rest(optimiser, tied):
    config, model, optimizer = prepared(Freeze(), tied, optimiser)
    frozen = copies(model)
    embedding = {id(p) for p in model.embedding_parameters()}
    rest = {
        n: p.detach().clone()
        for n, p in model.named_parameters()
        if p.ndim == 2 and p.requires_grad
    }
    assert not embedding & {id(p) for p in in_optimiser(optimizer)}
    for at in range(STEPS[optimiser]):
        step(config, model, optimizer, config.policy, at)
    assert all(torch.equal(a, b) for a, b in zip(frozen, copies(model), strict=True))
    parameters = dict(model.named_parameters())
    assert rest and all(not torch.equal(old, parameters[name]) for name, old in rest.items())


@each_tying
@pytest.mark.parametrize(
    ("every", "until", "expected"),
    [(3, None, [3, 6, 9]), (3, 6, [3, 6]), (3, 5, [3]), (4, 0, []), (1, 2, [1, 2]), (20, None, [])],
)
def test_resets_happen_at_the_right_steps(every, until, expected, tied):
    config, model, optimizer = prepared(Reset(every=every, until=until), tied)
    seen = []
    for at in range(11):
        before = copies(model)
        config.policy.before_step(model, optimizer, at, 0)
        changed = [not torch.equal(a, b) for a, b in zip(before, copies(model), strict=True)]
        assert all(changed) == any(changed)
        seen += [at] if all(changed) else []
    assert seen == expected


@each_tying
@each_optimiser
def test_redrawn_parameters_start_with_fresh_moments(optimiser, tied):
    config, model, optimizer = prepared(Reset(every=5), tied, optimiser)
    for at in range(5):
        step(config, model, optimizer, config.policy, at)
    embedding = model.embedding_parameters()
    rest = [p for p in model.parameters() if not any(p is e for e in embedding)]
    kept = {p: [m.clone() for m in moments(optimizer, p)] for p in rest}
    config.policy.before_step(model, optimizer, 5, 0)
    assert all(not m.any() for p in embedding for m in optimizer.state[p].values())
    for p, old in kept.items():
        assert old and all(map(torch.equal, old, moments(optimizer, p)))
    step(config, model, optimizer, Learn(), 5)
    for parameter in model.embedding_parameters():
        if optimiser == "adamw":  # first moment after one step: (1 - beta1) x gradient
            torch.testing.assert_close(optimizer.state[parameter]["exp_avg"], 0.1 * parameter.grad)
            assert float(optimizer.state[parameter]["step"]) == 1


@each_tying
def test_a_reset_draws_like_the_first_weights(tied):
    config, model, optimizer = prepared(Reset(every=1), tied)
    policy, seen = config.policy, []
    for at in range(1, 40):
        policy.before_step(model, optimizer, at, 0)
        seen += copies(model)
    assert float(torch.stack(seen).std()) == pytest.approx(model.config.embed_std, rel=0.05)
    assert len({float(x[0, 0]) for x in seen}) == len(seen)  # never the same draw twice


@each_policy
@each_optimiser
@each_tying
def test_no_parameter_stands_twice_in_the_optimiser(tied, optimiser, policy):
    config, model, optimizer = prepared(policy, tied, optimiser)
    pointers = [p.data_ptr() for p in in_optimiser(optimizer)]
    assert len(pointers) == len(set(pointers))
    missing = {id(p) for p in model.parameters()} - {id(p) for p in in_optimiser(optimizer)}
    frozen = model.embedding_parameters() if isinstance(policy, Freeze) else []
    assert missing == {id(p) for p in frozen}


@each_policy
def test_tied_stays_one_storage(policy):
    config, model, optimizer = prepared(policy)
    for at in range(5):
        step(config, model, optimizer, policy, at)
    assert model.W_E is model.W_U
    assert isinstance(model.W_E, nn.Parameter)
    assert torch.equal(model.state_dict()["W_E"], model.state_dict()["W_U"])


@pytest.mark.parametrize("every", [0, -1])
def test_a_reset_needs_a_step_between(every):
    with pytest.raises(ValueError, match="at least one step"):
        Reset(every=every)


@pytest.mark.parametrize("rows", [(), (-1,), (TASK.d_vocab,), (0, TASK.d_vocab)])
def test_rows_that_are_not_there_are_refused(rows):
    with pytest.raises(ValueError, match=f"of the {TASK.d_vocab} tokens"):
        prepared(FreezeRows(rows))


# ---- refresh ----


@each_tying
@each_optimiser
def test_only_rows_that_no_batch_has_held_are_redrawn_and_get_new_moments(optimiser, tied):
    policy = Refresh(every=10)
    config, model, optimizer = prepared(policy, tied, optimiser)
    seen = set()
    for at in range(30):
        before = copies(model)
        old = [[m.clone() for m in moments(optimizer, p)] for p in model.embedding_parameters()]
        policy.before_step(model, optimizer, at, 0)
        changed = {
            int(row)
            for was, now in zip(before, copies(model), strict=True)
            for row in (was != now).any(dim=1).nonzero().flatten()
        }
        unused = set(range(TASK.d_vocab)) - seen
        assert changed == (unused if at in (10, 20) else set()), at
        for parameter, olds in zip(model.embedding_parameters(), old, strict=True):
            second = optimizer.state.get(parameter, {}).get("exp_avg_sq")
            for moment, was in zip(moments(optimizer, parameter), olds, strict=True):
                kept = sorted(set(range(TASK.d_vocab)) - changed)
                assert torch.equal(moment[kept], was[kept])
                if moment is second and changed:  # Adam counts steps for all rows together
                    mean = was[sorted(seen)].mean(dim=0).expand(len(changed), -1)
                    torch.testing.assert_close(moment[sorted(changed)], mean)
                else:
                    assert not moment[sorted(changed)].any()
        step(config, model, optimizer, Learn(), at)
        policy.saw(training.batch_of(config, at).tokens)
        seen |= set(training.batch_of(config, at).tokens.flatten().tolist())
    assert set(TASK.unseen) <= unused


def test_refreshed_rows_are_drawn_like_the_used_ones():
    """Many unused rows, so that their mean and variances can be compared."""
    task = logic.LogicConfig(1, 200, 4000)
    model = Transformer(TransformerConfig(d_vocab=task.d_vocab, d_model=8, n_layers=1, n_heads=2))
    with torch.no_grad():
        model.W_E.copy_(torch.randn_like(model.W_E) * torch.arange(1.0, 9) + 2)
    policy = Refresh(every=1)
    policy.trained(model)
    policy.saw(torch.arange(206))
    policy.before_step(model, torch.optim.SGD(model.parameters(), lr=0.1), 1, 0)
    used, new = model.W_E.detach()[:206], model.W_E.detach()[206:]
    scale = used.std(dim=0)
    assert ((new.mean(dim=0) - used.mean(dim=0)) / scale).abs().max() < 0.1
    shrunk = torch.cov(used.T).diagonal()
    shrunk = (1 - 8 / 214) * shrunk + 8 / 214 * shrunk.mean()
    torch.testing.assert_close(new.var(dim=0), shrunk, rtol=0.1, atol=0)


def test_a_policy_used_again_starts_with_nothing_seen():
    policy = Refresh(every=1)
    for _ in range(2):
        config, model, optimizer = prepared(policy)
        before = model.W_E.detach().clone()
        policy.before_step(model, optimizer, 1, 0)  # fewer than two rows to draw like
        assert torch.equal(model.W_E, before)
        step(config, model, optimizer, policy, 0)
        policy.before_step(model, optimizer, 1, 0)
        assert not torch.equal(model.W_E[-1], before[-1])


def test_a_refresh_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="at least one step"):
        Refresh(every=0)
    with pytest.raises(ValueError, match="nearest: mean_cov"):
        Refresh(method="mean_covariance")
