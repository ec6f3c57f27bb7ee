"""Training on the analogy task, many models at a time, and what is measured on the way (paper B)."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lib import geometry
from lib.ensemble import PAD, Ensemble, Optimiser, Seat, StandIns, backward, build
from lib.generators import analogy, stream
from lib.models.transformer import TransformerConfig
from lib.policies import Freeze, FreezeRows, Learn
from lib.training import pick_device

KINDS = ("atomic", "comp_id", "comp_ood", "ana_id", "ana_ood")
ALIGNED = (None, "all", "known", "shuffled")
SHOWN = 256  # at most so many facts of a kind are asked at an evaluation
Row = dict[str, float | int]


@dataclass(frozen=True)
class AnalogyRun:
    """One model on one world. `stand_ins` rows stand for all names that never occur; None: each has
    its own row, the exact softmax. `frozen`: the embedding stays as drawn. `init_std` is that of all
    matrices; None leaves 0.02 to the embedding and 1 / sqrt(d_in) to the others. `aligned`: before
    training, targets become (e_s + f) / sqrt(2), for all pairs, for known ones, or for wrong partners.
    `policy`: what happens to rows on the way; `FreezeRows()` keeps those of names that never occur.
    """

    task: analogy.AnalogyConfig = analogy.AnalogyConfig()
    d_model: int = 128
    n_layers: int = 1
    tied: bool = True
    optimiser: str = "adam_l2"
    lr: float = 3e-4
    weight_decay: float = 1e-3
    batch: int = 64
    steps: int = 500
    eval_every: int = 10
    stand_ins: int | None = None
    frozen: bool = False
    init_std: float | None = 0.02
    seed: int = 0
    aligned: str | None = field(default=None, metadata={"later": True})
    policy: Learn = field(default=Learn(), metadata={"later": True})

    def __post_init__(self) -> None:
        if self.aligned not in ALIGNED or (self.aligned and not self.tied):
            raise ValueError(
                f"aligned is {self.aligned!r}: use None, or all, known or shuffled with tied=True"
            )
        if isinstance(self.policy, Freeze) or (self.frozen and self.policy != Learn()):
            raise ValueError("freeze the whole embedding with frozen=True and no policy beside it")
        if isinstance(self.policy, FreezeRows) and self.policy.rows:
            raise ValueError("FreezeRows takes no rows here: each world has its own unused names")
        for name in ("batch", "steps", "eval_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.stand_ins is not None and not 1 <= self.stand_ins <= self.unused:
            raise ValueError(
                f"stand_ins is {self.stand_ins}: {self.unused} names never occur, "
                f"so use None or 1 to {self.unused}"
            )

    @property
    def unused(self) -> int:
        """Relation names that never occur."""
        return self.task.vocabulary - self.task.n_relations

    @property
    def world(self) -> analogy.AnalogyConfig:
        """The task with the names that the model has rows for."""
        if self.stand_ins is None:
            return self.task
        names = self.task.n_relations + self.stand_ins
        return dataclasses.replace(self.task, vocabulary=names)

    @property
    def model(self) -> TransformerConfig:
        return TransformerConfig(
            self.world.d_vocab,
            self.d_model,
            self.n_layers,
            n_heads=1,
            tied=self.tied,
            embed_std=self.init_std or 0.02,
            weight_std=self.init_std,
        )


class Member(NamedTuple):
    """What one member is trained on and asked: prompts filled on the left, the answer last."""

    world: analogy.Analogy
    pool: Int[Tensor, "facts tokens"]
    asked: dict[str, Int[Tensor, "facts tokens"]]
    unused: Int[Tensor, " R"]


def member_of(run: AnalogyRun) -> Member:
    """The world of a run's seed, its training facts, and the facts asked at evaluations."""
    world = analogy.draw(run.world, stream(run.seed, "world"))
    width = 4
    facts = {
        "atomic": world.atomic,
        "comp_id": world.compositional.id,
        "comp_ood": world.compositional.ood,
        "ana_id": world.analogical.id,
        "ana_ood": world.analogical.ood,
    }
    padded = {k: F.pad(v, (width - v.shape[1], 0), value=PAD) for k, v in facts.items()}
    chosen = {}
    for kind, rows in padded.items():
        order = torch.randperm(len(rows), generator=stream(run.seed, "asked"))
        chosen[kind] = rows[order[:SHOWN]]
    pool = torch.cat([padded[kind] for kind in ("atomic", "comp_id", "ana_id")])
    names = torch.arange(run.world.names.start, run.world.names.stop)
    return Member(world, pool, chosen, names[~torch.isin(names, world.relation)])


