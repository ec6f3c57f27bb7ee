"""One training loop: a configuration in, a run record out.

Data and initial weights are drawn on the CPU from streams that depend only on (seed, name, step).
One seed is one data set on every device, and a run that was killed resumes bit for bit: nothing
about the random state has to be remembered.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from lib.configuration import describe
from lib.evaluation import Task, answer_loss, evaluate, problems_of
from lib.generators import logic, stream, text
from lib.models.transformer import Transformer, TransformerConfig, initialise
from lib.policies import Learn, Refresh

OPTIMISERS = ("adamw", "adam_l2", "sgd")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run, except the device it runs on.

    `lr` is the step size of all weights, times `embed_lr_scale` for the (un)embedding. Weight decay
    acts on all weights: decoupled for `adamw`, as L2 in the gradient for `adam_l2` and `sgd`
    (momentum 0.9). Evaluation happens at step 0, every `eval_every` steps and at the end, on
    `eval_problems` problems per test set and half (windows of text per part). `precision` is that of
    the matrix products in training; `compiled` asks for torch.compile, on CUDA only.
    """

    task: Task
    model: TransformerConfig
    policy: Learn = Learn()
    optimiser: str = "adamw"
    lr: float = 3e-3
    embed_lr_scale: float = 0.3
    weight_decay: float = 0.1
    batch: int = 128
    steps: int = 2400
    eval_every: int = 100
    eval_problems: int = 256
    seed: int = 0
    precision: str = field(default="float32", metadata={"later": True})
    compiled: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise ValueError(
                f"optimiser {self.optimiser!r} is unknown: use one of {', '.join(OPTIMISERS)}"
            )
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision {self.precision!r} is unknown: use float32 or bfloat16")
        if self.model.d_vocab != self.task.d_vocab:
            raise ValueError(
                f"the model has {self.model.d_vocab} tokens, the task {self.task.d_vocab}: make them equal"
            )
        if self.model.positions == "learned" and self.model.n_ctx < self.task.length:
            raise ValueError(
                f"n_ctx is {self.model.n_ctx}: a problem has {self.task.length} tokens"
            )
        for name in ("batch", "steps", "eval_every", "eval_problems"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not self.embed_lr_scale >= 0:
            raise ValueError(f"embed_lr_scale is {self.embed_lr_scale}: it must be at least 0")
        for name in ("weight_decay", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 0")
        if not self.lr > 0:
            raise ValueError(f"lr is {self.lr}: it must be above 0")


@dataclass
class Run:
    """What a run leaves: the trained model and one row of measures per evaluated step."""

    config: RunConfig
    model: Transformer
    history: list[dict[str, float | int]]


def pick_device(device: str = "auto") -> torch.device:
    """`auto` is CUDA, else MPS, else the CPU. Raises ValueError when the device is not there."""
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if there[name]))
    kind = device.split(":")[0]
    if kind not in there:
        raise ValueError(f"unknown device {device!r}: use auto, cpu, cuda or mps")
    if not there[kind]:
        usable = ", ".join(name for name, ok in there.items() if ok)
        raise ValueError(f"device {device!r} is not available here: use auto or one of {usable}")
    return torch.device(device)


def make_optimiser(config: RunConfig, model: Transformer) -> torch.optim.Optimizer:
    """The optimiser over what the policy lets it train; no parameter stands in it twice."""
    trained = config.policy.trained(model)
    embedding = {id(p) for p in model.embedding_parameters()}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if id(p) not in embedding]}
    ]
    if trained:
        groups.append({"params": trained, "lr": config.lr * config.embed_lr_scale})
    shared: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.optimiser == "adamw":
        return torch.optim.AdamW(groups, fused=True, **shared)
    if config.optimiser == "adam_l2":
        return torch.optim.Adam(groups, fused=True, **shared)
    return torch.optim.SGD(groups, momentum=0.9, **shared)


def batch_of(config: RunConfig, step: int) -> logic.Problems | text.Windows:
    """The training batch of a step: seen names only, or training files; the same on every device."""
    generator = stream(config.seed, "batch", step)
    if isinstance(config.task, text.TextConfig):
        return text.sample(config.task, config.batch, generator, "train")
    return problems_of(config.task, config.batch, generator, "seen")


