"""Real text that everyone who has torch has: the Python sources of sympy, on which torch depends.

Files are split into training, validation and test part by a hash of their path. A byte-level BPE
tokenizer is trained on the training part. `reserved` further tokens exist and never occur.
"""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class TextConfig:
    """Token ids: the file separator, then what BPE found, `vocabulary` in all; then reserved ones.

    A window is `context` + 1 tokens: each of the first `context` is followed by one to predict.
    """

    vocabulary: int = 1024
    reserved: int = 100
    context: int = 64

    def __post_init__(self) -> None:
        if self.vocabulary < 257:
            raise ValueError(f"vocabulary is {self.vocabulary}: 256 bytes and a separator need 257")
        for name in ("reserved", "context"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 2")

    @property
    def d_vocab(self) -> int:
        return self.vocabulary + self.reserved

    @property
    def seen(self) -> range:
        """Token ids that text may contain."""
        return range(self.vocabulary)

    @property
    def unseen(self) -> range:
        """Token ids of the reserved tokens, which no text contains."""
        return range(self.vocabulary, self.d_vocab)

    @property
    def answer_length(self) -> int:
        """Tokens that are predicted: all but the first."""
        return self.context

    @property
    def length(self) -> int:
        return self.context + 1


class Windows(NamedTuple):
    """A batch of stretches of text."""

    tokens: Int[Tensor, "windows tokens"]


def sample(config: TextConfig, n: int, generator: torch.Generator, part: str = "train") -> Windows:
    """`n` windows at random places of a part. Raises ValueError for an unknown part."""
    text = encoded(config.vocabulary, part)
    start = torch.randint(len(text) - config.context, (n,), generator=generator)
    return Windows(text[start[:, None] + torch.arange(config.length)].long())


def spread(config: TextConfig, n: int, part: str) -> Windows:
    """`n` windows at fixed, equally spaced places of a part, the same for every seed."""
    text = encoded(config.vocabulary, part)
    start = torch.linspace(0, len(text) - config.length, n).long()
    return Windows(text[start[:, None] + torch.arange(config.length)].long())


def repeated(
    ids: range, length: int, n: int, generator: torch.Generator
) -> Int[Tensor, "problems tokens"]:
    """`n` times `length` different random tokens of `ids`, and the same again."""
    chosen = torch.rand(n, len(ids), generator=generator).argsort(dim=1)[:, :length] + ids.start
    return torch.cat([chosen, chosen], dim=1)


@lru_cache(maxsize=8)
def encoded(vocabulary: int, part: str) -> Int[Tensor, " tokens"]:
    """All tokens of a part: its files one after the other, a separator (id 0) before each."""
    tokenizer = trained_tokenizer(vocabulary)
    files = (tokenizer.encode(text).ids for _, text in sources(part))  # one by one saves memory
    return torch.cat([torch.tensor([0, *ids], dtype=torch.int32) for ids in files])


@lru_cache(maxsize=2)
def trained_tokenizer(vocabulary: int) -> ByteLevelBPETokenizer:
    """Byte-level BPE, trained on the training part alone; id 0 is the file separator."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        (text for _, text in sources("train")),
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        special_tokens=["<file>"],
    )
    return tokenizer


@lru_cache(maxsize=3)
def sources(part: str) -> list[tuple[str, str]]:
    """(path, text) of the files of a part, in order of path: 80 % train, 10 % validation, 10 % test.

    Tests and benchmarks of sympy are left out: they repeat themselves too much. Raises ValueError for an unknown part.
    """
    if part not in PARTS:
        raise ValueError(f"part {part!r} is unknown: use one of {', '.join(PARTS)}")
    spec = importlib.util.find_spec("sympy")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.py"))
    chosen = [n for n in names if not {"tests", "benchmarks"} & set(n.split("/"))]
    chosen = [name for name in chosen if part_of(name) == part]
    return [(name, (root / name).read_text(encoding="utf-8")) for name in chosen]


def part_of(path: str) -> str:
    """Which part a file belongs to, by its path alone."""
    tenth = zlib.crc32(path.encode()) % 10
    return "train" if tenth < 8 else PARTS[tenth - 7]
