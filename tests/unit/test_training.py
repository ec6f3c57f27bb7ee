"""One loop: resumed runs equal uninterrupted ones bit for bit, also after a kill at any moment."""

import dataclasses
import hashlib
import math
import os
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from lib import training
from lib.generators import logic, stream
from lib.models.transformer import Transformer, TransformerConfig, initialise
from lib.policies import Freeze, FreezeRows, Learn, Refresh, Reset

TASK = logic.LogicConfig(1, 8, 4)
TINY = training.RunConfig(
    task=TASK,
    model=TransformerConfig(d_vocab=TASK.d_vocab, d_model=8, n_layers=1, n_heads=2),
    policy=Reset(every=30),
    lr=0.01,
    weight_decay=0.1,
    batch=8,
    steps=200,
    eval_every=50,
    eval_problems=8,
    seed=0,
)
SHORT = dataclasses.replace(TINY, steps=12, eval_every=4, policy=Reset(every=5))


def same(a, b):
    """Equal histories; a loss at step 0 is not a number on both sides."""
    return len(a) == len(b) and all(
        x.keys() == y.keys() and all(x[k] == y[k] or (x[k] != x[k] and y[k] != y[k]) for k in x)
        for x, y in zip(a, b)
    )


def same_tensors(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    ("optimiser", "positions"), [("adamw", "rotary"), ("adam_l2", "learned"), ("sgd", "rotary")]
)
def test_200_steps_are_100_and_100(tmp_path, optimiser, positions):
    model = dataclasses.replace(TINY.model, positions=positions, tied=False, copy=True)
    config = dataclasses.replace(TINY, optimiser=optimiser, model=model)
    once = training.train(config, "cpu", tmp_path / "once.safetensors", 100)
    twice = tmp_path / "twice.safetensors"
    first = training.train(config, "cpu", twice, 100, stop_after=100)
    second = training.train(config, "cpu", twice, 100)
    assert [row["step"] for row in first.history] == [0, 50, 100]
    assert [row["step"] for row in second.history] == [0, 50, 100, 150, 200]
    assert same(once.history, second.history)
    assert same_tensors(once.model.state_dict(), second.model.state_dict())
    a, b = load_file(tmp_path / "once.safetensors"), load_file(twice)
    assert same_tensors(a, b)
    assert any(name.startswith("optimizer.") for name in a)


@pytest.mark.parametrize(
    "policy",
    [Learn(), Freeze(), Reset(every=5), FreezeRows((0, 14)), Refresh(every=5)],
    ids=str,
)
@pytest.mark.parametrize("stop", [1, 5, 6, 11])
def test_every_policy_resumes(tmp_path, policy, stop):
    config = dataclasses.replace(SHORT, policy=policy)
    once = training.train(config, "cpu")
    path = tmp_path / "run.safetensors"
    training.train(config, "cpu", path, 1, stop_after=stop)
    resumed = training.train(config, "cpu", path, 1)
    assert same(once.history, resumed.history)
    assert same_tensors(once.model.state_dict(), resumed.model.state_dict())