def train(
    config: RunConfig,
    device: str = "auto",
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
    stop_after: int | None = None,
    observe: Callable[[int, Transformer], None] | None = None,
) -> Run:
    """Train, evaluate, and return the record.

    With `checkpoint` (a .safetensors path) the run is saved every `checkpoint_every` steps, whole
    or not at all, and resumes from there. `stop_after` ends early, as a kill would (for tests).
    `observe(step, model)` is called wherever the model is evaluated.
    Raises FloatingPointError when the loss is not finite, and ValueError when `checkpoint` belongs
    to another configuration.
    """
    if checkpoint is not None and checkpoint.suffix != ".safetensors":
        raise ValueError(f"checkpoint {checkpoint.name!r} should end in .safetensors")
    target = pick_device(device)
    model = initialise(Transformer(config.model), stream(config.seed, "weights")).to(target)
    optimizer = make_optimiser(config, model)
    fast = config.compiled and target.type == "cuda"
    compiled = cast(Transformer, torch.compile(model)) if fast else model
    mixed = torch.autocast(target.type, torch.bfloat16, enabled=config.precision == "bfloat16")
    history: list[dict[str, float | int]] = []
    start = 0
    if checkpoint is not None and checkpoint.exists():
        start, history = _load(checkpoint, config, model, optimizer)
        if isinstance(config.policy, Refresh):  # what it has seen is not stored, but drawn again
            for past in range(start):
                config.policy.saw(batch_of(config, past).tokens)

    def measure(step: int, loss: float) -> None:
        history.append(_measure(config, model, step, loss))
        if observe is not None:
            observe(step, model)

    if not history:
        measure(0, math.nan)
    steps = range(start, config.steps)
    for step in tqdm(
        steps, initial=start, total=config.steps, disable=None, desc=f"seed {config.seed}"
    ):
        config.policy.before_step(model, optimizer, step, config.seed)
        tokens = batch_of(config, step).tokens.to(target)
        config.policy.saw(tokens)
        with mixed:
            loss = answer_loss(compiled, tokens, config.task.answer_length)
        value = loss.item()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"loss is {value} at step {step}; lower lr. Configuration: {describe(config)}"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        config.policy.after_step(model, optimizer)
        done = step + 1
        if done % config.eval_every == 0 or done == config.steps:
            measure(done, value)
        if checkpoint is not None and (done % checkpoint_every == 0 or done == config.steps):
            _save(checkpoint, config, model, optimizer, done, history)
        if done == stop_after:
            break
    return Run(config, model, history)


def _measure(
    config: RunConfig, model: Transformer, step: int, loss: float
) -> dict[str, float | int]:
    generator = stream(config.seed, "test")  # the same test problems at every step of a run
    return {
        "step": step,
        "loss": loss,
        **evaluate(model, config.task, config.eval_problems, generator),
    }


def _save(
    path: Path,
    config: RunConfig,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    step: int,
    history: list[dict[str, float | int]],
) -> None:
    """One file, written beside and then moved into place: it is the old one or the new one, never half."""
    tensors = {
        f"model.{name}": p.detach().cpu().contiguous() for name, p in model.named_parameters()
    }
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{key}.{name}"] = value.detach().cpu().contiguous()
    record = {
        "config": json.dumps(describe(config)),
        "step": str(step),
        "history": json.dumps(history),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    save_file(tensors, beside, metadata=record)
    with open(beside, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(beside, path)


def _load(
    path: Path, config: RunConfig, model: Transformer, optimizer: torch.optim.Optimizer
) -> tuple[int, list[dict[str, float | int]]]:
    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path.name} is damaged: move it away to start anew") from error
    with file:
        record = file.metadata()
        if json.loads(record["config"]) != json.loads(json.dumps(describe(config))):
            raise ValueError(
                f"{path.name} belongs to another configuration: move it away or use another path"
            )
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for key in file.keys():
                part, rest = key.split(".", 1)
                if part == "model":
                    parameters[rest].copy_(file.get_tensor(key))
                else:
                    moment, name = rest.split(".", 1)
                    parameter = parameters[name]
                    optimizer.state[parameter][moment] = file.get_tensor(key).to(parameter.device)
    return int(record["step"]), json.loads(record["history"])
