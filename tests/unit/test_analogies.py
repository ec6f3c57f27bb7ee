"""Training many models on analogies: measures against slow loops, runs against their twins."""

import dataclasses
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from lib import analogies, analogy_sweeps, geometry
from lib.analogies import AnalogyRun, evaluate, member_of, train_many
from lib.ensemble import PAD
from lib.generators import stream
from lib.generators.analogy import AnalogyConfig
from lib.models.transformer import Transformer, initialise
from lib.policies import Freeze, FreezeRows, Refresh, Reset

TASK = AnalogyConfig(entities=5, vocabulary=60, comp_ood=0.5, ana_ood=0.4)
TINY = AnalogyRun(task=TASK, d_model=16, batch=8, steps=20, eval_every=10)


def runs(n=2, **changes):
    return [dataclasses.replace(TINY, seed=s, **changes) for s in range(n)]


def test_a_member_trains_the_same_in_any_company():
    together = train_many(runs(3, lr=1e-3))[1]
    for seed, history in enumerate(together):
        (alone,) = train_many([dataclasses.replace(TINY, lr=1e-3, seed=seed)])[1]
        assert [row["step"] for row in alone] == [0, 10, 20]
        for a, b in zip(alone, history, strict=True):
            assert a.keys() == b.keys()
            for name in a:
                assert a[name] == pytest.approx(b[name], abs=1e-4, nan_ok=True)


def test_training_facts_are_the_id_facts_and_held_out_ones_never_occur():
    member = member_of(TINY)
    world = member.world
    held = {tuple(f) for f in world.compositional.ood.tolist()}
    held |= {(PAD, *f) for f in world.analogical.ood.tolist()}
    pool = {tuple(f) for f in member.pool.tolist()}
    assert pool and held and not pool & held
    assert len(pool) == len(world.atomic) + len(world.compositional.id) + len(world.analogical.id)


def test_accuracy_and_probability_equal_a_loop_over_facts():
    models, history = train_many(runs(2))
    members = [member_of(run) for run in runs(2)]
    for i, row in enumerate(evaluate(models, members)):
        single = models.member(i)
        for kind, facts in members[i].asked.items():
            right, mass = [], []
            for *prompt, answer in facts.tolist():
                prompt = torch.tensor([[t for t in prompt if t != PAD]])
                logits = single(prompt, last=1)[0, 0].detach()
                right.append(int(logits.argmax()) == answer)
                mass.append(float(logits.softmax(0)[answer]))
            assert row[f"acc_{kind}"] == pytest.approx(sum(right) / len(right))
            assert row[f"p_{kind}"] == pytest.approx(sum(mass) / len(mass), rel=1e-4)
        assert row == {k: history[i][-1][k] for k in row}


def test_stand_ins_stand_for_the_names_that_never_occur():
    run = dataclasses.replace(TINY, stand_ins=7)
    member = member_of(run)
    assert run.unused == 60 - 20 and len(member.unused) == 7
    assert not torch.isin(member.unused, member.pool).any()
    _, (history,) = train_many([run])
    exact = train_many([TINY])[1][0]
    assert history[0]["p_atomic"] == pytest.approx(exact[0]["p_atomic"], rel=0.5)
    assert math.isfinite(history[-1]["loss"])


def test_energy_and_parallelism_equal_a_loop():
    member = member_of(TINY)
    W = torch.randn(TINY.world.d_vocab, 6, dtype=torch.float64)
    row = analogies.alignment(W, member.world, "W")
    source, target = member.world.entity[:2].tolist()
    f = W[member.world.functor[0]]

    def cos(a, b):
        return float(a @ b / a.norm() / b.norm())

    pairs = list(zip(source, target, strict=True))
    other = [(s, t) for i, s in enumerate(source) for j, t in enumerate(target) if i != j]
    held = [(s, t) for s, t in pairs if t in set(member.world.analogical.ood[:, -1].tolist())]
    for group, edges in (("pairs", pairs), ("mismatched", other), ("held_out", held)):
        energy = sum(2 - 2 * cos(W[s], W[t]) for s, t in edges) / len(edges)
        raw = sum(float((W[s] - W[t]).square().sum()) for s, t in edges) / len(edges)
        along = sum(cos(W[t] - W[s], f) for s, t in edges) / len(edges)
        assert row[f"W_energy_{group}"] == pytest.approx(energy)
        assert row[f"W_raw_energy_{group}"] == pytest.approx(raw)
        assert row[f"W_parallelism_{group}"] == pytest.approx(along)


