"""What makes the analogy: change one thing in a trained model and see what it answers (paper B, and beyond).

The question is always the same, `s f`: a source and the functor's token. Rows say for known and for
held-out pairs apart which share is still `right`, F(s), and which `followed` the change, where a
change asks for another answer. Models have one functor with a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.analogies import Member
from lib.ensemble import PAD, Ensemble, Hook, unchanged
from lib.generators import stream

Row = dict[str, float | int | str]
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
STRENGTHS = (0.5, 1.0, 2.0, 4.0)
RIDGE = 1.0


class Asked(NamedTuple):
    """The analogy of every source, members first."""

    prompts: Int[Tensor, "models pairs 3"]
    answers: Int[Tensor, "models pairs"]
    held: Bool[Tensor, "models pairs"]


def ask(members: Sequence[Member]) -> Asked:
    """All pairs (s, F(s)), known and held out. Raises ValueError without a functor's token."""
    if any(len(member.world.functor) != 1 for member in members):
        raise ValueError(
            "these tests need one functor with a token: set functors=1, implicit=False"
        )
    source, target = (torch.stack([m.world.entity[i] for m in members]) for i in (0, 1))
    functor = torch.stack([m.world.functor for m in members]).expand_as(source)
    held = [torch.isin(m.world.entity[1], m.world.analogical.ood[:, -1]) for m in members]
    prompts = torch.stack([torch.full_like(source, PAD), source, functor], dim=-1)
    return Asked(prompts, target, torch.stack(held))


def _rows(held: Tensor, right: Tensor, followed: Tensor | None, head: Row) -> list[list[Row]]:
    """Two rows a member, from what is right for each pair."""
    found: list[list[Row]] = []
    for i in range(len(held)):
        found.append([])
        for group, chosen in (("held_out", held[i]), ("known", ~held[i])):
            share = math.nan if followed is None else float(followed[i][chosen].float().mean())
            row: Row = {"group": group, "right": float(right[i][chosen].float().mean())}
            found[-1].append({**head, **row, "followed": share, "n": int(chosen.sum())})
    return found


def _join(parts: Sequence[list[list[Row]]]) -> list[list[Row]]:
    return [[row for part in parts for row in part[i]] for i in range(len(parts[0]))]


def everything(
    models: Ensemble, members: Sequence[Member], seeds: Sequence[int]
) -> list[list[Row]]:
    """All tests that a model's depth allows, each member's rows; `seeds` make the draws."""
    tests = [short_cut(models, members, seeds), probes(models, members, seeds)]
    tests.append(steering(models, members, seeds))
    if models.config.n_layers == 1:
        tests.append(components(models, members))
    return _join(tests)


# ---- (1) and (2): the pattern, the value and the MLP of one layer, apart ----


@torch.no_grad()
def components(models: Ensemble, members: Sequence[Member]) -> list[list[Row]]:
    """Fix, silence or exchange what the functor's position gets; only for one layer.

    `pattern`: its attention to the source is set to a level. `value, ...`: the source's value is 0,
    the mean of all sources' values, or that of the next source s' (then `followed` counts F(s')).
    `pattern, other`: the next source's pattern. `functor value, 0`: the functor's own value is 0.
    `no MLP`. Raises ValueError for deeper models.
    """
    if models.config.n_layers != 1:
        raise ValueError("these changes are made in a model of one layer: set n_layers=1")
    prompts, answers, held = ask(members)
    following = answers.roll(-1, dims=1)
    before: dict[str, Tensor] = {}

    def attend(level: float) -> Hook:
        fixed = torch.tensor([0.0, level, 1 - level], device=models.W_E.device)
        return lambda name, x: fixed.expand_as(x) if name.endswith("pattern") else x

    def source(change: str) -> Hook:
        def hook(name: str, x: Tensor) -> Tensor:
            if not name.endswith("value"):
                return x
            x, old = x.clone(), x[..., -2, :]
            mean = old.mean(dim=1, keepdim=True)
            new = {"0": 0 * old, "mean": mean.expand_as(old), "other": old.roll(-1, dims=1)}
            x[..., -2, :] = new[change]
            return x

        return hook

    def functor(name: str, x: Tensor) -> Tensor:
        if name.endswith("value"):
            x = x.clone()
            x[..., -1, :] = 0
        return x

    def other_pattern(name: str, x: Tensor) -> Tensor:
        return x.roll(-1, dims=1) if name.endswith("pattern") else x

    def no_mlp(name: str, x: Tensor) -> Tensor:
        before[name] = x
        return before["blocks.0.resid_mid"] if name.endswith("resid_post") else x

    changes: list[tuple[str, float, Hook]] = [("none", math.nan, unchanged)]
    changes += [("pattern", level, attend(level)) for level in LEVELS]
    changes += [(f"value, {what}", math.nan, source(what)) for what in ("0", "mean", "other")]
    changes += [("pattern, other", math.nan, other_pattern)]
    changes += [("functor value, 0", math.nan, functor), ("no MLP", math.nan, no_mlp)]
    found = []
    for change, level, hook in changes:
        said = models.logits(prompts.to(models.W_E.device), hook=hook).argmax(dim=-1).cpu()
        head: Row = {"test": "components", "change": change, "level": level}
        found.append(_rows(held, said == answers, said == following, head))
    return _join(found)


