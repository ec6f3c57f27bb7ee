"""Many small transformers as one: every tensor has a leading model dimension.

The arithmetic is that of `lib.models.transformer.Transformer`, for models without a copy head and
with rotary positions; a test compares both. Only what the last position needs is computed, and each
member has an optimiser of its own, so that learning rates and decays may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lib.models.transformer import Transformer, TransformerConfig, initialise, rotary

PAD = -1  # fills prompts on the left; never read
Hook = Callable[[str, Tensor], Tensor]


def unchanged(name: str, value: Tensor) -> Tensor:
    """The hook that changes nothing."""
    return value


class Ensemble:
    """Parameters [models, ...] of members with one shape, by the names that `Transformer` gives them.

    Raises ValueError when the members' configurations differ or ask for what is not built here.
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        config = members[0].config
        if any(member.config != config for member in members):
            raise ValueError("members of an ensemble need one configuration: train others apart")
        if config.copy or config.positions != "rotary":
            raise ValueError("an ensemble has rotary positions and no copy head")
        self.config = config
        named = [dict(member.named_parameters()) for member in members]
        self.parameters = {
            name: _laid_out(name, torch.stack([one[name].detach() for one in named]))
            for name in named[0]
        }

    def __len__(self) -> int:
        return len(self.parameters["W_E"])

    @property
    def W_E(self) -> Float[Tensor, "models d_vocab d_model"]:
        return self.parameters["W_E"]

    @property
    def W_U(self) -> Float[Tensor, "models d_vocab d_model"]:
        return self.parameters["W_E" if self.config.tied else "W_U"]

    def to(self, device: torch.device) -> Ensemble:
        """The same ensemble on a device."""
        self.parameters = {
            name: _laid_out(name, value.detach().to(device))
            for name, value in self.parameters.items()
        }
        return self

    def compile(self, backend: str) -> None:
        """Let torch.compile make one kernel of many in the blocks, forward and backward."""
        self.last = torch.compile(self.last, backend=backend)  # type: ignore[method-assign]

    def member(self, index: int) -> Transformer:
        """One member as a model of its own, a copy."""
        model = Transformer(self.config).to(self.W_E)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.parameters[name][index])
        return model

    def logits(
        self,
        prompts: Int[Tensor, "models batch tokens"],
        x: Tensor | None = None,
        hook: Hook = unchanged,
    ) -> Float[Tensor, "models batch d_vocab"]:
        """Logits after the last token of each prompt; prompts are filled with PAD on the left.

        `x` and `hook` as for `last`.
        """
        return self.last(prompts, x, hook)[0] @ self.W_U.mT

    def rows(
        self, prompts: Int[Tensor, "models batch tokens"]
    ) -> Int[Tensor, "models batch tokens"]:
        """Where the tokens' rows stand when all members' embeddings are one matrix."""
        offset = torch.arange(len(self), device=prompts.device)[:, None, None]
        return prompts.clamp(min=0) + offset * self.config.d_vocab

    def last(
        self,
        prompts: Int[Tensor, "models batch tokens"],
        x: Tensor | None = None,
        hook: Hook = unchanged,
    ) -> tuple[Float[Tensor, "models batch d_model"], Float[Tensor, "models batch n_heads tokens"]]:
        """The final normalised stream at the last position, and the top layer's attention from it.

        `x` takes the place of the prompts' embeddings when given. What `hook` returns takes the place
        of `blocks.0.value` and `blocks.0.pattern` [models, batch, heads, ...], and of the streams
        `blocks.0.resid_mid` and `blocks.0.resid_post` [models, batch, tokens, d_model]; the top
        block has the last position only.
        """
        models, batch, tokens = prompts.shape
        p, d = self.parameters, self.config.d_model
        if x is None:
            x = F.embedding(self.rows(prompts), self.W_E.flatten(0, 1))
        hidden = (prompts == PAD)[:, :, None, None, :]
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        for layer in range(self.config.n_layers):
            b = f"blocks.{layer}."
            n = 1 if layer + 1 == self.config.n_layers else tokens
            normed = _norm(x, p[b + "ln_1.weight"], p[b + "ln_1.bias"])
            q = rotary(self._heads(normed[:, :, -n:], b + "query"), tokens - n)
            k = rotary(self._heads(normed, b + "key"))
            v = hook(b + "value", self._heads(normed, b + "value"))
            # Prompts are short: elementwise products are faster than thousands of tiny matrix products.
            scores = (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / math.sqrt(
                self.config.d_head
            )
            pattern = scores.masked_fill(hidden | causal[-n:], -math.inf)
            # A PAD sees nothing; what it would write is never read, but it must not be NaN.
            pattern = pattern.softmax(dim=-1).nan_to_num() if n > 1 else pattern.softmax(dim=-1)
            pattern = hook(b + "pattern", pattern)
            z = (pattern[..., None] * v[..., None, :, :]).sum(-2)
            z = z.transpose(2, 3).reshape(models, batch, n, d)
            x = x[:, :, -n:] + _linear(z, p[b + "out.weight"], p[b + "out.bias"])
            x = hook(b + "resid_mid", x)
            up = _norm(x, p[b + "ln_2.weight"], p[b + "ln_2.bias"])
            up = F.relu(_linear(up, p[b + "up.weight"], p[b + "up.bias"]))
            x = hook(b + "resid_post", x + _linear(up, p[b + "down.weight"], p[b + "down.bias"]))
        return self.normed(x[:, :, -1]), pattern[:, :, :, -1]

    def normed(
        self, x: Float[Tensor, "models batch d_model"]
    ) -> Float[Tensor, "models batch d_model"]:
        """The final LayerNorm, which the logit lens applies to any stream."""
        return _norm(x, self.parameters["ln_final.weight"], self.parameters["ln_final.bias"])

    def _heads(
        self, x: Float[Tensor, "models batch tokens d_model"], name: str
    ) -> Float[Tensor, "models batch n_heads tokens d_head"]:
        y = _linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])
        return y.unflatten(-1, (self.config.n_heads, -1)).transpose(2, 3)