def train_many(
    runs: Sequence[AnalogyRun],
    device: str = "cpu",
    observe: Callable[[int, Ensemble], None] | None = None,
    compiler: str | None = None,
) -> tuple[Ensemble, list[list[Row]]]:
    """Train the runs as one ensemble; returns it and each member's history, one row an evaluation.

    Runs may differ in seed, lr and weight decay. On CUDA the blocks are compiled by torch's inductor;
    `compiler` names another backend of torch.compile, on any device. Raises ValueError when runs
    differ in more, and FloatingPointError when a loss is not finite.
    """
    first = runs[0]
    for run in runs:
        if (
            dataclasses.replace(run, seed=first.seed, lr=first.lr, weight_decay=first.weight_decay)
            != first
        ):
            raise ValueError("runs of an ensemble may differ in seed, lr and weight_decay only")
    target = pick_device(device)
    members = [member_of(run) for run in runs]
    models = build(first.model, [stream(run.seed, "weights") for run in runs])
    for W, run, member in zip(models.W_E.detach(), runs, members, strict=True):
        align(W, member.world, run.aligned)
    models = models.to(target)
    stand_ins = None
    if first.stand_ins is not None:
        rows = torch.stack([member.unused for member in members])
        stand_ins = StandIns(rows, first.unused, models.W_U)
    optimiser = Optimiser(
        models,
        [run.lr for run in runs],
        [run.weight_decay for run in runs],
        first.optimiser,
        frozen=[n for n in ("W_E", "W_U") if first.frozen and n in models.parameters],
    )
    seats = [Seat(models, optimiser, i) for i in range(len(runs))]
    policies = [_policy(run, member) for run, member in zip(runs, members, strict=True)]
    for policy, seat in zip(policies, seats, strict=True):
        policy.trained(seat)
    history: list[list[Row]] = [[] for _ in runs]
    if compiler is None and target.type == "cuda":
        compiler = "inductor"
    if compiler is not None:
        models.compile(compiler)

    def measure(step: int, losses: Sequence[float]) -> None:
        for rows, row, value in zip(
            history, evaluate(models, members, stand_ins), losses, strict=True
        ):
            rows.append({"step": step, "loss": value, **row})
        if observe is not None:
            observe(step, models)

    measure(0, [math.nan] * len(runs))
    for step in range(first.steps):
        facts = torch.stack(
            [
                m.pool[torch.randint(len(m.pool), (first.batch,), generator=_draws(run, step))]
                for m, run in zip(members, runs, strict=True)
            ]
        ).to(target)
        for policy, seat, run, rows in zip(policies, seats, runs, facts, strict=True):
            policy.before_step(seat, seat, step, run.seed)
            policy.saw(rows[rows != PAD])
        each = backward(models, facts[:, :, :-1], facts[:, :, -1], stand_ins)
        optimiser.step()
        for policy, seat in zip(policies, seats, strict=True):
            policy.after_step(seat, seat)
        done = step + 1
        if done % first.eval_every == 0 or done == first.steps:
            values = each.tolist()
            if not all(map(math.isfinite, values)):
                raise FloatingPointError(f"loss is {values} at step {step}: lower lr")
            measure(done, values)
    return models, history


def align(W: Float[Tensor, "d_vocab d"], world: analogy.Analogy, which: str | None) -> None:
    """Make e_t = (e_s + f) / sqrt(2) in place, t = F(s): as long as before, and one translation.

    `which` is all, known (pairs that are not held out), shuffled (each t gets the next s) or None.
    """
    if which is None:
        return
    source, target = world.entity[0], world.entity[1]
    if which == "known":
        known = ~torch.isin(target, world.analogical.ood[:, -1])
        source, target = source[known], target[known]
    elif which == "shuffled":
        source = source.roll(-1)
    W[target] = (W[source] + W[world.functor[0]]) / math.sqrt(2)