# ---- (3): add the functor to a source, or what stands for it ----


@torch.no_grad()
def steering(models: Ensemble, members: Sequence[Member], seeds: Sequence[int]) -> list[list[Row]]:
    """Add `level` times a direction to the source's row: the functor's row, the mean e_t - e_s of
    known pairs (of the *other* known pairs for a known one), or a random direction as long.

    `row`: is the nearest row of the vocabulary by cosine, the source left out (so none is `right`),
    F(s)? `prompt`: the atomic prompt `s r` has the answer b; with the moved source, is it (`right`)
    still b, and how often has it followed to F(b)?
    """
    asked = ask(members)
    found = []
    for i, (member, seed) in enumerate(zip(members, seeds, strict=True)):
        W, world, held = models.W_E[i].detach().cpu(), member.world, asked.held[i]
        s, t = W[world.entity[0]], W[world.entity[1]]
        known, n = ~held, len(held)
        total = (t - s)[known].sum(dim=0)
        count = (known.sum() - known.long())[:, None]
        mean = (total - known[:, None] * (t - s)) / count
        noise = torch.randn(n, W.shape[1], generator=stream(seed, "steering"))
        directions = {
            "functor": W[world.functor[0]].expand(n, -1),
            "mean difference": mean,
            "random": F.normalize(noise, dim=1) * mean.norm(dim=1, keepdim=True),
        }
        rows: list[Row] = []
        for change, direction in directions.items():
            for level in STRENGTHS:
                moved = s + level * direction
                cosine = F.normalize(moved, dim=1) @ F.normalize(W, dim=1).T
                cosine[torch.arange(n), world.entity[0]] = -2.0
                nearest = cosine.argmax(dim=1) == world.entity[1]
                head: Row = {"change": change, "level": level}
                none = torch.zeros_like(nearest)
                rows += _rows(held[None], none[None], nearest[None], {"test": "row", **head})[0]
                right, followed = _moved_atomic(models, i, member, moved)
                rows += _rows(held[None], right[None], followed[None], {"test": "prompt", **head})[
                    0
                ]
        found.append(rows)
    return found


def _moved_atomic(
    models: Ensemble, index: int, member: Member, moved: Float[Tensor, "pairs d"]
) -> tuple[Tensor, Tensor]:
    """For each source the shares of its atomic prompts answered with b, and with F(b)."""
    world, n = member.world, len(moved)
    a, b = torch.where(~torch.eye(n, dtype=torch.bool))
    prompts = torch.stack([world.entity[0][a], world.relation[0][a, b]], dim=-1)[None]
    W = models.W_E[index].detach()
    x = torch.stack([moved[a].to(W), W[prompts[0, :, 1].to(W.device)]], dim=1)[None]
    one = Ensemble([models.member(index)])
    said = one.logits(prompts.to(W.device), x).argmax(dim=-1)[0].cpu()
    shares = [(said == world.entity[c][b]).float().view(n, n - 1).mean(dim=1) for c in (0, 1)]
    return shares[0], shares[1]


# ---- the short cut of composition ----


