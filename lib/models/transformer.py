"""A small pre-LayerNorm decoder whose activations have names.

Top to bottom: configuration, block, model, initial weights. `Transformer.run` returns any named
activation; `activation_names` lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lib.configuration import nearest
from lib.models.copy_attention import CopyAttention

POSITIONS = ("rotary", "learned")
Keep = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of one model. `embed_std` is the standard deviation of fresh (un)embedding entries,
    `weight_std` that of the other matrices (None: 1 / sqrt(d_in) for d_in inputs).

    `positions` is `rotary`, or `learned`: a vector per position, for at most `n_ctx` tokens. On a
    grid of fixed places, as in the logic task, learned positions are found several times sooner.
    """

    d_vocab: int
    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    tied: bool = True
    copy: bool = False
    embed_std: float = 0.25
    positions: str = "rotary"
    n_ctx: int = 64
    weight_std: float | None = field(default=None, repr=False, metadata={"later": True})

    def __post_init__(self) -> None:
        for name in ("d_vocab", "d_model", "n_layers", "n_heads", "n_ctx"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.d_model % self.n_heads or (self.d_model // self.n_heads) % 2:
            raise ValueError(
                f"d_model {self.d_model} over n_heads {self.n_heads} must give an even whole d_head "
                "(rotary positions turn pairs of coordinates)"
            )
        if self.positions not in POSITIONS:
            raise ValueError(
                f"positions {self.positions!r} is unknown: use one of {', '.join(POSITIONS)}"
            )
        if self.weight_std is not None and not self.weight_std > 0:
            raise ValueError(f"weight_std {self.weight_std} must be above 0")
        if not self.embed_std > 0:
            raise ValueError(f"embed_std {self.embed_std} must be above 0")

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads


def rotary(
    x: Float[Tensor, "*batch tokens d_head"], first: int = 0, base: float = 10_000.0
) -> Float[Tensor, "*batch tokens d_head"]:
    """Turn each pair (i, i + d_head / 2) of coordinates by position x base^(-2 i / d_head) [RoPE].

    `first` is the position of the first token of `x`.
    """
    tokens, half = x.shape[-2], x.shape[-1] // 2
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    frequency = base ** (-torch.arange(half, device=x.device, dtype=exact) / half)
    position = torch.arange(first, first + tokens, device=x.device, dtype=exact)
    angle = position[:, None] * frequency
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([-angle, angle], -1).sin()
    return x * cos.to(x.dtype) + x.roll(half, -1) * sin.to(x.dtype)


class Block(nn.Module):
    """Attention, then an MLP, each reading a normalised copy of the stream and adding to it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_heads = config.n_heads
        self.rotary = config.positions == "rotary"
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(
        self,
        x: Float[Tensor, "batch tokens d_model"],
        causal: Bool[Tensor, "tokens tokens"],
        keep: Keep | None,
        last: int,
    ) -> Float[Tensor, "batch last d_model"]:
        """The stream after this block at the `last` positions; keys and values come from all."""
        normed, first = self.ln_1(x), x.shape[1] - last
        x = x[:, first:]
        q, k = self._heads(self.query(normed[:, first:])), self._heads(self.key(normed))
        if self.rotary:
            q, k = rotary(q, first), rotary(k)
        v = self._heads(self.value(normed))
        if keep is None:  # the fused kernel keeps no pattern; both ways agree (tested)
            z = F.scaled_dot_product_attention(
                q, k, v, attn_mask=causal[first:] if first else None, is_causal=not first
            )
        else:
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            pattern = scores.masked_fill(~causal[first:], -math.inf).softmax(dim=-1)
            z = pattern @ v
            keep("resid_pre", x)
            keep("pattern", pattern)
        x = x + self.out(rearrange(z, "b h t d -> b t (h d)"))
        if keep is not None:
            keep("resid_mid", x)
        x = x + self.down(F.relu(self.up(self.ln_2(x))))
        if keep is not None:
            keep("resid_post", x)
        return x

    def _heads(
        self, x: Float[Tensor, "batch tokens d_model"]
    ) -> Float[Tensor, "batch n_heads tokens d_head"]:
        return rearrange(x, "b t (h d) -> b h t d", h=self.n_heads)


class Transformer(nn.Module):
    """Tokens to logits. `W_E` embeds; `W_U` unembeds and *is* `W_E` when tied. No unembedding bias."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.W_E = nn.Parameter(torch.empty(config.d_vocab, config.d_model))
        self.W_U = self.W_E if config.tied else nn.Parameter(torch.empty_like(self.W_E))
        learned = config.positions == "learned"
        self.W_pos = nn.Parameter(torch.empty(config.n_ctx, config.d_model)) if learned else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.ln_final = nn.LayerNorm(config.d_model)
        self.copy = CopyAttention(config.d_model) if config.copy else None

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], last: int | None = None
    ) -> Float[Tensor, "batch positions d_vocab"]:
        """Logits at every position, or only at the `last` ones (all that a loss on the answer needs)."""
        return self._forward(tokens, last, None)

    def run(
        self, tokens: Int[Tensor, "batch tokens"], names: Iterable[str] | None = None
    ) -> dict[str, Float[Tensor, "..."]]:
        """The named activations of one forward pass, all of them by default.

        Raises ValueError for a name that this model has not, with the nearest ones it has.
        """
        known = self.activation_names()
        wanted = known if names is None else list(names)
        for name in wanted:
            nearest("activation", name, known)
        kept: dict[str, Tensor] = {}

        def keep(name: str, value: Tensor) -> None:
            if name in wanted:
                kept[name] = value

        self._forward(tokens, None, keep)
        return {name: kept[name] for name in wanted}

    def activation_names(self) -> list[str]:
        """Every name that `run` knows, in the order of computation."""
        inside = ("resid_pre", "pattern", "resid_mid", "resid_post")
        blocks = [
            f"blocks.{layer}.{name}" for layer in range(self.config.n_layers) for name in inside
        ]
        copy = ["copy.pattern", "copy.out"] if self.config.copy else []
        return ["embed", *blocks, "final", *copy, "logits"]

    def _forward(
        self, tokens: Int[Tensor, "batch tokens"], last: int | None, keep: Keep | None
    ) -> Float[Tensor, "batch positions d_vocab"]:
        n = tokens.shape[1]
        if self.W_pos is not None and n > len(self.W_pos):
            raise ValueError(
                f"{n} tokens, but learned positions for {len(self.W_pos)}: raise n_ctx"
            )
        if last is not None and not 1 <= last <= n:
            raise ValueError(f"last is {last}: ask for 1 to {n} positions")
        causal = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril()
        embed = F.embedding(tokens, self.W_E)
        x = embed if self.W_pos is None else embed + self.W_pos[:n]
        for layer, block in enumerate(self.blocks):
            # after the top block only the copy head looks back; without it the rest is never read
            top = layer + 1 == self.config.n_layers and last is not None and self.copy is None
            x = block(x, causal, _prefixed(keep, f"blocks.{layer}."), last if top else n)
        final = self.ln_final(x)
        stream = final if last is None else final[:, -last:]
        if self.copy is not None:
            copied, copy_pattern = self.copy(final, embed, causal, stream.shape[1])
            stream = stream + copied
        logits = stream @ self.W_U.T
        if keep is not None:
            keep("embed", embed)
            keep("final", final)
            if self.copy is not None:
                keep("copy.pattern", copy_pattern)
                keep("copy.out", copied)
            keep("logits", logits)
        return logits

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The (un)embedding, each storage once: [W_E] when tied, else [W_E, W_U]."""
        return [self.W_E] if self.config.tied else [self.W_E, self.W_U]


def _prefixed(keep: Keep | None, prefix: str) -> Keep | None:
    return None if keep is None else lambda name, value: keep(prefix + name, value)


def initialise(model: Transformer, generator: torch.Generator) -> Transformer:
    """Draw all weights in a fixed order from a CPU generator: one seed, one model, on every device.

    Entries of the (un)embedding have standard deviation `embed_std`, those of learned positions
    twice that (with less, many seeds stay on a plateau where a name's place is not found); a matrix
    with d_in inputs has `weight_std`, or 1 / sqrt(d_in); biases are 0, LayerNorm gains and the copy gate 1.
    """
    std = {id(p): model.config.embed_std for p in model.embedding_parameters()}
    std[id(model.W_pos)] = 2 * model.config.embed_std
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                usual = model.config.weight_std or 1 / math.sqrt(parameter.shape[1])
                scale = std.get(id(parameter), usual)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return model