def test_a_finished_run_is_loaded_not_trained(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    once = training.train(SHORT, "cpu", path)
    monkeypatch.setattr(training, "answer_loss", None)
    again = training.train(SHORT, "cpu", path)
    assert same(once.history, again.history)
    assert same_tensors(once.model.state_dict(), again.model.state_dict())


def test_a_resumed_model_stays_tied(tmp_path):
    path = tmp_path / "run.safetensors"
    training.train(SHORT, "cpu", path, 1, stop_after=6)
    model = training.train(SHORT, "cpu", path).model
    assert model.W_E is model.W_U
    assert "model.W_U" not in load_file(path)


VICTIMS = """
import os, random, signal, time
from pathlib import Path
import torch
torch.set_num_threads(1)
torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # what it imports, once for all
from lib import training
from lib.generators import logic
from lib.models.transformer import TransformerConfig
from lib.policies import Reset

path, moments = Path("PATH"), random.Random(0)
stamp = lambda: path.stat().st_mtime_ns if path.exists() else 0
for _ in range(4):
    before, deadline = stamp(), time.monotonic() + 30
    victim = os.fork()
    if victim == 0:
        training.train(CONFIG, "cpu", path, checkpoint_every=1)
        os._exit(0)
    while stamp() == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(moments.uniform(0, 0.06))
    os.kill(victim, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(victim, 0)[1]), "it ended before it was killed"
    with training.safe_open(path, framework="pt") as file:
        print(file.metadata()["step"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it forks")
def test_killed_at_any_moment_a_run_resumes(tmp_path):
    """A run that saves after each step is killed four times; what it left loads and goes on."""
    config = dataclasses.replace(TINY, steps=5000, eval_every=500)
    path = tmp_path / "run.safetensors"
    text = repr(config).replace("RunConfig(", "training.RunConfig(")
    text = text.replace("LogicConfig(", "logic.LogicConfig(")
    code = VICTIMS.replace("CONFIG", text).replace("PATH", path.as_posix())
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert said.returncode == 0
    reached = [int(step) for step in said.stdout.split()]
    assert len(reached) == len(set(reached)) == 4 and reached == sorted(reached)
    stop = reached[-1] + 35  # a reset in between
    resumed = training.train(config, "cpu", path, 5000, stop_after=stop)
    once = training.train(config, "cpu", stop_after=stop)
    assert same(once.history, resumed.history)
    assert same_tensors(once.model.state_dict(), resumed.model.state_dict())


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("at", ["save_file", "fsync", "replace"])
def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch, at, call):
    path, calls = tmp_path / "run.safetensors", []
    owner = training if at == "save_file" else training.os
    real = getattr(owner, at)

    def failing(*args, **kwargs):
        calls.append(at)
        if len(calls) == call:
            raise OSError("no space left")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, at, failing)
    with pytest.raises(OSError, match="no space left"):
        training.train(SHORT, "cpu", path, 1)
    monkeypatch.undo()
    assert path.exists() == (call > 1)
    resumed = training.train(SHORT, "cpu", path, 1)
    assert same(training.train(SHORT, "cpu").history, resumed.history)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"lr": 0.02},
        {"steps": 13},
        {"policy": Learn()},
        {"policy": Reset(every=6)},
    ],
    ids=str,
)
def test_a_foreign_checkpoint_is_refused(tmp_path, changes):
    path = tmp_path / "run.safetensors"
    training.train(SHORT, "cpu", path, 1, stop_after=2)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="run.safetensors belongs to another configuration"):
        training.train(dataclasses.replace(SHORT, **changes), "cpu", path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "run.safetensors"
    training.train(SHORT, "cpu", path, 1, stop_after=2)
    whole = path.read_bytes()
    broken = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"not tensors at all"}[damage]
    path.write_bytes(broken)
    with pytest.raises((ValueError, SafetensorError), match="run.safetensors"):
        training.train(SHORT, "cpu", path)
    assert path.read_bytes() == broken


EXPLODES = {"optimiser": "sgd", "lr": 1e30, "policy": Learn()}


def test_a_loss_that_is_no_number_names_step_and_configuration():
    config = dataclasses.replace(SHORT, **EXPLODES)
    with pytest.raises(FloatingPointError, match=r"at step [1-3]\b.*LogicConfig.*'lr': 1e\+30"):
        training.train(config, "cpu")


def test_an_exploded_run_leaves_its_last_good_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(FloatingPointError):
        training.train(dataclasses.replace(SHORT, **EXPLODES, eval_every=9), "cpu", path, 1)
    assert all(t.isfinite().all() for t in load_file(path).values())


def sha(*values):
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("seed", [0, 1])
def test_data_and_first_weights_do_not_depend_on_the_device(monkeypatch, seed):
    """Everything random comes from generators on the CPU; global seeds and the device play no part."""
    config = dataclasses.replace(SHORT, seed=seed, policy=Learn())
    drawn, generators = [], []
    sample, start = logic.sample, initialise

    def watched_sample(task, n, generator, *rest):
        generators.append(generator)
        problems = sample(task, n, generator, *rest)
        drawn[-1].append(sha(problems.tokens))
        return problems

    def watched_start(model, generator):
        generators.append(generator)
        model = start(model, generator)
        drawn[-1].append(sha(*model.parameters()))
        return model

    monkeypatch.setattr(logic, "sample", watched_sample)
    monkeypatch.setattr(training, "initialise", watched_start)
    for device in ("cpu", "auto"):
        torch.manual_seed(len(drawn))
        drawn.append([])
        training.train(config, device)
    assert len(drawn[0]) > config.steps
    assert drawn[0] == drawn[1]
    assert {g.device.type for g in generators} == {"cpu"}


def test_streams_are_independent():
    names = [(seed, name, step) for seed in (0, 1) for name in ("a", "b") for step in (0, 1, 2)]
    firsts = {torch.rand(1, generator=stream(*key)).item() for key in names}
    assert len(firsts) == len(names)
    again = [torch.rand(4, generator=stream(0, "a", 2)) for _ in range(2)]
    assert torch.equal(*again)


def test_seed_0_is_a_seed_like_any_other():
    ends = [training.train(dataclasses.replace(SHORT, seed=s), "cpu") for s in (0, 0, 1)]
    tensors = [run.model.state_dict() for run in ends]
    assert same_tensors(tensors[0], tensors[1])
    assert not same_tensors(tensors[0], tensors[2])


def test_every_batch_is_another_and_none_is_a_test_set():
    batches = [training.batch_of(SHORT, step).tokens for step in range(20)]
    assert len({sha(batch) for batch in batches}) == 20
    assert all(batch.shape == (SHORT.batch, TASK.length) for batch in batches)


@pytest.mark.parametrize("device", ["gpu", "tpu", "", "cuda:x", "CPU", "meta"])
def test_an_unknown_device_names_the_usable_ones(device):
    with pytest.raises(ValueError, match="use auto"):
        training.pick_device(device)


def test_auto_picks_what_is_there(monkeypatch):
    assert training.pick_device("auto").type in ("cpu", "cuda", "mps")
    for cuda, mps, best in [
        (True, True, "cuda"),
        (True, False, "cuda"),
        (False, True, "mps"),
        (False, False, "cpu"),
    ]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=cuda: there)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda there=mps: there)
        assert training.pick_device("auto").type == best
        for device, there in (("cuda", cuda), ("mps", mps)):
            if there:
                assert training.pick_device(device).type == device
            else:
                with pytest.raises(ValueError, match=f"device '{device}' is not available"):
                    training.pick_device(device)


def test_no_progress_bar_where_there_is_no_terminal(capfd):
    training.train(SHORT, "cpu")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser": "adam"}, "use one of adamw, adam_l2, sgd"),
        ({"lr": 0.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"seed": -1}, "seed"),
        ({"batch": 0}, "batch is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"eval_every": 0}, "eval_every is 0"),
        ({"eval_problems": 0}, "eval_problems is 0"),
        ({"task": logic.LogicConfig(1, 9, 4)}, "make them equal"),
        ({"model": dataclasses.replace(TINY.model, positions="learned", n_ctx=5)}, "n_ctx is 5"),
        ({"embed_lr_scale": -1.0}, "embed_lr_scale"),
    ],
    ids=str,
)
def test_impossible_settings_say_what_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.parametrize("copy", [True, False])
def test_the_loss_is_the_cross_entropy_of_the_answer(copy):
    model = initialise(
        Transformer(dataclasses.replace(TINY.model, copy=copy)), stream(0, "weights")
    ).double()
    tokens, total = training.batch_of(TINY, 0).tokens, 0.0
    for text in tokens:
        for at in range(TASK.prompt_length, TASK.length):
            logits = model(text[None, :at])[0, -1].tolist()  # only what stands before
            total += math.log(sum(math.exp(x) for x in logits)) - logits[text[at]]
    want = total / (len(tokens) * TASK.answer_length)
    got = training.answer_loss(model, tokens, TASK.answer_length).item()
    assert got == pytest.approx(want)


@pytest.mark.parametrize(
    ("optimiser", "decoupled"), [("adamw", True), ("adam_l2", False), ("sgd", False)]
)
def test_one_step_of_each_optimiser_by_hand(optimiser, decoupled):
    config = dataclasses.replace(TINY, optimiser=optimiser, policy=Learn(), lr=0.02)
    model = initialise(Transformer(config.model), stream(0, "weights")).double()
    optimizer = training.make_optimiser(config, model)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    training.answer_loss(model, training.batch_of(config, 0).tokens, TASK.answer_length).backward()
    optimizer.step()
    for name, new in model.named_parameters():
        old, lr = before[name], config.lr * (config.embed_lr_scale if name == "W_E" else 1)
        g = new.grad if decoupled else new.grad + config.weight_decay * old
        move = g if optimiser == "sgd" else g / (g.abs() + 1e-8)  # Adam's first step: sign-like
        shrink = 1 - lr * config.weight_decay if decoupled else 1.0
        torch.testing.assert_close(new.detach(), shrink * old - lr * move, atol=1e-7, rtol=1e-6)


def test_the_history_has_one_row_per_evaluation():
    history = training.train(dataclasses.replace(SHORT, steps=10, eval_every=4), "cpu").history
    assert [row["step"] for row in history] == [0, 4, 8, 10]
    assert math.isnan(history[0]["loss"]) and all(row["loss"] > 0 for row in history[1:])
    assert len({tuple(row) for row in history}) == 1


def test_an_observer_sees_the_model_at_each_evaluation(tmp_path):
    config, path = dataclasses.replace(SHORT, eval_every=4), tmp_path / "run.safetensors"
    seen = []

    def observe(step, model):
        seen.append((step, sha(model.W_E)))

    whole = training.train(config, "cpu", observe=observe)
    assert [step for step, _ in seen] == [row["step"] for row in whole.history]
    assert seen[-1][1] == sha(whole.model.W_E)
    once, seen = seen, []
    training.train(config, "cpu", path, 1, stop_after=6, observe=observe)
    training.train(config, "cpu", path, 1, observe=observe)
    assert seen == once


def test_what_is_evaluated_does_not_change_what_is_learned():
    ends = [
        training.train(dataclasses.replace(SHORT, eval_every=n, eval_problems=m), "cpu")
        for n, m in [(1, 3), (12, 20)]
    ]
    assert same_tensors(*(run.model.state_dict() for run in ends))


def test_training_lowers_the_loss():
    history = training.train(dataclasses.replace(TINY, policy=Learn()), "cpu").history
    assert history[-1]["loss"] < 0.8 * history[1]["loss"]
