"""Presets and sweeps: configurations follow, probing a model leaves its training as it was."""

import copy
import dataclasses
import functools
import inspect
import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch

from lib import experiments, geometry, results
from lib.configuration import config_hash
from lib.evaluation import direct_parts, evaluate
from lib.experiments import COSINES, FACTORS, PRESETS, Cell, logic_run
from lib.generators import stream, text
from lib.generators.logic import LogicConfig
from lib.models.transformer import Transformer, initialise
from lib.policies import Freeze, FreezeRows, Learn, Reset
from lib.repair import METHODS, redraw
from lib.sweeps import SWEEPS
from lib.training import train

STEPS = 2  # evaluated and probed at each
ARMS = ("standard", "copy", "freeze", "reset+copy")
each_arm = pytest.mark.parametrize("arm", ARMS)


def small(arm):
    """A cell of the sweep, small enough to take no time."""
    changes = {"policy": Reset(every=1)} if "reset" in arm else {}
    task = LogicConfig(depth=1, n_seen=50, n_unseen=8)
    run = logic_run(
        "tiny", arm, task, seed=3, steps=STEPS, eval_every=1, eval_problems=8, batch=8, **changes
    )
    sizes = dataclasses.replace(run.model, d_model=8, n_layers=1)
    return Cell(arm, dataclasses.replace(run, model=sizes))


@functools.cache
def ran(arm):
    """Rows of a small cell, and the model that its training ended with."""
    ends = []

    def watched(*args, **kwargs):
        ends.append(train(*args, **kwargs))
        return ends[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "PROBE_EVERY", {(1, 50): 1})
        patch.setattr(experiments, "train", watched)
        rows, tensors = experiments.run_arms(small(arm))
    assert len(ends) == 1 and not tensors
    return rows, ends[0].model


@functools.cache
def alone(arm):
    """The same run with nobody looking."""
    return train(small(arm).run, "cpu")


def of(arm, variant, step=None):
    rows = [row for row in ran(arm)[0] if row["variant"] == variant]
    return [row for row in rows if step in (None, row["step"])]


def only(rows):
    assert len(rows) == 1
    return rows[0]


def expected(arm, evaluated=range(STEPS + 1), probed=range(STEPS + 1)):
    """(variant, level, step) of all rows of an arm; no level is None."""
    rows = [("as trained", None, step) for step in evaluated]
    if probed:
        if arm in ("standard", "copy", "standard_slow", "copy_slow"):
            rows += [(method, None, step) for method in METHODS for step in probed]
        if "copy" in arm:
            rows += [("no copy head", None, step) for step in probed]
        if "freeze" in arm:
            rows += [("cosine", level, probed[-1]) for level in COSINES]
            rows += [("norm", level, probed[-1]) for level in FACTORS]
    return Counter(rows)


def keys(rows):
    return Counter(
        (r["variant"], None if math.isnan(r["level"]) else r["level"], r["step"]) for r in rows
    )


@each_arm
def test_each_arm_has_its_rows(arm):
    assert keys(ran(arm)[0]) == expected(arm)


def first_cells():
    """One cell of the true sweep for each arm and number of names."""
    return {(c.arm, c.run.task.n_seen): c for c in reversed(experiments.arms_cells())}.values()


@pytest.mark.parametrize("cell", first_cells(), ids=lambda c: f"{c.arm}-{c.run.task.n_seen}")
def test_cells_of_the_sweep_have_their_rows(monkeypatch, cell):
    """The true schedule, on an untrained model, measuring nothing."""

    def looked_at(run, device, observe):
        model = initialise(Transformer(run.model), stream(run.seed, "weights"))
        for step in range(0, run.steps + 1, run.eval_every):
            observe(step, model)

    monkeypatch.setattr(experiments, "train", looked_at)
    monkeypatch.setattr(experiments, "evaluate", lambda *args: {})
    monkeypatch.setattr(experiments, "direct_parts", lambda *args: {})
    got = keys(experiments.run_arms(cell)[0])
    probed = {1000: range(0, 2401, 200), 50: range(0, 2401, 400)}
    assert got == expected(cell.arm, range(0, 2401, 100), probed.get(cell.run.task.n_seen))


def test_all_rows_of_all_arms_have_the_same_columns():
    columns = {tuple(row) for arm in ARMS for row in ran(arm)[0]}
    assert len(columns) == 1
    names = columns.pop()
    assert names[:7] == ("arm", "n_seen", "depth", "seed", "variant", "level", "step")
    assert not [name for name in names if name.startswith("W_E")]
    assert [name for name in names if name.startswith("W_U")]


@each_arm
def test_rows_say_which_run_they_are_from(arm):
    head = {tuple(row[name] for name in ("arm", "n_seen", "depth", "seed")) for row in ran(arm)[0]}
    assert head == {(arm, 50, 1, 3)}


