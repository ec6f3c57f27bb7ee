"""How fast: our logic step against a plain textbook loop and against the arithmetic it needs.

All on one thread. The textbook loop is the same model on the same problems, written as one would
at first: a DataLoader over a list of problems, logits at every position, the default optimiser.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from lib.evaluation import answer_loss
from lib.experiments import logic_run
from lib.generators import logic, stream
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
