"""Fine-tune all weights of a language model on symbols, and watch how long it takes.

The logic task of paper A with tokens of the model as names, or the made-up analogies of paper B. The
loss is on the answer only, the optimiser AdamW. One loop for both; it changes the model it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.configuration import nearest
from lib.generators import logic, stream
from lib.generators.logic import LogicConfig
from lib.generators.prompts import PromptConfig, analogy_prompts
from lib.language_models import LanguageModel, capped, tokens
from lib.symbols import KINDS, SIZE, TREATMENTS, symbol_set

SPECIALS = (" >", " fact", " query", " answer", " true", " false")  # as logic.SPECIALS, in words
SOLVED = 0.9


@dataclass(frozen=True)
class TuningConfig:
    """One fine-tuning run.

    `task`: logic problems over 26 `symbols` (see lib.symbols.KINDS and TREATMENTS), or analogies,
    whose own alphabet says what they are written in. Evaluation is on `eval_problems` problems that
    training does not draw, every `eval_every` steps; a run ends after `steps`, or when two
    evaluations in a row have at least 90 % of the whole answers right.
    """

    task: LogicConfig | PromptConfig = LogicConfig(n_seen=SIZE, n_unseen=6)
    model: str = "gemma-3-270m"
    symbols: str = "letters"
    treatment: str = "none"
    lr: float = 3e-5
    weight_decay: float = 0.01
    batch: int = 16
    steps: int = 120
    eval_every: int = 5
    eval_problems: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        nearest("kind of symbols", self.symbols, KINDS)
        nearest("treatment", self.treatment, TREATMENTS)
        if min(self.batch, self.eval_problems, self.eval_every) < 1 or self.steps < 0:
            raise ValueError("batch, eval_problems and eval_every are at least 1, steps at least 0")


PRESETS = {
    # some minutes on one core
    "laptop": TuningConfig(),
    # one GPU: batches and steps of paper A's size
    "paper": TuningConfig(
        LogicConfig(depth=3, n_seen=SIZE, n_unseen=8),
        batch=256,
        steps=10_000,
        eval_every=100,
        eval_problems=1024,
    ),
    # one GPU: made-up analogies, as in `teaching` and longer
    "analogy": TuningConfig(
        PromptConfig(entities=3, shown=1, alphabet="words"),
        batch=64,
        steps=2000,
        eval_every=50,
        eval_problems=256,
    ),
}


class Batch(NamedTuple):
    """Rows padded at the end, which a causal model never looks back from; `answer`: tokens to write."""

    tokens: Int[Tensor, "rows tokens"]
    answer: Bool[Tensor, "rows tokens"]


def logic_batch(
    model: LanguageModel, config: TuningConfig, n: int, generator: torch.Generator
) -> Batch:
    """Logic problems in the model's tokens, one BOS first."""
    assert isinstance(config.task, LogicConfig)
    ids = symbol_set(model.name, model.tokenizer, config.symbols, config.seed)
    words = [model.tokenizer.encode(word, add_special_tokens=False) for word in SPECIALS]
    if any(len(word) > 1 for word in words):
        raise ValueError(f"{model.name} has no single token for one of {', '.join(SPECIALS)}")
    table = torch.tensor([word[0] for word in words] + ids)
    problems = logic.sample(config.task, n, generator)
    text = tokens(model, table[problems.tokens])
    answer = torch.zeros_like(text, dtype=torch.bool)
    answer[:, -config.task.answer_length :] = True
    return Batch(text, answer)


def analogy_batch(
    model: LanguageModel, task: PromptConfig, n: int, generator: torch.Generator
) -> Batch:
    """Made-up analogies with their answers, one BOS first."""
    rows, starts = [], []
    for prompt in analogy_prompts(task, n, generator):
        question = tokens(model, prompt.text)[0].tolist()
        rows.append(tokens(model, prompt.text + prompt.answer)[0].tolist())
        starts.append(len(question))
    longest = max(map(len, rows))
    text = torch.zeros(n, longest, dtype=torch.long)
    answer = torch.zeros(n, longest, dtype=torch.bool)
    for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
        text[i, : len(row)] = torch.tensor(row)
        answer[i, start : len(row)] = True
    device = model.W_E.device
    return Batch(text.to(device), answer.to(device))


def batch_of(
    model: LanguageModel, config: TuningConfig, n: int, generator: torch.Generator
) -> Batch:
    """`n` problems of the run's task."""
    if isinstance(config.task, PromptConfig):
        return analogy_batch(model, config.task, n, generator)
    return logic_batch(model, config, n, generator)


def answer_logits(model: LanguageModel, batch: Batch) -> Float[Tensor, "written d_vocab"]:
    """Logits for the answers' tokens alone, in the order of `batch.tokens[batch.answer]`."""
    hf = model.bridge.original_model
    hidden = hf.base_model(batch.tokens).last_hidden_state
    before = batch.answer.roll(-1, dims=1)
    before[:, -1] = False
    return capped(model, hf.get_output_embeddings()(hidden[before]))


@torch.no_grad()
def accuracy(model: LanguageModel, batch: Batch) -> dict[str, float]:
    """Argmax over the whole vocabulary with the right answer fed in: shares of `whole` answers right,
    and without the last token (`names`: in logic the derived names) and that alone (`last`)."""
    parts = zip(batch.tokens.split(16), batch.answer.split(16), strict=True)
    written = torch.cat([answer_logits(model, Batch(*part)).argmax(dim=-1) for part in parts])
    right = (written == batch.tokens[batch.answer]).split(batch.answer.sum(dim=1).tolist())
    return {
        "whole": sum(bool(one.all()) for one in right) / len(right),
        "names": sum(bool(one[:-1].all()) for one in right) / len(right),
        "last": sum(bool(one[-1]) for one in right) / len(right),
    }


def fine_tune(
    model: LanguageModel,
    config: TuningConfig,
    observe: Callable[[int], Sequence[dict[str, Any]]] | None = None,
) -> list[dict[str, Any]]:
    """Train and return one row an evaluation: step, loss since the last one, shares right.

    With `observe`, what it returns at a step takes the place of that row, once for each of its rows,
    which it extends; the run then goes on to the end. Raises FloatingPointError when the loss is
    not finite.
    """
    hf = model.bridge.original_model
    hf.requires_grad_(True)
    fused = model.W_E.device.type in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(
        hf.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=fused
    )
    test = batch_of(model, config, config.eval_problems, stream(config.seed, "test"))
    rows: list[dict[str, Any]] = []
    losses: list[float] = []
    solved = 0
    for step in range(config.steps + 1):
        if step % config.eval_every == 0 or step == config.steps:
            hf.eval()
            row = {"step": step, "loss": sum(losses) / len(losses) if losses else float("nan")}
            row |= accuracy(model, test)
            extra = [{}] if observe is None else observe(step)
            rows += [row | more for more in extra]
            losses = []
            solved = solved + 1 if row["whole"] >= SOLVED else 0
            if step == config.steps or (solved == 2 and observe is None):
                break
        hf.train()
        batch = batch_of(model, config, config.batch, stream(config.seed, "batch", step))
        loss = F.cross_entropy(answer_logits(model, batch), batch.tokens[batch.answer])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss is {losses[-1]} at step {step}: lower lr")
    hf.eval()
    return rows