@torch.no_grad()
def short_cut(models: Ensemble, members: Sequence[Member], seeds: Sequence[int]) -> list[list[Row]]:
    """Held-out compositions `a r1 r2`, asked as they are, with another r1, and with another source.

    `right`: the share that still gets the answer c. `followed`, where the source is one of the other
    category: the share that gets c's partner.
    """
    found = []
    for i, (member, seed) in enumerate(zip(members, seeds, strict=True)):
        world, generator = member.world, stream(seed, "short cut")
        facts = member.asked["comp_ood"]
        n = world.entity.shape[1]
        where = {int(e): divmod(k, n) for k, e in enumerate(world.entity.flatten())}
        category, place = torch.tensor([where[int(e)] for e in facts[:, 0]]).T
        _, end = torch.tensor([where[int(e)] for e in facts[:, 3]]).T
        step = torch.randint(1, n, (len(facts),), generator=generator)
        used = world.relation[0][world.relation[0] >= 0].unique()
        drawn = used[torch.randint(len(used), (len(facts),), generator=generator)]
        changes = {
            "none": (0, facts[:, 0]),
            "first relation": (1, drawn),
            "source": (0, world.entity[category, (place + step) % n]),
            "category": (0, world.entity[1 - category, place]),
        }
        partner = world.entity[1 - category, end]
        rows: list[Row] = []
        for change, (column, tokens) in changes.items():
            prompts = facts[:, :3].clone()
            prompts[:, column] = tokens
            logits = Ensemble([models.member(i)]).logits(prompts[None].to(models.W_E.device))
            said = logits.argmax(dim=-1)[0].cpu()
            right, followed = (
                float((said == due).float().mean()) for due in (facts[:, 3], partner)
            )
            head: Row = {"test": "short cut", "change": change, "level": math.nan}
            rows.append({**head, "group": "held_out", "right": right, "followed": followed})
            rows[-1]["n"] = len(facts)
        found.append(rows)
    return found


# ---- (6): probes by layer ----


@torch.no_grad()
def probes(models: Ensemble, members: Sequence[Member], seeds: Sequence[int]) -> list[list[Row]]:
    """Where the answer can be read at the functor's position, site by site.

    `lens`: final LayerNorm and unembedding, plain argmax. `linear`: ridge regression from the stream
    (LayerNorm without gain) to the answer's identity. `bilinear`: ridge regression to the answer's
    row, read off as the nearest entity. Both are fitted on atomic facts and trained compositions, so
    no analogy, known or not, was shown to them. `random answers` is the control task, a linear probe
    for random answers to the same facts; its group `fitted` stands beside that of `linear`.
    """
    asked = ask(members)
    sites: dict[str, list[Tensor]] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        if "resid" in name:
            sites.setdefault(name, []).append(x[:, :, -1])
        return x

    facts = torch.stack([m.pool[: len(m.pool) - len(m.world.analogical.id)] for m in members])
    for prompts in (asked.prompts, facts[:, :, :-1]):
        models.last(prompts.to(models.W_E.device), hook=keep)
    found: list[list[list[Row]]] = []
    for name, (here, there) in sites.items():
        said = (models.normed(here) @ models.W_U.mT).argmax(dim=-1).cpu()
        head: Row = {"change": name, "level": math.nan}
        found.append(_rows(asked.held, said == asked.answers, None, {"test": "lens", **head}))
        rows: list[list[Row]] = []
        for i, (member, seed) in enumerate(zip(members, seeds, strict=True)):
            entities = member.world.entity.flatten()
            W = F.normalize(models.W_U[i].cpu().double()[entities], dim=1)
            due = (facts[i, :, -1, None] == entities).long().argmax(dim=1)
            control = torch.randint(len(entities), due.shape, generator=stream(seed, "control"))
            eye = torch.eye(len(entities), dtype=torch.double)
            rows.append([])
            for test, answers, rows_of in (
                ("linear", due, eye),
                ("bilinear", due, W),
                ("random answers", control, eye),
            ):
                fit = _ridge(there[i], rows_of[answers])
                guess = (F.normalize(fit(there[i]), dim=1) @ rows_of.T).argmax(dim=1)
                share = float((guess == answers).float().mean())
                last: Row = {"group": "fitted", "right": share, "followed": math.nan}
                rows[-1].append({"test": test, **head, **last, "n": len(due)})
                if test != "random answers":
                    read = entities[(F.normalize(fit(here[i]), dim=1) @ rows_of.T).argmax(dim=1)]
                    right = (read == asked.answers[i])[None]
                    rows[-1] += _rows(asked.held[i][None], right, None, {"test": test, **head})[0]
        found.append(rows)
    return _join(found)


def _ridge(
    x: Float[Tensor, "facts d"], y: Float[Tensor, "facts out"]
) -> Callable[[Tensor], Tensor]:
    """Ridge regression with a free intercept, in float64; returns the fitted function."""
    x = F.layer_norm(x.double().cpu(), x.shape[-1:])
    middle, level = x.mean(dim=0), y.mean(dim=0)
    centred = x - middle
    gram = centred.T @ centred + RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(gram, centred.T @ (y - level))
    return lambda z: (F.layer_norm(z.double().cpu(), z.shape[-1:]) - middle) @ weight + level