def _laid_out(name: str, value: Tensor) -> Tensor:
    """A leaf; matrices of the blocks lie in memory as [models, d_in, d_out], the way products read them
    forward and leave their gradients."""
    inner = value.ndim == 3 and name.startswith("blocks.")
    return (value.mT.contiguous().mT if inner else value).requires_grad_()


def _as_stored(value: Tensor, parameter: Tensor) -> Tensor:
    """A part of a parameter or of its gradient in the order in which the parameter lies in memory: Adam
    works entry by entry, and copies what lies otherwise."""
    return value if parameter.is_contiguous() else value.mT


def _norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm over the last dimension; gain and bias are [models, d]."""
    ones = (len(x), *[1] * (x.ndim - 2), x.shape[-1])
    return torch.addcmul(bias.view(ones), F.layer_norm(x, x.shape[-1:]), gain.view(ones))


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [models, ..., d_in] times weight [models, d_out, d_in], plus bias [models, d_out]."""
    flat = torch.baddbmm(bias[:, None], x.flatten(1, -2), weight.mT)
    return flat.view(*x.shape[:-1], -1)


def backward(
    ensemble: Ensemble,
    prompts: Int[Tensor, "models batch tokens"],
    answers: Int[Tensor, "models batch"],
    stand_ins: StandIns | None = None,
) -> Float[Tensor, " models"]:
    """Each member's mean cross-entropy; its gradient is left in the parameters' `.grad`.

    Autograd sees the blocks only. The (un)embedding, by far the largest matrix, gets its gradient by
    hand: once, in a buffer that is kept, where autograd would make and add up three of them.
    """
    p = ensemble.parameters
    for name, value in p.items():
        if name not in ("W_E", "W_U"):
            value.grad = None
    W_E, W_U = ensemble.W_E.detach(), ensemble.W_U.detach()
    rows = ensemble.rows(prompts)
    x = F.embedding(rows, W_E.flatten(0, 1)).requires_grad_()
    final, _ = ensemble.last(prompts, x)
    h = final.detach()

    # One tensor of the vocabulary's size, changed in place: logits, then d loss / d logits times batch.
    wrong = h @ W_U.mT
    if stand_ins is not None:
        wrong += stand_ins.bias
    right = wrong.gather(2, answers[:, :, None])
    total = wrong.logsumexp(dim=-1, keepdim=True)
    losses = (total - right).mean(dim=(1, 2))
    wrong.sub_(total).exp_()
    wrong.scatter_add_(2, answers[:, :, None], torch.full_like(right, -1.0))
    batch = answers.shape[1]

    final.backward(wrong @ W_U / batch)
    tied = ensemble.config.tied
    if ensemble.W_U.requires_grad:
        grad = _buffer(ensemble.W_U)
        torch.bmm(wrong.mT, h / batch, out=grad)
        if stand_ins is not None:
            grad *= stand_ins.share
    if ensemble.W_E.requires_grad:
        grad = _buffer(ensemble.W_E)
        if not tied:
            grad.zero_()
        assert x.grad is not None
        grad.flatten(0, 1).index_add_(0, rows.flatten(), x.grad.flatten(0, 2))
    return losses


