"""Many small transformers as one: every tensor has a leading model dimension.

The arithmetic is that of `lib.models.transformer.Transformer`, for models without a copy head and
with rotary positions; a test compares both. Only what the last position needs is computed, and each
member has an optimiser of its own, so that learning rates and decays may differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lib.models.transformer import Transformer, TransformerConfig, initialise, rotary

PAD = -1  # fills prompts on the left; never read


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
            name: torch.stack([one[name].detach() for one in named]).requires_grad_()
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
            name: value.detach().to(device).requires_grad_()
            for name, value in self.parameters.items()
        }
        return self

    def member(self, index: int) -> Transformer:
        """One member as a model of its own, a copy."""
        model = Transformer(self.config).to(self.W_E)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.parameters[name][index])
        return model

    def logits(
        self, prompts: Int[Tensor, "models batch tokens"], W_U: Tensor | None = None
    ) -> Float[Tensor, "models batch d_vocab"]:
        """Logits after the last token of each prompt; prompts are filled with PAD on the left.

        `W_U` takes the place of the members' own when given.
        """
        return self.last(prompts)[0] @ (self.W_U if W_U is None else W_U).mT

    def last(
        self, prompts: Int[Tensor, "models batch tokens"]
    ) -> tuple[Float[Tensor, "models batch d_model"], Float[Tensor, "models batch n_heads tokens"]]:
        """The final normalised stream at the last position, and the top layer's attention from it."""
        models, batch, tokens = prompts.shape
        p, d = self.parameters, self.config.d_model
        offset = torch.arange(models, device=prompts.device)[:, None, None] * self.config.d_vocab
        x = F.embedding(prompts.clamp(min=0) + offset, self.W_E.flatten(0, 1))
        hidden = (prompts == PAD)[:, :, None, None, :]
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        for layer in range(self.config.n_layers):
            b = f"blocks.{layer}."
            n = 1 if layer + 1 == self.config.n_layers else tokens
            normed = _norm(x, p[b + "ln_1.weight"], p[b + "ln_1.bias"])
            q = rotary(self._heads(normed[:, :, -n:], b + "query"), tokens - n)
            k = rotary(self._heads(normed, b + "key"))
            v = self._heads(normed, b + "value")
            scores = q @ k.mT / math.sqrt(self.config.d_head)
            pattern = scores.masked_fill(hidden | causal[-n:], -math.inf)
            # A PAD sees nothing; what it would write is never read, but it must not be NaN.
            pattern = pattern.softmax(dim=-1).nan_to_num() if n > 1 else pattern.softmax(dim=-1)
            z = (pattern @ v).transpose(2, 3).reshape(models, batch, n, d)
            x = x[:, :, -n:] + _linear(z, p[b + "out.weight"], p[b + "out.bias"])
            up = _norm(x, p[b + "ln_2.weight"], p[b + "ln_2.bias"])
            up = F.relu(_linear(up, p[b + "up.weight"], p[b + "up.bias"]))
            x = x + _linear(up, p[b + "down.weight"], p[b + "down.bias"])
        final = _norm(x[:, :, -1], p["ln_final.weight"], p["ln_final.bias"])
        return final, pattern[:, :, :, -1]

    def _heads(
        self, x: Float[Tensor, "models batch tokens d_model"], name: str
    ) -> Float[Tensor, "models batch n_heads tokens d_head"]:
        y = _linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])
        return y.unflatten(-1, (self.config.n_heads, -1)).transpose(2, 3)


def _norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm over the last dimension; gain and bias are [models, d]."""
    ones = (len(x), *[1] * (x.ndim - 2), x.shape[-1])
    return torch.addcmul(bias.view(ones), F.layer_norm(x, x.shape[-1:]), gain.view(ones))


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [models, ..., d_in] times weight [models, d_out, d_in], plus bias [models, d_out]."""
    flat = torch.baddbmm(bias[:, None], x.flatten(1, -2), weight.mT)
    return flat.view(*x.shape[:-1], -1)


def loss(
    ensemble: Ensemble,
    prompts: Int[Tensor, "models batch tokens"],
    answers: Int[Tensor, "models batch"],
    stand_ins: StandIns | None = None,
) -> Float[Tensor, " models"]:
    """Mean cross-entropy of each member's answers. Their sum has the gradient of each."""
    if stand_ins is None:
        logits = ensemble.logits(prompts)
    else:
        logits = ensemble.logits(prompts, stand_ins.scaled(ensemble.W_U)) + stand_ins.bias
    each = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    return each.view(answers.shape).mean(dim=1)


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

    def scaled(self, W: Tensor) -> Tensor:
        """The same values as `W`, with the gradient of the stand-ins' rows scaled by R / K."""
        return torch.lerp(W.detach(), W, self.share)


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
        self.views = [
            [nn.Parameter(value.detach()[i]) for value in self.trained.values()]
            for i in range(len(ensemble))
        ]
        groups: list[dict[str, Any]] = [
            {"params": views, "lr": rate, "weight_decay": decay}
            for views, rate, decay in zip(self.views, lr, weight_decay, strict=True)
        ]
        make = torch.optim.Adam if kind == "adam_l2" else torch.optim.AdamW
        self.inner = make(groups, fused=True)

    def step(self, total: Float[Tensor, ""]) -> None:
        """Backward from the sum of the members' losses, then one step of each."""
        for value in self.trained.values():
            value.grad = None
        total.backward()
        for i, views in enumerate(self.views):
            for view, value in zip(views, self.trained.values(), strict=True):
                view.grad = None if value.grad is None else value.grad[i]
        self.inner.step()


def build(config: TransformerConfig, generators: Sequence[torch.Generator]) -> Ensemble:
    """An ensemble whose member i is what `initialise` makes of generator i."""
    return Ensemble([initialise(Transformer(config), generator) for generator in generators])
