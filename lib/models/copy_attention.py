"""Copy attention: one extra head that carries input embeddings past every MLP (paper A)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class CopyAttention(nn.Module):
    """One causal head whose values are the *input* embeddings, scaled by a learned gate.

    Queries and keys come from the final normalised stream, so the head can use all that the model
    has worked out. What it writes never met an MLP: a name that no MLP ever saw passes unharmed.
    The output is added to the final normalised stream, just before the unembedding.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.gate = nn.Parameter(torch.ones(()))

    def forward(
        self,
        final: Float[Tensor, "batch tokens d_model"],
        embed: Float[Tensor, "batch tokens d_model"],
        causal: Bool[Tensor, "tokens tokens"],
        last: int,
    ) -> tuple[Float[Tensor, "batch last d_model"], Float[Tensor, "batch last tokens"]]:
        """What is added to the stream at the `last` positions, and the attention pattern there."""
        scores = self.query(final[:, -last:]) @ self.key(final).mT / math.sqrt(final.shape[-1])
        pattern = scores.masked_fill(~causal[-last:], -math.inf).softmax(dim=-1)
        return self.gate * (pattern @ embed), pattern
