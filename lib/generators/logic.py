"""Logic problems in context: two chains of implications, one fact, one query (paper A).

A problem of depth K is one sequence of tokens, here with K = 2:

    A > B  X > Y  B > C  Y > Z   FACT A QUERY C ANS   A B C T

The 2K implications stand in random order. Half of them form a chain that starts at the fact (the
true chain), half a chain that does not (the distractor). The answer is the fact and every name
derived from it, in order, then T if the query was among them, else F. The query is the last name of
its chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# `solve`, the exercises and chapter 1 spell these words out, so as not to lean on this line.
SPECIALS = (">", "FACT", "QUERY", "ANS", "T", "F")
ARROW, FACT, QUERY, ANS, TRUE, FALSE = range(len(SPECIALS))
SPLITS = ("seen", "query_unseen", "all_unseen")


class Names:
    """The vocabulary of a logic task. Token ids: specials, then seen names, then unseen names."""

    specials: ClassVar[tuple[str, ...]]
    n_seen: int
    n_unseen: int

    @property
    def d_vocab(self) -> int:
        return len(self.specials) + self.n_seen + self.n_unseen

    @property
    def seen(self) -> range:
        """Token ids of the names that training may use."""
        return range(len(self.specials), len(self.specials) + self.n_seen)

    @property
    def unseen(self) -> range:
        """Token ids of the names that no training batch contains."""
        return range(self.seen.stop, self.d_vocab)

    @property
    def prompt_length(self) -> int:
        """Tokens up to and including ANS."""
        raise NotImplementedError

    @property
    def answer_length(self) -> int:
        """Tokens after ANS: names, then the verdict."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """Tokens of prompt and answer together."""
        return self.prompt_length + self.answer_length


@dataclass(frozen=True)
class LogicConfig(Names):
    """One vocabulary and one depth.

    Training draws names from the seen part only; `unseen` names exist so that tests can use them.
    """

    specials = SPECIALS
    depth: int = 2
    n_seen: int = 1000
    n_unseen: int = 50

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(
                f"depth is {self.depth}: a chain needs at least one implication, set depth >= 1"
            )
        for part in ("n_seen", "n_unseen"):
            if getattr(self, part) < self.n_names:
                raise ValueError(
                    f"{part} is {getattr(self, part)}: two chains of depth {self.depth} need "
                    f"{self.n_names} different names, set {part} >= {self.n_names}"
                )

    @property
    def n_names(self) -> int:
        """Different names in one problem."""
        return 2 * (self.depth + 1)

    @property
    def prompt_length(self) -> int:
        return 6 * self.depth + 5

    @property
    def answer_length(self) -> int:
        """Tokens after ANS: the fact, the derived names, the verdict."""
        return self.depth + 2


class Problems(NamedTuple):
    """A batch: the whole sequence (prompt, then answer) and the verdict it ends with."""

    tokens: Int[Tensor, "problems tokens"]
    verdict: Bool[Tensor, " problems"]


def sample(
    config: LogicConfig,
    n: int,
    generator: torch.Generator,
    split: str = "seen",
    verdict: bool | None = None,
) -> Problems:
    """Draw `n` problems; the generator lives on the CPU, so that a seed is one data set on every device.

    `split` says which names are unseen: none (`seen`), only the queried one (`query_unseen`), or
    all (`all_unseen`). `verdict` fixes the answer to True or False; None tosses a fair coin.
    Raises ValueError for an unknown split or `n` below 1.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown: use one of {', '.join(SPLITS)}")
    if n < 1:
        raise ValueError(f"n is {n}: ask for at least one problem")
    k = config.depth
    part = config.unseen if split == "all_unseen" else config.seen
    names = distinct(len(part), config.n_names, n, generator) + part.start
    true_chain, other_chain = names[:, : k + 1], names[:, k + 1 :]
    if verdict is None:
        holds = torch.rand(n, generator=generator) < 0.5
    else:
        holds = torch.full((n,), verdict)
    if split == "query_unseen":
        stranger = torch.randint(config.n_unseen, (n,), generator=generator) + config.unseen.start
        true_chain[:, -1] = torch.where(holds, stranger, true_chain[:, -1])
        other_chain[:, -1] = torch.where(holds, other_chain[:, -1], stranger)
    query = torch.where(holds, true_chain[:, -1], other_chain[:, -1])

    left = torch.cat([true_chain[:, :-1], other_chain[:, :-1]], dim=1)
    right = torch.cat([true_chain[:, 1:], other_chain[:, 1:]], dim=1)
    order = torch.rand(n, 2 * k, generator=generator).argsort(dim=1)

    tokens = torch.empty(n, config.length, dtype=torch.long)
    rules = tokens[:, : 6 * k].view(n, 2 * k, 3)
    rules[:, :, 0] = left.gather(1, order)
    rules[:, :, 1] = ARROW
    rules[:, :, 2] = right.gather(1, order)
    tail = tokens[:, 6 * k :]
    tail[:, 0], tail[:, 1], tail[:, 2], tail[:, 3], tail[:, 4] = (
        FACT,
        true_chain[:, 0],
        QUERY,
        query,
        ANS,
    )
    tail[:, 5:-1] = true_chain
    tail[:, -1] = torch.where(holds, TRUE, FALSE)
    return Problems(tokens, holds)


def distinct(
    high: int, k: int, n: int, generator: torch.Generator
) -> Int[Tensor, "problems names"]:
    """`n` ordered draws of `k` different numbers below `high`, all equally likely.

    Draw number j comes from the `high - j` numbers still free; walking the earlier draws in
    increasing order turns its rank among the free ones into the number itself.
    """
    names = torch.empty(n, k, dtype=torch.long)
    for j in range(k):
        draw = torch.randint(high - j, (n,), generator=generator)
        for earlier in names[:, :j].sort(dim=1).values.unbind(1):
            draw += draw >= earlier
        names[:, j] = draw
    return names


def decode(config: Names, tokens: Int[Tensor, " tokens"] | list[int]) -> str:
    """Readable text: seen names are `s0, s1, ...`, unseen ones `u0, u1, ...`."""
    words = []
    for token in torch.as_tensor(tokens).tolist():
        if not 0 <= token < config.d_vocab:
            raise ValueError(f"token {token} is outside the vocabulary of {config.d_vocab}")
        if token < config.seen.start:
            words.append(config.specials[token])
        elif token in config.seen:
            words.append(f"s{token - config.seen.start}")
        else:
            words.append(f"u{token - config.unseen.start}")
    return " ".join(words)


def solve(prompt: str) -> str:
    """The answer to a decoded prompt by forward chaining on words; knows nothing of the sampler.

    Independent of `sample` on purpose: tests compare the two. Each name may imply at most one other.
    """
    words = prompt.split()
    rules = {words[i - 1]: words[i + 1] for i, word in enumerate(words) if word == ">"}
    name, query = words[words.index("FACT") + 1], words[words.index("QUERY") + 1]
    derived = [name]
    while name in rules and rules[name] not in derived:
        name = rules[name]
        derived.append(name)
    return " ".join([*derived, "T" if query in derived else "F"])
