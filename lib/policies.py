"""What happens to the (un)embedding while the rest of the model learns.

A policy says which embedding parameters the optimiser gets, and what it does to rows before and
after a step, the optimiser's moments included. It asks a model for its (un)embedding and an optimiser
for its state, and for nothing else. Paper A compares `Learn`, `Freeze` and `Reset`; `Refresh` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lib.configuration import nearest
from lib.generators import stream
from lib.models.transformer import TransformerConfig
from lib.repair import draw, moments


@runtime_checkable
class Model(Protocol):
    """What a policy needs of a model: its sizes, and W_E, and W_U where it is another matrix."""

    config: TransformerConfig

    def embedding_parameters(self) -> list[nn.Parameter]: ...


@runtime_checkable
class Optimiser(Protocol):
    """What a policy needs of an optimiser: moments and step counts, by parameter."""

    @property
    def state(self) -> Mapping[Any, dict[str, Any]]: ...


@dataclass(frozen=True)
class Learn:
    """The embedding learns like any other weight."""

    def trained(self, model: Model) -> list[nn.Parameter]:
        """The embedding parameters that the optimiser gets; frozen ones lose their gradient."""
        return model.embedding_parameters()

    def before_step(self, model: Model, optimizer: Optimiser, step: int, seed: int) -> None:
        """Called before step `step` (the first is 0); what it draws depends on `seed` and `step` alone."""

    def after_step(self, model: Model, optimizer: Optimiser) -> None:
        """Called after each optimiser step."""

    def saw(self, tokens: Tensor) -> None:
        """Called with the tokens of each training batch, in order; again for past ones on resuming."""


@dataclass(frozen=True)
class Freeze(Learn):
    """The embedding stays as it was drawn: no gradient, no decay, not in the optimiser."""

    def trained(self, model: Model) -> list[nn.Parameter]:
        for parameter in model.embedding_parameters():
            parameter.requires_grad_(False)
        return []


@dataclass(frozen=True)
class Reset(Learn):
    """Active forgetting: draw the whole embedding anew after every `every` steps, up to step `until`.

    The moments of the redrawn parameters are cleared: Adam would otherwise push fresh rows along
    gradients of rows that are gone.
    """

    every: int = 100
    until: int | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}: reset after at least one step")

    def before_step(self, model: Model, optimizer: Optimiser, step: int, seed: int) -> None:
        if step == 0 or step % self.every or (self.until is not None and step > self.until):
            return
        generator = stream(seed, "reset", step)
        with torch.no_grad():
            for parameter in model.embedding_parameters():
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator) * model.config.embed_std
                )
                _clear(optimizer, parameter)


@dataclass(frozen=True)
class FreezeRows(Learn):
    """Chosen rows keep, bit for bit, the values they have when this policy starts.

    A zero gradient is not enough: decay still shrinks a row, and moments still move it. So the rows
    are put back, and their moments cleared, after every step.
    """

    rows: Sequence[int] = ()
    _kept: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def trained(self, model: Model) -> list[nn.Parameter]:
        parameters = model.embedding_parameters()
        if not self.rows or not 0 <= min(self.rows) <= max(self.rows) < model.config.d_vocab:
            raise ValueError(f"rows must name at least one of the {model.config.d_vocab} tokens")
        for parameter in parameters:
            self._kept[id(parameter)] = parameter.detach()[list(self.rows)].clone()
        return parameters

    def after_step(self, model: Model, optimizer: Optimiser) -> None:
        rows = list(self.rows)
        with torch.no_grad():
            for parameter in model.embedding_parameters():
                parameter[rows] = self._kept[id(parameter)]
                _clear(optimizer, parameter, rows)


@dataclass(frozen=True)
class Refresh(Learn):
    """Every `every` steps redraw the rows that no batch has held so far; all other rows learn.

    New rows have mean and (shrunk) covariance of the rows in use, each matrix its own. They start
    without a first moment, and with the used rows' mean second moment: Adam counts steps for all
    rows together, so that with an empty one it would take steps several times too large.
    Ours: what `Reset` does for unseen tokens, without taking from seen ones what they have learned.
    """

    every: int = 200  # chosen in the sweep refresh_choice
    method: str = "mean_cov"  # or mean_diag, see lib.repair.DRAWS
    _used: set[int] = field(default_factory=set, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}: refresh after at least one step")
        nearest("method", self.method, ("mean_cov", "mean_diag"))  # however many rows

    def trained(self, model: Model) -> list[nn.Parameter]:
        self._used.clear()  # a configuration may serve several runs
        return model.embedding_parameters()

    def saw(self, tokens: Tensor) -> None:
        self._used.update(tokens.unique().tolist())

    def before_step(self, model: Model, optimizer: Optimiser, step: int, seed: int) -> None:
        unused = sorted(set(range(model.config.d_vocab)) - self._used)
        if step == 0 or step % self.every or not unused or len(self._used) < 2:
            return
        generator = stream(seed, "refresh", step)
        with torch.no_grad():
            for parameter in model.embedding_parameters():
                used = sorted(self._used)
                like = moments(parameter.detach().cpu(), used)
                parameter[unused] = draw(*like, len(unused), self.method, generator).to(parameter)
                second = optimizer.state.get(parameter, {}).get("exp_avg_sq")
                _clear(optimizer, parameter, unused)
                if second is not None:
                    second[unused] = second[used].mean(dim=0)


def _clear(optimizer: Optimiser, parameter: nn.Parameter, rows: list[int] | None = None) -> None:
    """Set the moments of some rows to zero; without `rows` those of all, and the count of steps."""
    for moment in optimizer.state.get(parameter, {}).values():
        if isinstance(moment, Tensor):
            if rows is None:
                moment.zero_()
            elif moment.shape == parameter.shape:
                moment[rows] = 0