@each_arm
def test_every_measure_is_a_number(arm):
    for row in ran(arm)[0]:
        rest = [value for name, value in row.items() if name not in ("arm", "variant", "level")]
        assert all(math.isfinite(value) for value in rest)


@each_arm
def test_probing_does_not_disturb_training(arm):
    probed, plain = ran(arm)[1], alone(arm).model
    weights = dict(plain.named_parameters())
    assert all(torch.equal(p, weights[name]) for name, p in probed.named_parameters())
    assert len({row["loss"] for row in alone(arm).history[1:]}) == STEPS  # it did learn


@each_arm
def test_as_trained_is_what_training_alone_measures(arm):
    trained = of(arm, "as trained")
    for row, plain in zip(trained, alone(arm).history, strict=True):
        for name, value in plain.items():
            if name != "loss" and not name.startswith("W_E"):
                assert row[name] == value
    run = small(arm).run
    direct = direct_parts(alone(arm).model, run.task, 8, stream(3, "direct"))
    assert {name: trained[-1][name] for name in direct} == direct


@pytest.mark.parametrize("method", METHODS)
def test_a_repair_is_measured_on_repaired_rows(method):
    """At the end: the model trained with nobody looking, its rows redrawn by hand."""
    run, repaired = small("standard").run, copy.deepcopy(alone("standard").model)
    with torch.no_grad():
        draws = stream(3, method, STEPS)
        repaired.W_E.copy_(redraw(repaired.W_E, run.task.seen, run.task.unseen, method, draws))
    row = only(of("standard", method, STEPS))
    for name, value in evaluate(repaired, run.task, 8, stream(3, "test")).items():
        if not name.startswith("W_E"):
            assert row[name] == value


@pytest.mark.parametrize("arm", ["standard", "copy"])
def test_repairs_leave_seen_rows_alone(arm):
    for method in set(METHODS) - {"swapped"}:
        for row in of(arm, method):
            before = only(of(arm, "as trained", row["step"]))
            kept = [name for name in before if name.startswith("W_U_seen")]
            assert kept and all(row[name] == before[name] for name in kept)
            assert row["W_U_unseen_norm"] != before["W_U_unseen_norm"]


@pytest.mark.parametrize("method", ["fresh", "mean_cov"])
def test_each_repair_draws_anew_at_each_step(method):
    norms = [row["W_U_unseen_norm"] for row in of("standard", method)]
    assert len(set(norms)) == len(norms) == STEPS + 1


@pytest.mark.parametrize("arm", ["copy", "reset+copy"])
def test_a_silent_copy_head_adds_nothing(arm):
    for row in of(arm, "no copy head"):
        before = only(of(arm, "as trained", row["step"]))
        for name in before:
            if name.startswith("direct_copy"):
                assert row[name] == 0 != before[name]
            if name.startswith("direct_stream") or name.startswith("W_U"):
                assert row[name] == before[name]


def test_ruined_rows_are_ruined_as_asked():
    arm = "freeze"
    before = only(of(arm, "as trained", STEPS))
    for row in of(arm, "norm"):
        want = row["level"] * before["W_U_unseen_norm"]
        assert row["W_U_unseen_norm"] == pytest.approx(want, rel=1e-5)
        assert row["W_U_unseen_cosine"] == pytest.approx(before["W_U_unseen_cosine"], abs=1e-5)
        if row["level"] == 1:  # nothing was changed, so nothing is different
            same = [name for name in row if name not in ("variant", "level")]
            assert all(row[name] == before[name] for name in same)
    x = ran(arm)[1].W_U.detach()[list(small(arm).run.task.unseen)]
    for row in of(arm, "cosine"):
        assert row["W_U_unseen_norm"] == pytest.approx(before["W_U_unseen_norm"], rel=1e-5)
        assert row["W_U_unseen_cosine"] == pytest.approx(
            row["level"], abs=(1 - row["level"]) / (len(x) - 1) + 1e-6
        )
    assert before["W_U_unseen_cosine"] == pytest.approx(geometry.mean_cosine(x))


def test_rows_of_two_arms_go_into_one_table(tmp_path):
    for arm in ("standard", "freeze"):
        results.load_or_run("x", small(arm), lambda c, a=arm: (ran(a)[0], {}), store=tmp_path)
    frame = results.table("x", tmp_path)
    for arm in ("standard", "freeze"):
        stored = frame[frame["arm"] == arm].to_dict("records")
        assert keys(stored) == expected(arm)


