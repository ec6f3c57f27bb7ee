"""What a language model does with made-up analogies, layer by layer (paper B on Gemma: B12 to B16).

`read` takes prompts of `lib.generators.prompts` and gives every measure of every prompt at each depth
of the residual stream (0 after the embedding, n_layers after the last block), `table` their means.
An entity is read at the last token of its last mention: the queried source in the query, its target
in the facts, a shown pair in its analogy. So a shown pair is read in one sentence and the mismatched
pairs of the controls are not; with `shown=0` no pair is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.generators.prompts import AnalogyPrompt
from lib.language_models import LanguageModel, lens, positions, run, tokens

ATTENDED = ("source", "target", "other")
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # times the mean squared length of a standardised row


@dataclass(frozen=True)
class Readings:
    """What `read` gives, prompts in the order they came in, on the CPU.

    `curves`, over depths, each a mean over the pairs (s, t) of a prompt:
    energy, control -- |s - t|^2 of unit vectors, 0 to 4 (Dirichlet energy); control: mismatched pairs
    energy_raw, control_raw -- the same of the streams as they are
    energy_scaled, control_scaled -- raw over the mean squared norm of the vectors, to compare layers
    energy_queried, control_queried -- unit vectors, the queried source only
    parallelism, parallelism_control -- cosine of t - s with the mean t - s of the prompt's other
        pairs, NaN where a difference is 0: it has no direction
    and of the lens at the last position, for the first token in which answer and candidates differ:
    probability, log_probability -- of the answer's token, in nats
    rank -- in the whole vocabulary, 1 is best
    among, among_answers -- 1 where the answer beats the other candidates, or the answers of all
        prompts read together, which are the classes of `probe`; a tie counts as 0
    Mismatched: targets shifted cyclically by 1 to n - 1 within the prompt, mean over all shifts.

    `attention`, from the last position in each layer and head: total weight on all mentions of the
    queried source, of its target, and of each other target (mean over them). The last position is
    that of "to", or of what all candidates share: for Gemma a digit's space is a token of its own,
    and not one of the digit's.
    """

    curves: dict[str, Float[Tensor, "prompts depth"]]
    attention: dict[str, Float[Tensor, "prompts layers heads"]]
    answers: Int[Tensor, " prompts"]  # the answer's token
    streams: Float[Tensor, "prompts depth d_model"] | None  # at the last position


def read(
    model: LanguageModel, prompts: Sequence[AnalogyPrompt], batch: int = 16, streams: bool = False
) -> Readings:
    """All measures, from one forward pass a batch; prompts of one token length share batches.

    Raises ValueError without prompts, for `batch` below 1, and when the first token in which the
    candidates and the answer differ does not tell it from all of them.
    """
    if not prompts or batch < 1:
        raise ValueError(f"{len(prompts)} prompts in batches of {batch}: both must be at least 1")
    prepared = [_prepare(model, prompt) for prompt in prompts]
    answers = torch.tensor([answer for _, answer, *_ in prepared])
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (ids, _, wrong, *_) in enumerate(prepared):
        groups.setdefault((len(ids), len(wrong)), []).append(i)
    chunks = [g[i : i + batch] for g in groups.values() for i in range(0, len(g), batch)]
    classes, back = answers.unique(), torch.tensor(sum(chunks, [])).argsort()
    parts = [_read(model, [prepared[i] for i in chunk], classes, streams) for chunk in chunks]
    found = {name: torch.cat([part[name] for part in parts])[back] for name in parts[0]}
    attention = {name: found.pop(f"attention_{name}") for name in ATTENDED}
    return Readings(attention=attention, answers=answers, streams=found.pop("", None), curves=found)


def _prepare(model: LanguageModel, prompt: AnalogyPrompt) -> tuple[Any, ...]:
    """Tokens up to the first in which answer and candidates differ; that token of each; positions of
    sources and targets; the query; weights of positions for each of ATTENDED."""
    ends = (prompt.answer, *prompt.candidates)
    rows = [tokens(model, prompt.text + end)[0].tolist() for end in ends]
    n = next((i for i, column in enumerate(zip(*rows)) if len(set(column)) > 1), None)
    if n is None or rows[0][n] in [row[n] for row in rows[1:]]:
        raise ValueError(f"{prompt.answer!r}: no one token tells it from {prompt.candidates}")
    sources, targets, query = prompt.sources, prompt.targets, prompt.query
    mentions = {e: positions(model, prompt.text, e) for e in (*sources, *targets)}
    others = [t for t in targets if t != targets[query]]
    attended = [[0.0] * n for _ in ATTENDED]
    for row, entities in zip(attended, ([sources[query]], [targets[query]], others)):
        for i in (i for entity in entities for mention in mentions[entity] for i in mention):
            row[i] = 1 / len(entities)
    places = [[mentions[e][-1][-1] for e in names] for names in (sources, targets)]
    return rows[0][:n], rows[0][n], [row[n] for row in rows[1:]], *places, query, attended


def _read(
    model: LanguageModel, prepared: list[Any], classes: Int[Tensor, " classes"], streams: bool
) -> dict[str, Tensor]:
    """Measures of one batch, prompts first; the streams are named ""."""
    ids, *rest = zip(*prepared)
    text = tokens(model, list(ids))
    tensors = (torch.tensor(values, device=text.device) for values in rest)
    answer, wrong, sources, targets, query, attended = tensors
    after = [f"blocks.{layer}.hook_resid_post" for layer in range(model.n_layers)]
    depths = ["blocks.0.hook_resid_pre", *after]
    patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.n_layers)]
    got = run(model, text, [*depths, *patterns], at=[0])
    rows, curves = torch.arange(len(text), device=text.device)[:, None], []
    for x in (got[name] for name in depths):
        pairs = pair_measures(x[rows, sources], x[rows, targets], query)
        logits = lens(model, x[:, -1])  # depth by depth: 1 MB a prompt for Gemma 3 270M
        curves.append({**pairs, **lens_measures(logits, answer, wrong, classes.to(text.device))})
    found = {name: torch.stack([c[name] for c in curves], dim=1).cpu() for name in curves[0]}
    weights = torch.stack([got[name][:, :, -1] for name in patterns], dim=1)
    on = torch.einsum("blhp,bnp->nblh", weights, attended).cpu()
    found |= {f"attention_{name}": one for name, one in zip(ATTENDED, on)}
    if streams:
        found[""] = torch.stack([got[name][:, -1] for name in depths], dim=1).cpu()
    return found


def pair_measures(
    s: Float[Tensor, "batch pairs d_model"],
    t: Float[Tensor, "batch pairs d_model"],
    query: Int[Tensor, " batch"],
) -> dict[str, Float[Tensor, " batch"]]:
    """Those of `Readings`, in float64, for batches (`geometry.dirichlet_energy` takes one graph)."""
    s, t = s.double(), t.double()
    n, rows = s.shape[1], torch.arange(len(s), device=s.device)
    scale = torch.cat([s, t], dim=1).square().sum(dim=-1).mean(dim=1)
    raw, unit = torch.cdist(s, t).square(), torch.cdist(_unit(s), _unit(t)).square()
    found = {}
    for name, distances in (("", unit), ("_raw", raw), ("_scaled", raw / scale[:, None, None])):
        same = distances.diagonal(dim1=1, dim2=2).sum(dim=1)
        found[f"energy{name}"] = same / n
        found[f"control{name}"] = (distances.sum(dim=(1, 2)) - same) / (n * (n - 1))
    of_query = unit[rows, query]
    found["energy_queried"] = of_query[rows, query]
    found["control_queried"] = (of_query.sum(dim=1) - of_query[rows, query]) / (n - 1)
    shifted = torch.stack([_leave_one_out(t.roll(-k, dims=1) - s) for k in range(n)])
    return found | {"parallelism": shifted[0], "parallelism_control": shifted[1:].mean(dim=0)}


def _leave_one_out(x: Float[Tensor, "batch pairs d_model"]) -> Float[Tensor, " batch"]:
    """Mean cosine of each row with the sum of the others."""
    return (_unit(x) * _unit(x.sum(dim=1, keepdim=True) - x)).sum(dim=-1).mean(dim=1)


def _unit(x: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any d_model"]:
    return x / x.norm(dim=-1, keepdim=True)


def lens_measures(
    logits: Float[Tensor, "batch d_vocab"],
    answer: Int[Tensor, " batch"],
    wrong: Int[Tensor, "batch wrong"],
    classes: Int[Tensor, " classes"],
) -> dict[str, Float[Tensor, " batch"]]:
    """The measures of `Readings` on the logits of one position a prompt, in float64."""
    own = logits.gather(1, answer[:, None])
    log_probability = (own[:, 0].double() - logits.logsumexp(dim=1).double()).clamp(max=0)
    rivals = logits[:, classes].masked_fill(classes == answer[:, None], -torch.inf)
    return {
        "probability": log_probability.exp(),
        "log_probability": log_probability,
        "rank": 1 + (logits > own).sum(dim=1).double(),
        "among": (own > logits.gather(1, wrong)).all(dim=1).double(),
        "among_answers": (own > rivals).all(dim=1).double(),
    }


def table(readings: Readings) -> list[dict[str, float | int]]:
    """One row a depth: means over prompts of every curve, and attention of the layer that ends there.

    attention_source and so on: mean over prompts of the head for which it is largest; NaN at depth 0.
    """
    best = {name: on.mean(dim=0).amax(dim=1).tolist() for name, on in readings.attention.items()}
    means = {name: curve.mean(dim=0).tolist() for name, curve in readings.curves.items()}
    means |= {f"attention_{name}": [float("nan"), *values] for name, values in best.items()}
    columns = enumerate(zip(*means.values()))
    return [{"depth": depth, **dict(zip(means, values))} for depth, values in columns]


def by_layer(
    model: LanguageModel, prompts: Sequence[AnalogyPrompt], batch: int = 16
) -> list[dict[str, float | int]]:
    """`table` of what `read` gives."""
    return table(read(model, prompts, batch))


def correlations(readings: Readings) -> dict[str, Float[Tensor, " prompts"]]:
    """Pearson correlation over depths between lens probability and each energy (and the control), one a prompt.

    Paper B reports -0.67 to -0.80 on normalised streams (`energy`) and positive ones on raw streams.
    NaN where one of the two is constant.
    """
    probability, found = readings.curves["probability"], {}
    for name in ("energy", "control", "energy_raw", "energy_scaled", "energy_queried"):
        pairs = torch.stack([readings.curves[name], probability], dim=1)
        found[name] = torch.stack([torch.corrcoef(pair)[0, 1] for pair in pairs])
    return found


def probe(readings: Readings, generator: torch.Generator) -> list[dict[str, float | int]]:
    """Held-out accuracy of a linear probe for the answer, a row a depth; the classes are all answers.

    Half of the prompts, drawn, train it; on the others `probe` is its accuracy, `lens` that of the
    lens among the same classes, `control` that of a probe for shuffled answers. Where streams are
    constant (depth 0) it always says the most frequent class. Raises ValueError without streams and
    below 4 prompts.
    """
    x, n = readings.streams, len(readings.answers)
    if x is None or n < 4:
        raise ValueError(f"{n} prompts: read at least 4, with streams=True")
    labels = readings.answers.unique(return_inverse=True)[1]
    shuffled = labels[torch.randperm(n, generator=generator)]
    train = torch.zeros(n, dtype=torch.bool)
    train[torch.randperm(n, generator=generator)[: n // 2]] = True
    found = []
    for depth, seen in enumerate(readings.curves["among_answers"][~train].mean(dim=0).tolist()):
        right, control = (ridge_accuracy(x[:, depth], y, train) for y in (labels, shuffled))
        found.append({"depth": depth, "probe": right, "control": control, "lens": seen})
    return found


def ridge_accuracy(
    x: Float[Tensor, "rows d"], labels: Int[Tensor, " rows"], train: Bool[Tensor, " rows"]
) -> float:
    """Accuracy outside `train` of ridge regression on one-hot labels, in closed form and float64.

    Features are standardised on `train`; of RIDGES the one is taken whose leave-one-out predictions
    on `train` have the smallest squared error.
    """
    x, y = x.double(), torch.nn.functional.one_hot(labels).double()
    x, mean = x - x[train].mean(dim=0), y[train].mean(dim=0)
    spread = x[train].square().mean(dim=0).sqrt()
    x = x / spread.clamp(min=1e-6) * (spread > 1e-6)  # a constant feature says nothing
    kernel, known = x @ x[train].T, y[train] - mean
    values, vectors = torch.linalg.eigh(kernel[train])
    tried = []
    for ridge in (r * values.mean().clamp(min=1e-12) for r in RIDGES):
        inverse = vectors / (values + ridge) @ vectors.T
        free = inverse.diagonal() - 1 / (ridge * len(known))  # the intercept is not penalised
        tried.append((float((inverse @ known / free[:, None]).square().mean()), inverse @ known))
    fit = min(tried, key=lambda one: one[0])[1]
    said = (kernel[~train] @ fit + mean).argmax(dim=1)
    return float((said == labels[~train]).double().mean())
