"""An ensemble is its members: same logits, same trajectories, own settings."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lib import ensemble
from lib.ensemble import PAD, Ensemble, Optimiser, StandIns, build
from lib.generators import stream
from lib.models.transformer import TransformerConfig

SMALL = TransformerConfig(d_vocab=23, d_model=8, n_layers=1, n_heads=1)
SHAPES = [
    SMALL,
    dataclasses.replace(SMALL, n_heads=2, tied=False),
    dataclasses.replace(SMALL, n_layers=3),
]


def made(config, members=3, double=True):
    models = build(config, [stream(i, "weights") for i in range(members)])
    if double:
        models.parameters = {
            k: v.detach().double().requires_grad_() for k, v in models.parameters.items()
        }
    return models


def facts(config, members, batch, seed=0):
    """Prompts of two or three tokens, filled on the left, and answers."""
    tokens = torch.randint(config.d_vocab, (members, batch, 4), generator=stream(seed, "facts"))
    prompts, answers = tokens[:, :, :3], tokens[:, :, 3]
    prompts[:, ::2, 0] = PAD
    return prompts, answers


def loss(models, prompts, answers, stand_ins=None):
    """The losses by autograd throughout; stand-ins' own rows get R / K of their gradient."""
    W_U, bias = models.W_U, 0.0
    if stand_ins is not None:
        W_U, bias = torch.lerp(W_U.detach(), W_U, stand_ins.share), stand_ins.bias
    logits = models.last(prompts)[0] @ W_U.mT + bias
    each = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    return each.view(answers.shape).mean(dim=1)


def alone(model, prompts):
    """Logits of one plain model after each unpadded prompt."""
    rows = [model(prompt[prompt != PAD][None], last=1)[0, 0] for prompt in prompts]
    return torch.stack(rows)


@pytest.mark.parametrize("config", SHAPES)
def test_logits_are_those_of_each_member_without_padding(config):
    models = made(config)
    prompts, _ = facts(config, 3, 6)
    got = models.logits(prompts)
    for i in range(3):
        torch.testing.assert_close(
            got[i], alone(models.member(i), prompts[i]), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=["64", "32"]
)
@pytest.mark.parametrize("kind", ["adam_l2", "adamw"])
def test_a_trajectory_is_that_of_the_member_alone(dtype, tolerance, kind):
    config, steps = SHAPES[1], 200
    rates, decays = (1e-3, 3e-3), (0.0, 0.1)
    models = made(config, 2, dtype == torch.float64)
    singles = [models.member(i) for i in range(2)]
    together = Optimiser(models, rates, decays, kind)
    make = torch.optim.Adam if kind == "adam_l2" else torch.optim.AdamW
    apart = [
        make(m.parameters(), lr=lr, weight_decay=wd)
        for m, lr, wd in zip(singles, rates, decays, strict=True)
    ]
    for step in range(steps):
        prompts, answers = facts(config, 2, 4, step)
        ensemble.backward(models, prompts, answers)
        together.step()
        for i, (model, optimizer) in enumerate(zip(singles, apart, strict=True)):
            optimizer.zero_grad()
            F.cross_entropy(alone(model, prompts[i]), answers[i]).backward()
            optimizer.step()
    for name in models.parameters:
        for i, model in enumerate(singles):
            want = dict(model.named_parameters())[name].detach()
            assert (models.parameters[name][i] - want).abs().max() < tolerance * steps**0.5


def test_stand_ins_that_stand_for_themselves_change_nothing():
    models = made(SMALL, 2)
    prompts, answers = facts(SMALL, 2, 5)
    rows = torch.tensor([[20, 21, 22]]).expand(2, 3)
    plain = loss(models, prompts, answers)
    with_rows = loss(models, prompts, answers, StandIns(rows, 3, models.W_U))
    torch.testing.assert_close(plain, with_rows)


def test_stand_ins_equal_many_equal_rows():
    """R equal rows for K names act like K equal rows: loss, stream gradient, gradient of each row."""
    big = made(dataclasses.replace(SMALL, d_vocab=20 + 12), 1)
    small = made(SMALL, 1)
    with torch.no_grad():
        for name, value in small.parameters.items():
            if name != "W_E":
                big.parameters[name].copy_(value)
        small.W_E[:, 20:] = small.W_E[:, 20:21].clone()
        big.W_E[:, :20] = small.W_E[:, :20]
        big.W_E[:, 20:] = small.W_E[:, 20:21]
    prompts, answers = facts(dataclasses.replace(SMALL, d_vocab=20), 1, 5)
    rows = StandIns(torch.tensor([[20, 21, 22]]), 12, small.W_U)
    few, many = loss(small, prompts, answers, rows), loss(big, prompts, answers)
    torch.testing.assert_close(few, many)
    few.sum().backward()
    many.sum().backward()
    torch.testing.assert_close(small.W_E.grad[:, :21], big.W_E.grad[:, :21])
    for name, value in small.parameters.items():
        if name != "W_E":
            torch.testing.assert_close(value.grad, big.parameters[name].grad)


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("standing", [None, 12])
def test_the_backward_by_hand_is_autograd(config, standing):
    models, twin = made(config, 2), made(config, 2)
    rows = torch.tensor([[20, 21, 22], [3, 21, 9]])
    stand_ins = standing and StandIns(rows, standing, models.W_U)
    for step in range(2):  # the second time buffers are there already
        prompts, answers = facts(config, 2, 5, step)
        losses = ensemble.backward(models, prompts, answers, stand_ins)
        want = loss(twin, prompts, answers, stand_ins)
        torch.testing.assert_close(losses, want.detach())
        for value in twin.parameters.values():
            value.grad = None
        want.sum().backward()
        for name, value in twin.parameters.items():
            torch.testing.assert_close(models.parameters[name].grad, value.grad)


def test_frozen_parameters_stay():
    models = made(SMALL, 2)
    before = models.W_E.detach().clone()
    optimiser = Optimiser(models, (1e-2, 1e-2), (0.1, 0.1), "adamw", frozen=("W_E",))
    prompts, answers = facts(SMALL, 2, 4)
    other = models.parameters["ln_final.weight"].detach().clone()
    ensemble.backward(models, prompts, answers)
    optimiser.step()
    assert torch.equal(models.W_E, before)
    assert not torch.equal(models.parameters["ln_final.weight"], other)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"copy": True}, "no copy head"), ({"positions": "learned"}, "rotary")],
)
def test_what_is_not_built_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        build(dataclasses.replace(SMALL, **change), [stream(0, "weights")])


def test_members_of_different_shape_are_refused():
    one, other = made(SMALL, 1), made(SHAPES[1], 1)
    with pytest.raises(ValueError, match="one configuration"):
        Ensemble([one.member(0), other.member(0)])


def test_unknown_optimisers_and_too_many_rows_are_refused():
    models = made(SMALL, 1)
    with pytest.raises(ValueError, match="adam_l2 or adamw"):
        Optimiser(models, (1e-3,), (0.0,), "sgd")
    with pytest.raises(ValueError, match="use fewer rows"):
        StandIns(torch.tensor([[1, 2, 3]]), 2, models.W_U)