@pytest.mark.parametrize("task", [LogicConfig(n_seen=50), LogicConfig(1, 20, 9), LogicConfig(4)])
def test_the_vocabulary_follows_the_task(task):
    for arm in experiments.ARMS:
        run, plain = logic_run(arm=arm, task=task), logic_run(arm=arm)
        assert run.task == task and run.model.d_vocab == 6 + task.n_seen + task.n_unseen
        same = dataclasses.replace(plain.model, d_vocab=run.model.d_vocab)
        policy = FreezeRows(tuple(task.unseen)) if arm.startswith("freeze_rows") else plain.policy
        assert run == dataclasses.replace(plain, task=task, model=same, policy=policy)


def test_without_a_task_it_is_the_presets():
    for name, preset in experiments.PRESETS.items():
        assert logic_run(name) == preset == logic_run(name, task=preset.task)


def test_changes_win_over_the_arm():
    run = logic_run(arm="freeze+copy", policy=Learn(), seed=7)
    assert run.policy == Learn() and run.seed == 7 and run.model.copy


def test_arms_differ_from_the_standard_as_their_names_say():
    plain = logic_run()
    for arm in experiments.SIX:
        run = logic_run(arm=arm)
        policy, _, head = arm.partition("+")
        want = {"freeze": Freeze(), "reset": Reset()}.get(policy, Learn())
        assert run.policy == want and run.model.copy == ("copy" in (policy, head))
        sizes = dataclasses.replace(run.model, copy=False)
        assert dataclasses.replace(run, policy=Learn(), model=sizes) == plain


@pytest.mark.parametrize("name", SWEEPS)
def test_no_two_cells_of_a_sweep_share_a_hash(name):
    hashes = [config_hash(cell) for cell in SWEEPS[name][0]()]
    assert hashes and len(set(hashes)) == len(hashes)


def grouped():
    groups = defaultdict(list)
    for cell in experiments.arms_cells():
        task = cell.run.task
        groups[cell.arm, task.n_seen, task.depth].append(cell.run)
    return groups


def test_the_sweep_of_arms_is_whole():
    four = ("standard", "copy", "freeze", "freeze+copy")
    want = {(arm, 1000) for arm in experiments.SIX} | {("reset+copy", 9600)}
    want |= {(arm, n) for arm in four for n in (50, 150, 9600)}
    want |= {("reset_half", 1000), ("reset_half+copy", 1000)}
    want |= {("standard_slow", 1000), ("copy_slow", 1000)}
    want = {(*where, 2) for where in want}
    others = [("standard", "freeze+copy"), (50, 1000), (1, 3)]
    assert set(grouped()) == want | set(itertools.product(*others))


def test_each_cell_has_five_seeds_for_reporting_and_nothing_else_differs():
    for runs in grouped().values():
        seeds = {run.seed for run in runs}
        assert len(seeds) == len(runs) >= 5 and min(seeds) >= 10
        assert len({config_hash(dataclasses.replace(run, seed=0)) for run in runs}) == 1


def test_runs_of_the_sweep_of_arms_are_as_its_probes_take_for_granted():
    default = inspect.signature(redraw).parameters["embed_std"].default
    for cell in experiments.arms_cells():
        run = cell.run
        assert run.model.tied and run.model.embed_std == default
        every = experiments.PROBE_EVERY.get((run.task.depth, run.task.n_seen))
        if every is not None:
            assert run.steps % every == 0 == every % run.eval_every
        assert run.task.n_seen >= run.task.n_unseen  # `duplicates` and `swapped` need as many


@pytest.mark.parametrize(
    ("name", "low", "high"), [("paper", 60e6, 75e6), ("workstation", 5e6, 7e6)]
)
def test_large_presets_have_their_size(name, low, high):
    with torch.device("meta"):
        model = Transformer(PRESETS[name].model)
    assert low < sum(p.numel() for p in model.parameters()) < high


@pytest.mark.parametrize("name", ["paper", "workstation", "text", "horn"])
def test_presets_take_a_step_at_shrunk_size(name, monkeypatch):
    """Same code path: precision, compilation asked for (CUDA only), task; smaller numbers."""
    preset = PRESETS[name]
    if name == "text":
        monkeypatch.setattr(
            text, "sources", lambda part: [(part, "def f(x):\n    return x\n" * 40)]
        )
        text.encoded.cache_clear(), text.trained_tokenizer.cache_clear()
        task = dataclasses.replace(preset.task, vocabulary=260, reserved=12, context=8)
    else:
        task = dataclasses.replace(preset.task, n_seen=30, n_unseen=20)
    model = dataclasses.replace(
        preset.model, d_vocab=task.d_vocab, d_model=24, n_heads=2, n_layers=2
    )
    small = dataclasses.replace(
        preset, task=task, model=model, batch=4, steps=3, eval_every=3, eval_problems=4
    )
    run = train(small, "cpu")
    text.encoded.cache_clear(), text.trained_tokenizer.cache_clear()
    assert [row["step"] for row in run.history] == [0, 3]
    assert all(p.dtype == torch.float32 for p in run.model.parameters())
    assert run.history[-1]["loss"] > 0