def _buffer(parameter: Tensor) -> Tensor:
    """The parameter's gradient, made once."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter)
    return parameter.grad


class StandIns:
    """R rows that stand for K names that never occur: a sampled partition function.

    exp(l) of each counts K / R times, so log(K / R) is added to its logit. The softmax gradient on
    its row is then K / R times what each of the K names would get, and is scaled back by R / K on
    the row alone; what flows on into the stream is the sum over all K names and stays.
    """

    def __init__(
        self, rows: Int[Tensor, "models R"], names: int, like: Float[Tensor, "models d_vocab d"]
    ) -> None:
        if names < rows.shape[1]:
            raise ValueError(f"{rows.shape[1]} rows stand for {names} names: use fewer rows")
        share = torch.ones(like.shape[:2], device=like.device, dtype=like.dtype)
        share.scatter_(1, rows.to(like.device), rows.shape[1] / names)
        self.share = share[:, :, None]
        self.bias = -share.log()[:, None, :]


class Optimiser:
    """One Adam (L2 in the gradient) or AdamW a member, on views of the ensemble's parameters."""

    def __init__(
        self,
        ensemble: Ensemble,
        lr: Sequence[float],
        weight_decay: Sequence[float],
        kind: str = "adam_l2",
        frozen: Sequence[str] = (),
    ) -> None:
        if kind not in ("adam_l2", "adamw"):
            raise ValueError(f"optimiser {kind!r} is unknown: use adam_l2 or adamw")
        self.trained = {k: v for k, v in ensemble.parameters.items() if k not in frozen}
        for name in frozen:
            ensemble.parameters[name].requires_grad_(False)
        settings = list(zip(lr, weight_decay, strict=True))
        # Adam works entry by entry: members with the same settings are one.
        alike = len(set(settings)) == 1
        self.parts: list[Any] = [slice(None)] if alike else list(range(len(ensemble)))
        self.views = [
            [nn.Parameter(_as_stored(v.detach()[part], v)) for v in self.trained.values()]
            for part in self.parts
        ]
        groups: list[dict[str, Any]] = [
            {"params": views, "lr": rate, "weight_decay": decay}
            for views, (rate, decay) in zip(self.views, settings[: len(self.parts)], strict=True)
        ]
        make = torch.optim.Adam if kind == "adam_l2" else torch.optim.AdamW
        self.inner = make(groups, fused=True)

    def step(self) -> None:
        """One step of each member along the gradients that the parameters hold."""
        for part, views in zip(self.parts, self.views, strict=True):
            for view, value in zip(views, self.trained.values(), strict=True):
                grad = value.grad
                view.grad = None if grad is None else _as_stored(grad[part], value)
        self.inner.step()


class Seat:
    """One member in training, as a policy meets it: its (un)embedding and, in `state`, its part of the
    optimiser's moments, all views. Members with the same settings share the count of steps."""

    def __init__(self, ensemble: Ensemble, optimiser: Optimiser, index: int) -> None:
        self.config, self._optimiser = ensemble.config, optimiser
        alike = len(optimiser.parts) == 1
        self._part = 0 if alike else index
        self._at: tuple[int, ...] = (index,) if alike else ()
        self._matrices = {
            name: nn.Parameter(ensemble.parameters[name].detach()[index])
            for name in ("W_E", "W_U")
            if name in ensemble.parameters
        }

    def embedding_parameters(self) -> list[nn.Parameter]:
        """W_E, and W_U where it is another matrix; the same objects at every call."""
        return list(self._matrices.values())

    @property
    def state(self) -> dict[nn.Parameter, dict[str, Tensor]]:
        names = list(self._optimiser.trained)
        views = dict(zip(names, self._optimiser.views[self._part], strict=True))
        return {
            matrix: {
                key: value[self._at] if value.ndim else value
                for key, value in self._optimiser.inner.state.get(views[name], {}).items()
            }
            for name, matrix in self._matrices.items()
            if name in views
        }


def build(config: TransformerConfig, generators: Sequence[torch.Generator]) -> Ensemble:
    """An ensemble whose member i is what `initialise` makes of generator i."""
    return Ensemble([initialise(Transformer(config), generator) for generator in generators])
