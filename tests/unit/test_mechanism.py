"""Changes inside a trained model, against the same changes made by hand in one plain model."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from lib import analogy_sweeps, mechanism
from lib.analogies import AnalogyRun, evaluate, member_of, train_many
from lib.ensemble import PAD
from lib.generators.analogy import AnalogyConfig
from lib.models.transformer import rotary

TASK = AnalogyConfig(entities=5, vocabulary=60, comp_ood=0.5, ana_ood=0.4)
TINY = AnalogyRun(task=TASK, d_model=16, batch=16, steps=150, eval_every=150, lr=1e-2)
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def trained():
    runs = [dataclasses.replace(TINY, seed=seed) for seed in SEEDS]
    return train_many(runs)[0], [member_of(run) for run in runs]


def find(rows, test, change, level=math.nan, group="held_out"):
    (found,) = [
        row
        for row in rows
        if (row["test"], row["change"], row["group"]) == (test, change, group)
        and (row["level"] == level or math.isnan(level))
    ]
    return found


def by_hand(model, tokens, x=None, pattern=None, source_value=None, functor_value=None, mlp=True):
    """Logits after the last token, one layer, one head, with parts replaced."""
    block = model.blocks[0]
    x = model.W_E[tokens] if x is None else x
    normed = block.ln_1(x)
    q, k, v = (part(normed) for part in (block.query, block.key, block.value))
    q, k = rotary(q), rotary(k)
    if pattern is None:
        pattern = ((q @ k.T)[-1] / math.sqrt(q.shape[1])).softmax(0)
    v = v.clone()
    if source_value is not None:
        v[-2] = source_value
    if functor_value is not None:
        v[-1] = functor_value
    middle = x[-1] + block.out(pattern @ v)
    end = middle + block.down(F.relu(block.up(block.ln_2(middle)))) if mlp else middle
    return model.ln_final(end) @ model.W_U.T


def source_value(model, s, f):
    return model.blocks[0].value(model.blocks[0].ln_1(model.W_E[torch.tensor([s, f])]))[0]


def pattern_of(model, s, f):
    block, x = model.blocks[0], model.blocks[0].ln_1(model.W_E[torch.tensor([s, f])])
    q, k = rotary(block.query(x)), rotary(block.key(x))
    return ((q @ k.T)[-1] / math.sqrt(q.shape[1])).softmax(0)


def test_every_pair_is_asked_once(trained):
    _, members = trained
    asked = mechanism.ask(members)
    for i, member in enumerate(members):
        assert (asked.prompts[i, :, 0] == PAD).all()
        facts = torch.cat([asked.prompts[i, :, 1:], asked.answers[i][:, None]], dim=1).tolist()
        held = [f for f, h in zip(facts, asked.held[i], strict=True) if h]
        known = [f for f, h in zip(facts, asked.held[i], strict=True) if not h]
        assert sorted(held) == sorted(member.world.analogical.ood.tolist())
        assert sorted(known) == sorted(member.world.analogical.id.tolist())


@torch.no_grad()
def test_components_equal_changes_by_hand(trained):
    models, members = trained
    for i, rows in enumerate(mechanism.components(models, members)):
        model, world = models.member(i), members[i].world
        f, (source, target) = int(world.functor[0]), world.entity.tolist()
        held = set(world.analogical.ood[:, 0].tolist())
        values = {s: source_value(model, s, f) for s in source}
        mean = torch.stack(list(values.values())).mean(0)
        following = dict(zip(source, source[1:] + source[:1], strict=True))
        changes = {
            ("none", math.nan): lambda s: {},
            ("pattern", 0.25): lambda s: {"pattern": torch.tensor([0.25, 0.75])},
            ("pattern", 1.0): lambda s: {"pattern": torch.tensor([1.0, 0.0])},
            ("value, 0", math.nan): lambda s, mean=mean: {"source_value": 0 * mean},
            ("value, mean", math.nan): lambda s, mean=mean: {"source_value": mean},
            ("value, other", math.nan): lambda s, v=values, n=following: {"source_value": v[n[s]]},
            ("pattern, other", math.nan): lambda s, m=model, f=f, n=following: {
                "pattern": pattern_of(m, n[s], f)
            },
            ("functor value, 0", math.nan): lambda s: {"functor_value": 0.0},
            ("no MLP", math.nan): lambda s: {"mlp": False},
        }
        partner = dict(zip(source, target, strict=True))
        for (change, level), replaced in changes.items():
            said = {
                s: int(by_hand(model, torch.tensor([s, f]), **replaced(s)).argmax()) for s in source
            }
            for group, ask in (("held_out", held), ("known", set(source) - held)):
                row = find(rows, "components", change, level, group)
                right = sum(said[s] == partner[s] for s in ask) / len(ask)
                followed = sum(said[s] == partner[following[s]] for s in ask) / len(ask)
                assert (row["right"], row["followed"]) == pytest.approx((right, followed))
                assert row["n"] == len(ask)


@torch.no_grad()
def test_steering_equals_moving_rows_by_hand(trained):
    models, members = trained
    for i, rows in enumerate(mechanism.steering(models, members, SEEDS)):
        model, world = models.member(i), members[i].world
        W, f, (source, target) = model.W_E, int(world.functor[0]), world.entity.tolist()
        held = set(world.analogical.ood[:, 0].tolist())
        pairs = list(zip(source, target, strict=True))
        for change, level in (("functor", 2.0), ("mean difference", 1.0)):
            right, followed, nearest = [], [], []
            for a, (s, t) in enumerate(pairs):
                if s not in held:
                    continue
                others = [W[y] - W[x] for x, y in pairs if x not in held and x != s]
                step = W[f] if change == "functor" else torch.stack(others).mean(0)
                moved = W[s] + level * step
                order = F.cosine_similarity(moved[None], W).argsort(descending=True).tolist()
                nearest.append(next(token for token in order if token != s) == t)
                for b in range(len(source)):
                    if b != a:
                        r = int(world.relation[0, a, b])
                        said = int(by_hand(model, None, x=torch.stack([moved, W[r]])).argmax())
                        right.append(said == source[b])
                        followed.append(said == target[b])
            row = find(rows, "prompt", change, level)
            assert row["right"] == pytest.approx(sum(right) / len(right))
            assert row["followed"] == pytest.approx(sum(followed) / len(followed))
            share = sum(nearest) / len(nearest)
            assert find(rows, "row", change, level)["followed"] == pytest.approx(share)
        for level in mechanism.STRENGTHS:
            assert find(rows, "row", "random", level)["right"] == 0


def test_short_cut_prompts_change_what_they_say(trained):
    models, members = trained
    accuracy = evaluate(models, members)
    for i, rows in enumerate(mechanism.short_cut(models, members, SEEDS)):
        assert find(rows, "short cut", "none")["right"] == pytest.approx(
            accuracy[i]["acc_comp_ood"]
        )
        partners = {}
        for s, t in members[i].world.entity.T.tolist():
            partners |= {s: t, t: s}
        facts = members[i].asked["comp_ood"]
        turned = facts.clone()
        turned[:, 0] = torch.tensor([partners[s] for s in facts[:, 0].tolist()])
        with torch.no_grad():
            said = models.member(i)(turned[:, :3], last=1)[:, 0].argmax(1).tolist()
        followed = [a == partners[c] for a, c in zip(said, facts[:, 3].tolist(), strict=True)]
        row = find(rows, "short cut", "category")
        assert row["followed"] == pytest.approx(sum(followed) / len(followed))


def test_the_last_lens_is_the_answer_and_probes_are_ridge_regressions(trained):
    models, members = trained
    plain = mechanism.components(models, members)
    for i, rows in enumerate(mechanism.probes(models, members, SEEDS)):
        for group in ("held_out", "known"):
            last = find(rows, "lens", "blocks.0.resid_post", group=group)
            assert last["right"] == find(plain[i], "components", "none", group=group)["right"]
        for test in ("linear", "bilinear", "random answers"):
            assert 0 <= find(rows, test, "blocks.0.resid_mid", group="fitted")["right"] <= 1
    x, y = torch.randn(30, 6, dtype=torch.double), torch.randn(30, 3, dtype=torch.double)
    z = F.layer_norm(x, (6,))
    # ridge regression is least squares with sqrt(lambda) I as further rows, after centring
    rows = torch.cat([z - z.mean(0), math.sqrt(mechanism.RIDGE) * torch.eye(6)])
    due = torch.cat([y - y.mean(0), torch.zeros(6, 3)])
    weight = torch.linalg.lstsq(rows, due, driver="gelsd").solution
    want = (z - z.mean(0)) @ weight + y.mean(0)
    torch.testing.assert_close(mechanism._ridge(x, y)(x), want)


def test_probes_see_no_analogy(trained, monkeypatch):
    models, members = trained
    worlds = [m.world for m in members]
    seen = []
    monkeypatch.setattr(
        mechanism,
        "_ridge",
        lambda x, y: seen.append(len(x)) or (lambda z: torch.zeros(len(z), y.shape[1]).double()),
    )
    mechanism.probes(models, members, SEEDS)
    facts = len(worlds[0].atomic) + len(worlds[0].compositional.id)
    assert set(seen) == {facts}


def test_deeper_models_and_other_functors_are_refused(trained):
    _, members = trained
    deep = dataclasses.replace(TINY, n_layers=2, steps=1)
    with pytest.raises(ValueError, match="one layer"):
        mechanism.components(train_many([deep])[0], members[:1])
    many = member_of(dataclasses.replace(TINY, task=dataclasses.replace(TASK, functors=2)))
    with pytest.raises(ValueError, match="one functor"):
        mechanism.ask([many])


def test_the_sweep_leaves_one_shape_of_rows():
    shapes = set()
    for cell in analogy_sweeps.mechanism_cells():
        small = dataclasses.replace(TINY, n_layers=cell.run.n_layers, steps=2, eval_every=2)
        rows, _ = analogy_sweeps.run_mechanism(dataclasses.replace(cell, run=small, seeds=(10, 11)))
        shapes |= {tuple(row) for row in rows}
        assert {row["seed"] for row in rows} == {10, 11} and {row["step"] for row in rows} == {0, 2}
    assert {frozenset(shape) for shape in shapes} == {frozenset(next(iter(shapes)))}
