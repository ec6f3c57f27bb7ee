"""How fast: our training steps against plain textbook loops and against the arithmetic they need.

All on one thread. A textbook loop is the same model on the same problems, written as one would at
first: one model, a DataLoader over a list of problems, logits at every position, the default optimiser.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from lib import functors
from lib.analogies import AnalogyRun, evaluate, member_of
from lib.ensemble import PAD, Optimiser, StandIns, backward, build
from lib.evaluation import answer_loss
from lib.experiments import logic_run
from lib.generators import logic, stream
from lib.generators.prompts import PromptConfig, analogy_prompts
from lib.language_models import LanguageModel, load
from lib.models.transformer import Transformer, TransformerConfig, initialise
from lib.training import RunConfig, batch_of, make_optimiser


def bench_logic(names: tuple[int, ...] = (1000, 9600), steps: int = 30) -> dict[str, Any]:
    """Milliseconds a step, ours and the textbook's, the loss both reach, and the arithmetic bound."""
    torch.set_num_threads(1)
    peak = gemm_peak()
    report: dict[str, Any] = {
        "gemm_gflops": peak,
        "problems_per_s": {str(n): problems_per_second(n) for n in (128, 10_000)},
        "names": {},
    }
    for n_seen in names:
        task = logic.LogicConfig(n_seen=n_seen)
        base = logic_run("laptop")
        model = TransformerConfig(task.d_vocab, positions="learned")
        config = RunConfig(task, model, batch=base.batch)
        ours, loss = _timed(_our_steps(config), steps)
        plain, plain_loss = _timed(_textbook_steps(config, steps), steps)
        work = flops(config) / 1e9
        report["names"][str(n_seen)] = {
            "ours_ms": ours,
            "textbook_ms": plain,
            "times_faster": plain / ours,
            "loss": loss,
            "textbook_loss": plain_loss,
            "gflop_a_step": work,
            "bound_ms": work / peak * 1e3,
            "share_of_bound": work / peak * 1e3 / ours,
        }
    return report


def bench_prompts(model: LanguageModel | None = None, n: int = 32) -> dict[str, Any]:
    """Prompts a second through one bridge with every layer kept, sixteen at a time and one at a time,
    the largest difference of a measure between the two, and how long the model takes to load."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    model = load("gemma-3-270m") if model is None else model
    report: dict[str, Any] = {"load_s": time.perf_counter() - began}
    asked = analogy_prompts(PromptConfig(entities=3, shown=1), n, stream(0, "bench"))
    functors.read(model, asked[:1])  # what only the first call costs
    found = {}
    for batch in (16, 1):
        began = time.perf_counter()
        found[batch] = functors.read(model, asked, batch).curves["energy"]
        report[f"prompts_per_s_{batch}"] = n / (time.perf_counter() - began)
    report["difference"] = float((found[16] - found[1]).abs().max())
    return report


def bench_analogy(members: tuple[int, ...] = (1, 2, 4, 8), steps: int = 30) -> dict[str, Any]:
    """Model-steps a second of ensembles, exact and with stand-ins, beside the textbook loop, with the
    loss that each reaches, the arithmetic bound, and what an evaluation of a member costs."""
    torch.set_num_threads(1)
    peak = gemm_peak()
    exact = AnalogyRun()
    plain, plain_loss = _timed(_textbook_analogy(exact, steps), steps)
    report: dict[str, Any] = {
        "gemm_gflops": peak,
        "textbook": {"steps_per_s": 1e3 / plain, "loss": plain_loss},
        "softmax": {},
    }
    for name, run in (("exact", exact), ("stand-ins", AnalogyRun(stand_ins=64))):
        work = analogy_flops(run) / 1e9
        rows = {}
        for n in members:
            ours, loss = _timed(_ensemble_steps(run, n), steps)
            rows[str(n)] = {
                "model_steps_per_s": n * 1e3 / ours,
                "times_faster": n * plain / ours,
                "share_of_bound": n * work / peak * 1e3 / ours,
                "loss": loss,
            }
        report["softmax"][name] = {
            "gflop_a_model_step": work,
            "bound_model_steps_per_s": peak / work,
            "evaluation_ms_a_member": _evaluation(run, max(members)),
            "members": rows,
        }
    return report


def analogy_flops(run: AnalogyRun) -> float:
    """Multiply-adds times two of one model's training step, backward = twice forward, one layer:
    keys and values at three positions, all else at the last."""
    d, vocabulary = run.d_model, run.world.d_vocab
    return 6.0 * run.batch * (16 * d * d + d * vocabulary)


def gemm_peak(n: int = 1024, repeats: int = 10) -> float:
    """GFLOP/s of a large float32 matrix product on one thread: the fastest of `repeats`."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    return 2 * n**3 / 1e9 / min(_seconds(lambda: a @ b) for _ in range(repeats))


