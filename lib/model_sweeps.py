"""Stored experiments on real language models: what a cell is, and how it is run."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lib import functors, geometry
from lib.fine_tuning import TuningConfig, fine_tune
from lib.generators import stream
from lib.generators.prompts import PromptConfig, analogy_prompts
from lib.language_models import LanguageModel, load
from lib.symbols import induction, known_rows, rows_replaced, symbol_set

Store = tuple[list[dict[str, Any]], dict[str, Tensor]]
DEFAULT = "gemma-3-270m"
SETS = tuple(
    (kind, "none")
    for kind in ("letters", "words", "random", "late", "unused", "unused_high", "hidden")
)
REPAIRED = tuple(
    ("unused", treatment)
    for treatment in (
        *("mean_cov", "mean_diag", "orthogonal"),
        *("fresh", "stretched", "swapped", "resized"),
    )
)
LENGTHS = (4, 12, 24)


@dataclass(frozen=True)
class Induction:
    """Random sequences of one set of symbols with one treatment of its rows, shown once and begun again."""

    symbols: str
    treatment: str
    seed: int
    model: str = DEFAULT
    sequences: int = 40
    lengths: tuple[int, ...] = LENGTHS


def induction_cells() -> list[Induction]:
    """Ten seeds: each draws symbols, rows and sequences anew."""
    return [Induction(*how, seed) for how in (*SETS, *REPAIRED) for seed in range(10, 20)]


@functools.lru_cache(maxsize=1)
def model_of(name: str, device: str) -> LanguageModel:
    """A loaded model, kept for the next cell."""
    return load(name, device=device)


def run_induction(cell: Induction, device: str = "cpu") -> Store:
    """One row a length; nothing is trained."""
    model = model_of(cell.model, device)
    ids = symbol_set(model.name, model.tokenizer, cell.symbols, cell.seed)
    head = {"symbols": cell.symbols, "treatment": cell.treatment, "seed": cell.seed}
    rows = []
    with rows_replaced(model, ids, cell.treatment, cell.seed):
        for length in cell.lengths:
            draws = stream(cell.seed, "sequences", length)
            measured = induction(model, ids, length, cell.sequences, draws)
            rows.append({**head, "length": length, **measured})
    return rows, {}


@dataclass(frozen=True)
class TokenRows:
    """How the rows of each set of symbols lie, beside as many used ones."""

    seed: int
    model: str = DEFAULT


def row_cells() -> list[TokenRows]:
    """Ten draws of the sets."""
    return [TokenRows(seed) for seed in range(10, 20)]


def run_rows_of_tokens(cell: TokenRows, device: str = "cpu") -> Store:
    """One row a set: its 26 symbols, and the first 99 reserved names with 99 used tokens beside them."""
    model = model_of(cell.model, device)
    W, (found, used) = model.W_E.detach(), known_rows(cell.model)
    first = next(iter(found.groups.values()))
    drawn = torch.randperm(len(used), generator=stream(cell.seed, "used rows"))[: len(first)]
    sets = {kind: symbol_set(cell.model, model.tokenizer, kind, cell.seed) for kind, _ in SETS}
    sets |= {"all unused": first, "as many used": [used[i] for i in drawn.tolist()]}
    rows = []
    for name, ids in sets.items():
        x = W[ids]
        measured = {
            "cosine": geometry.mean_cosine(x),
            "individual_share": geometry.individual_share(x),
            "effective_rank": geometry.effective_rank(x),
            "norm": float(x.norm(dim=1).mean()),
        }
        rows.append({"symbols": name, "n": len(ids), "seed": cell.seed, **measured})
    return rows, {}


TUNED = (
    *(("letters", "none"), ("words", "none"), ("random", "none")),
    *(("unused", "mean_cov"), ("unused", "mean_diag"), ("unused", "none")),
)


def tuning_cells() -> list[TuningConfig]:
    """Five seeds; every set of one seed before the next."""
    return [
        TuningConfig(symbols=symbols, treatment=treatment, seed=seed)
        for seed in range(10, 15)
        for symbols, treatment in TUNED
    ]


def run_tuning(cell: TuningConfig, device: str = "cpu") -> Store:
    """Fine-tune a fresh model; repaired rows are put in before the first step and learn like all."""
    model_of.cache_clear()
    model = load(cell.model, device=device)
    ids = symbol_set(model.name, model.tokenizer, cell.symbols, cell.seed)
    with rows_replaced(model, ids, cell.treatment, cell.seed):
        rows = fine_tune(model, cell)
    head = {"symbols": cell.symbols, "treatment": cell.treatment, "seed": cell.seed}
    return [{**head, **row} for row in rows], {}


@dataclass(frozen=True)
class InContext:
    """Made-up analogies in context: one kind of prompt, `prompts` of them."""

    prompt: PromptConfig
    seed: int
    model: str = DEFAULT
    prompts: int = 40
    probe: bool = False


BASE = PromptConfig(entities=3, shown=1)
# what is varied -> prompts; the base stands for letters, three entities, one analogy shown
KINDS_OF_PROMPT = {
    "base": BASE,
    "no analogy shown": PromptConfig(entities=3, shown=0),
    "two analogies shown": PromptConfig(entities=3, shown=2),
    "2 entities": PromptConfig(entities=2, shown=1),
    "4 entities": PromptConfig(entities=4, shown=1),
    "5 entities": PromptConfig(entities=5, shown=1),
    "words": PromptConfig(entities=3, shown=1, alphabet="words"),
    "words, token shared": PromptConfig(entities=3, shown=1, alphabet="words", shared=True),
    "nonsense": PromptConfig(entities=3, shown=1, alphabet="nonsense"),
    "digits": PromptConfig(entities=3, shown=1, alphabet="digits"),
    "digits, short cut": PromptConfig(entities=3, shown=1, alphabet="digits", short_cut=True),
    "letters, short cut": PromptConfig(entities=3, shown=1, short_cut=True),
}
IN_LLAMA = ("base", "2 entities", "4 entities", "words")
LLAMA = "smollm2-135m"


def in_context_cells() -> list[InContext]:
    """Five seeds of 40 prompts a kind; of the base 200, so that a probe can learn."""
    cells = []
    for seed in range(10, 15):
        cells.append(InContext(BASE, seed, prompts=200, probe=True))
        cells += [InContext(prompt, seed) for prompt in KINDS_OF_PROMPT.values() if prompt != BASE]
        cells += [InContext(KINDS_OF_PROMPT[name], seed, LLAMA) for name in IN_LLAMA]
    return cells


def run_in_context(cell: InContext, device: str = "cpu") -> Store:
    """One row a depth; correlations over depths, means over prompts, stand in every row."""
    name = next(name for name, prompt in KINDS_OF_PROMPT.items() if prompt == cell.prompt)
    prompts = analogy_prompts(cell.prompt, cell.prompts, stream(cell.seed, f"prompts {name}"))
    found = functors.read(model_of(cell.model, device), prompts, streams=cell.probe)
    over_depths = {
        f"correlation_{energy}": float(values.nanmean())
        for energy, values in functors.correlations(found).items()
    }
    first = (found.curves["rank"] == 1).double().mean(dim=0).tolist()
    probed: list[dict[str, Any]] = [dict.fromkeys(("probe", "control_probe", "lens"), math.nan)]
    if cell.probe:
        probed = [
            {"probe": one["probe"], "control_probe": one["control"], "lens": one["lens"]}
            for one in functors.probe(found, stream(cell.seed, "probe"))
        ]
    rows = []
    for row, share in zip(functors.table(found), first, strict=True):
        extra = probed[int(row["depth"]) if cell.probe else 0]
        head = {"model": cell.model, "prompt": name, "seed": cell.seed}
        rows.append({**head, **row, "first": share, **extra, **over_depths})
    return rows, {}


@dataclass(frozen=True)
class Teaching:
    """Fine-tune on analogies in words, and look at new ones in words and in letters, never trained on."""

    tuning: TuningConfig
    prompts: int = 32  # in each alphabet, the same at every look


def teaching_cells() -> list[Teaching]:
    """One run: each takes half an hour or so."""
    task = PromptConfig(entities=3, shown=1, alphabet="words")
    return [Teaching(TuningConfig(task, batch=8, steps=100, eval_every=10, seed=10))]


def run_teaching(cell: Teaching, device: str = "cpu") -> Store:
    """One row a look, alphabet and depth."""
    model_of.cache_clear()
    model, task = load(cell.tuning.model, device=device), cell.tuning.task
    assert isinstance(task, PromptConfig)
    looks = {
        alphabet: analogy_prompts(
            replace(task, alphabet=alphabet), cell.prompts, stream(cell.tuning.seed, alphabet)
        )
        for alphabet in (task.alphabet, "letters")
    }

    def observe(step: int) -> list[dict[str, Any]]:
        found = []
        for alphabet, prompts in looks.items():
            read = functors.read(model, prompts)
            first = (read.curves["rank"] == 1).double().mean(dim=0).tolist()
            for row, share in zip(functors.table(read), first, strict=True):
                found.append({"alphabet": alphabet, "first": share, **row})
        return found

    rows = fine_tune(model, cell.tuning, observe)
    return [{"seed": cell.tuning.seed, **row} for row in rows], {}