def test_the_energy_is_the_trace_of_the_laplacian():
    x = torch.randn(6, 4, dtype=torch.float64)
    edges = torch.tensor([[0, 3], [1, 4], [2, 5], [0, 1]])
    A = torch.zeros(6, 6, dtype=torch.float64)
    A[edges[:, 0], edges[:, 1]] = A[edges[:, 1], edges[:, 0]] = 1
    L = A.sum(0).diag() - A
    want = float((x.T @ L @ x).trace()) / len(edges)
    assert geometry.dirichlet_energy(x, edges, normalised=False) == pytest.approx(want)
    with pytest.raises(ValueError, match="no edges"):
        geometry.dirichlet_energy(x, edges[:0])


def test_frozen_embeddings_stay_and_the_rest_learns():
    models, _ = train_many(runs(1, frozen=True))
    start, _ = train_many(runs(1, frozen=True, steps=1))
    assert torch.equal(models.W_E, start.W_E)
    assert not torch.equal(
        models.parameters["blocks.0.up.weight"], start.parameters["blocks.0.up.weight"]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"task": dataclasses.replace(TASK, implicit=True)},
        {"task": dataclasses.replace(TASK, functors=2)},
        {"task": dataclasses.replace(TASK, ana_ood=0.0, comp_ood=0.0)},
        {"tied": False, "n_layers": 2},
        {"init_std": None, "optimiser": "adamw"},
    ],
)
def test_every_variant_runs(changes):
    (history,) = train_many(runs(1, **changes, steps=2))[1]
    assert history[-1]["step"] == 2 and 0 <= history[-1]["acc_atomic"] <= 1
    assert ("W_U_norm" in history[-1]) == (not changes.get("tied", True))


def test_what_cannot_be_trained_together_is_refused():
    with pytest.raises(ValueError, match="may differ in seed, lr and weight_decay only"):
        train_many([TINY, dataclasses.replace(TINY, batch=16)])
    for wrong in (0, 41):
        with pytest.raises(ValueError, match="40 names never occur"):
            dataclasses.replace(TINY, stand_ins=wrong)


def test_first_and_sustained():
    steps, scores = [0, 1, 2, 3, 4], [0.0, 0.9, 0.5, 0.95, 1.0]
    assert (analogies.first_hit(steps, scores), analogies.sustained(steps, scores)) == (1, 3)
    assert analogies.sustained(steps, [1.0] * 4 + [0.0]) is None
    assert analogies.first_hit(steps, [0.0] * 5) is None


def test_sweeps_leave_one_shape_of_rows():
    for make, run in (
        (analogy_sweeps.dynamics_cells, analogy_sweeps.run_dynamics),
        (analogy_sweeps.sensitivity_cells, analogy_sweeps.run_sensitivity),
    ):
        columns = set()
        for i, cell in enumerate(make()):
            assert len(cell.seeds) == 8 and min(cell.seeds) >= 10
            if i in (0, 2, 40):
                small = dataclasses.replace(TINY, tied=cell.run.tied, steps=4, eval_every=2)
                rows, _ = run(dataclasses.replace(cell, run=small, seeds=(10, 11)))
                columns.add(tuple(rows[0]))
                assert {row["seed"] for row in rows} == {10, 11}
        assert len(columns) == 1


POLICIES = [Reset(every=3), Reset(every=3, until=3), FreezeRows(), Refresh(every=3)]