def problems_per_second(batch: int, repeats: int = 20) -> float:
    """Problems of depth 2 that the generator draws in a second, `batch` at a time."""
    task, generator = logic.LogicConfig(), stream(0, "bench")
    return batch / statistics.median(
        _seconds(lambda: logic.sample(task, batch, generator)) for _ in range(repeats)
    )


def flops(config: RunConfig) -> float:
    """Multiply-adds times two of one training step's matrix products, backward = twice forward.

    The top block runs at the answer positions only, keys and values aside.
    """
    d, t, a = config.model.d_model, config.task.length - 1, config.task.answer_length
    lower = (config.model.n_layers - 1) * (12 * d * d * t + 2 * d * t * t)
    top = 2 * d * d * t + 10 * d * d * a + 2 * d * t * a
    return 6.0 * config.batch * (lower + top + a * d * config.model.d_vocab)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _timed(run: Iterator[float], steps: int) -> tuple[float, float]:
    """Median milliseconds a step after a warm-up of five, and the last loss."""
    seconds, loss = [], 0.0
    for _ in range(steps):
        start = time.perf_counter()
        loss = next(run)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[5:]) * 1e3, loss


def _model(config: RunConfig) -> Transformer:
    return initialise(Transformer(config.model), stream(config.seed, "weights"))


def _our_steps(config: RunConfig) -> Iterator[float]:
    model = _model(config)
    optimizer = make_optimiser(config, model)
    step = 0
    while True:
        loss = answer_loss(model, batch_of(config, step).tokens, config.task.answer_length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        yield loss.item()


def _textbook_steps(config: RunConfig, steps: int) -> Iterator[float]:
    model = _model(config)
    embedding, rest = [model.W_E], [p for p in model.parameters() if p is not model.W_E]
    groups: list[dict[str, Any]] = [{"params": rest}]
    groups.append({"params": embedding, "lr": config.lr * config.embed_lr_scale})
    optimizer = torch.optim.AdamW(groups, lr=config.lr, weight_decay=config.weight_decay)
    problems: list[Tensor] = [row for step in range(steps) for row in batch_of(config, step).tokens]
    prompt = config.task.length - config.task.answer_length
    for tokens in DataLoader(problems, batch_size=config.batch):  # type: ignore[arg-type]
        logits = model(tokens[:, :-1])
        target = tokens[:, 1:].clone()
        target[:, : prompt - 1] = -100  # the prompt is not trained on
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def _ensemble_steps(run: AnalogyRun, n: int) -> Iterator[float]:
    runs = [dataclasses.replace(run, seed=seed) for seed in range(n)]
    members = [member_of(one) for one in runs]
    models = build(run.model, [stream(one.seed, "weights") for one in runs])
    stand_ins = None
    if run.stand_ins is not None:
        stand_ins = StandIns(torch.stack([m.unused for m in members]), run.unused, models.W_U)
    optimiser = Optimiser(models, [run.lr] * n, [run.weight_decay] * n)
    step = 0
    while True:
        facts = torch.stack(
            [_facts(one, m.pool, step) for one, m in zip(runs, members, strict=True)]
        )
        losses = backward(models, facts[:, :, :-1], facts[:, :, -1], stand_ins)
        optimiser.step()
        step += 1
        yield float(losses[0])


def _facts(run: AnalogyRun, pool: Tensor, step: int) -> Tensor:
    return pool[torch.randint(len(pool), (run.batch,), generator=stream(run.seed, "batch", step))]


def _textbook_analogy(run: AnalogyRun, steps: int) -> Iterator[float]:
    model = initialise(Transformer(run.model), stream(run.seed, "weights"))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.lr, weight_decay=run.weight_decay)
    pool = member_of(run).pool
    facts = [row[row != PAD] for step in range(steps) for row in _facts(run, pool, step)]

    def collate(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        target = torch.full_like(tokens[:, 1:], -100)
        for i, row in enumerate(rows):
            target[i, len(row) - 2] = row[-1]  # only a fact's last token is trained on
        return tokens[:, :-1], target

    for tokens, target in DataLoader(facts, run.batch, collate_fn=collate):  # type: ignore[arg-type]
        loss = F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def _evaluation(run: AnalogyRun, n: int, repeats: int = 5) -> float:
    runs = [dataclasses.replace(run, seed=seed) for seed in range(n)]
    members = [member_of(one) for one in runs]
    models = build(run.model, [stream(one.seed, "weights") for one in runs])
    seconds = [_seconds(lambda: evaluate(models, members)) for _ in range(repeats)]
    return statistics.median(seconds) / n * 1e3