def _policy(run: AnalogyRun, member: Member) -> Learn:
    """A member's own policy."""
    if isinstance(run.policy, FreezeRows):
        return FreezeRows(member.unused.tolist())
    return copy.deepcopy(run.policy)


def _draws(run: AnalogyRun, step: int) -> torch.Generator:
    return stream(run.seed, "batch", step)


@torch.no_grad()
def evaluate(
    models: Ensemble, members: Sequence[Member], stand_ins: StandIns | None = None
) -> list[Row]:
    """One row a member: accuracy (plain argmax) and probability by kind, geometry, attention."""
    rows: list[Row] = [{} for _ in members]
    for kind in KINDS:
        facts = torch.stack([member.asked[kind] for member in members]).to(models.W_E.device)
        if facts.shape[1] == 0:
            continue
        logits = models.logits(facts[:, :, :-1])
        answer = facts[:, :, -1:]
        right = (logits.argmax(dim=-1, keepdim=True) == answer).float().mean(dim=(1, 2))
        mass = logits if stand_ins is None else logits + stand_ins.bias
        p = mass.softmax(dim=-1).gather(2, answer).mean(dim=(1, 2))
        for i, row in enumerate(rows):
            row[f"acc_{kind}"], row[f"p_{kind}"] = float(right[i]), float(p[i])
    asked = "ana_ood" if len(members[0].asked["ana_ood"]) else "ana_id"
    prompts = torch.stack([member.asked[asked][:, :-1] for member in members])
    attention = models.last(prompts.to(models.W_E.device))[1][..., -2].mean(dim=(1, 2))
    for i, (row, member) in enumerate(zip(rows, members, strict=True)):
        # an implicit functor has no token that could attend to the source
        row["attention_source"] = float(attention[i]) if len(member.world.functor) else math.nan
        row |= alignment(models.W_E[i].cpu(), member.world, "W_E")
        if not models.config.tied:
            row |= alignment(models.W_U[i].cpu(), member.world, "W_U")
    return rows


def alignment(W: Float[Tensor, "d_vocab d"], world: analogy.Analogy, name: str) -> Row:
    """Energy of matching and of mismatched pairs, normalised and raw; parallelism of differences;
    the share `matched` of entities e whose nearest in the other category (by cosine) is F(e).

    All pairs (e, F(e)) of the first functor, and the held-out ones alone; mismatched pairs are all
    (e, F(e')) with e' another entity, shuffled differences are theirs.
    """
    source, target = world.entity[0], world.entity[1]
    n = len(source)
    i, j = (~torch.eye(n, dtype=torch.bool)).nonzero().unbind(1)
    pairs = {
        "pairs": torch.stack([source, target], dim=1),
        "mismatched": torch.stack([source[i], target[j]], dim=1),
    }
    held = torch.isin(target, world.analogical.ood[:, -1])
    if held.any():
        pairs["held_out"] = pairs["pairs"][held]
    nearest = F.normalize(W[source], dim=1) @ F.normalize(W[target], dim=1).T
    row: Row = {
        f"{name}_norm": float(geometry.norms(W[world.entity.flatten()]).mean()),
        f"{name}_matched": float((nearest.argmax(dim=1) == torch.arange(n)).float().mean()),
    }
    for group, edges in pairs.items():
        row[f"{name}_energy_{group}"] = geometry.dirichlet_energy(W, edges)
        row[f"{name}_raw_energy_{group}"] = geometry.dirichlet_energy(W, edges, normalised=False)
        if len(world.functor):
            difference = W[edges[:, 1]] - W[edges[:, 0]]
            f = W[world.functor[0]]
            row[f"{name}_parallelism_{group}"] = geometry.parallelism(difference, f)
    return row


def first_hit(steps: Sequence[int], scores: Sequence[float], level: float = 0.9) -> int | None:
    """The first step at which a score reaches `level`; None if it never does."""
    return next((s for s, v in zip(steps, scores, strict=True) if v >= level), None)


def sustained(steps: Sequence[int], scores: Sequence[float], level: float = 0.9) -> int | None:
    """The step from which a score stays at `level` or above to the end; None if it ends below."""
    found = None
    for step, score in zip(steps, scores, strict=True):
        if score < level:
            found = None
        elif found is None:
            found = step
    return found