def alone(run, policy):
    """A member's W_E and W_U after training it as a plain model, fact by fact."""
    member = member_of(run)
    model = initialise(Transformer(run.model), stream(run.seed, "weights"))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.lr, weight_decay=run.weight_decay)
    policy.trained(model)
    for step in range(run.steps):
        draws = stream(run.seed, "batch", step)
        facts = member.pool[torch.randint(len(member.pool), (run.batch,), generator=draws)]
        policy.before_step(model, optimizer, step, run.seed)
        policy.saw(facts[facts != PAD])
        loss = 0
        for fact in facts:
            *prompt, answer = fact[fact != PAD].tolist()
            logits = model(torch.tensor([prompt]), last=1)[0, 0]
            loss = loss + F.cross_entropy(logits, torch.tensor(answer)) / len(facts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        policy.after_step(model, optimizer)
    return [parameter.detach() for parameter in model.embedding_parameters()]


@pytest.mark.parametrize("decays", [(1e-3, 1e-3), (1e-3, 1e-1)], ids=["alike", "apart"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_policy_does_to_a_member_what_it_does_to_a_model_alone(policy, tied, decays):
    asked = [
        dataclasses.replace(
            TINY, policy=policy, tied=tied, seed=s, weight_decay=d, lr=1e-3, steps=8
        )
        for s, d in enumerate(decays)
    ]
    models, _ = train_many(asked)
    for i, run in enumerate(asked):
        own = FreezeRows(member_of(run).unused.tolist()) if policy == FreezeRows() else policy
        matrices = [models.W_E[i], models.W_U[i]][: 1 if tied else 2]
        for got, want in zip(matrices, alone(run, own), strict=True):
            torch.testing.assert_close(got.detach(), want, atol=1e-4, rtol=0)


def test_a_policy_that_cannot_be_is_refused():
    for wrong in ({"policy": Freeze()}, {"policy": Reset(), "frozen": True}):
        with pytest.raises(ValueError, match="frozen=True"):
            dataclasses.replace(TINY, **wrong)
    with pytest.raises(ValueError, match="takes no rows"):
        dataclasses.replace(TINY, policy=FreezeRows([1]))


@pytest.mark.parametrize("which", ["all", "known", "shuffled"])
def test_rows_are_aligned_before_training_and_nothing_else_is(which):
    plain = train_many(runs(1, steps=1, lr=1e-12))[0].W_E[0].detach()
    W = train_many(runs(1, steps=1, lr=1e-12, aligned=which))[0].W_E[0].detach()
    world = member_of(TINY).world
    f, (source, target) = int(world.functor[0]), world.entity.tolist()
    held = set(world.analogical.ood[:, -1].tolist())
    changed = {t for t in target if which != "known" or t not in held}
    for token in range(len(W)):
        assert torch.allclose(W[token], plain[token], atol=1e-6) == (token not in changed)
    for i, t in enumerate(target):
        s = source[(i + 1) % len(source)] if which == "shuffled" else source[i]
        if t in changed:
            assert torch.allclose(W[t] * math.sqrt(2), W[s] + W[f], atol=1e-6)


def test_alignment_by_hand_wants_a_known_word_and_tied_rows():
    for wrong in ({"aligned": "half"}, {"aligned": "all", "tied": False}):
        with pytest.raises(ValueError, match="aligned is"):
            dataclasses.replace(TINY, **wrong)


def test_sixty_four_models_train_at_once_compiled():
    """What a GPU runs, small: torch.compile's graphs without its code generator.

    In a process of its own, where no type checks stand between the compiler and the code.
    """
    program = """
import dataclasses
from lib.analogies import AnalogyRun, train_many
from lib.generators.analogy import AnalogyConfig

task = AnalogyConfig(entities=5, vocabulary=60, comp_ood=0.5, ana_ood=0.4)
small = AnalogyRun(task=task, d_model=8, batch=4, steps=3, eval_every=3, lr=1e-2)
many = [dataclasses.replace(small, seed=seed) for seed in range(64)]
for compiler in (None, "aot_eager"):
    print(*(history[-1]["loss"] for history in train_many(many, compiler=compiler)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    plain, compiled = (list(map(float, line.split())) for line in done.stdout.splitlines())
    assert len(plain) == 64 and plain == pytest.approx(compiled, rel=1e-4)
