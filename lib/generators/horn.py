"""Logic problems with one or two premises to a rule (Horn clauses), a second task beside `logic`.

A problem with two facts and two derived names on each side is one sequence of tokens:

    A & C > D  X > Z  B > C  Z & A > W  FACT A FACT B QUERY D ANS   C D T

The rules stand in random order. Half of them conclude names of the true side, whose base names are
given as facts; the others conclude names of the false side, whose base names (here X and Y) are not.
Exactly half of all rules have two premises. The answer is every derived name, in breadth-first
rounds and within a round in the order of the rules, then T if the query was among them, else F. The
query is the name derived last: on the true side, or on the false side had its base names been given.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lib.generators.logic import SPLITS, Names, Problems, distinct

# `solve` spells these words out, so as not to lean on this line.
SPECIALS = (">", "&", "FACT", "QUERY", "ANS", "T", "F")
ARROW, AND, FACT, QUERY, ANS, TRUE, FALSE = range(len(SPECIALS))


@dataclass(frozen=True)
class HornConfig(Names):
    """One vocabulary and one size. Token ids: specials, then seen names, then unseen names.

    `derived` and `facts` count the names of one side; a problem has two sides.
    """

    specials = SPECIALS
    derived: int = 3
    facts: int = 2
    n_seen: int = 1000
    n_unseen: int = 50

    def __post_init__(self) -> None:
        if self.derived < 1:
            raise ValueError(
                f"derived is {self.derived}: a side needs at least one rule, set derived >= 1"
            )
        if self.facts < 2:
            raise ValueError(
                f"facts is {self.facts}: the first rule may have two premises, set facts >= 2"
            )
        for part in ("n_seen", "n_unseen"):
            if getattr(self, part) < self.n_names:
                raise ValueError(
                    f"{part} is {getattr(self, part)}: two sides of {self.facts} facts and "
                    f"{self.derived} derived names need {self.n_names} different names, "
                    f"set {part} >= {self.n_names}"
                )

    @property
    def n_names(self) -> int:
        """Different names drawn for one problem; a base name of the false side may stay unused."""
        return 2 * (self.facts + self.derived)

    @property
    def prompt_length(self) -> int:
        """Tokens up to and including ANS; half of the rules take three, half take five."""
        return 8 * self.derived + 2 * self.facts + 3

    @property
    def answer_length(self) -> int:
        """Tokens after ANS: the derived names, the verdict."""
        return self.derived + 1


def sample(
    config: HornConfig,
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
    k, side = config.derived, config.facts + config.derived
    premises, double, rounds = _rules(config, n, generator)
    order = torch.rand(n, 2 * k, generator=generator).argsort(dim=1)
    # Breadth-first: by round, then by the place of the rule in the prompt.
    when = (rounds * 2 * k + order.argsort(dim=1)).view(n, 2, k)

    part = config.unseen if split == "all_unseen" else config.seen
    names = distinct(len(part), config.n_names, n, generator) + part.start
    # The coin comes last: the two verdicts of one seed differ in the query and its name only.
    if verdict is None:
        holds = torch.rand(n, generator=generator) < 0.5
    else:
        holds = torch.full((n,), verdict)
    last = when.argmax(dim=2) + config.facts
    asked = torch.where(holds, last[:, 0], last[:, 1] + side)[:, None]
    if split == "query_unseen":
        stranger = torch.randint(config.n_unseen, (n, 1), generator=generator) + config.unseen.start
        names.scatter_(1, asked, stranger)
    conclusions = names.view(n, 2, side)[:, :, config.facts :]

    # Either premise may fail: in a fixed place, reading that place alone would be enough.
    swap = double & (torch.rand(n, 2 * k, generator=generator) < 0.5)
    premises = torch.where(swap[:, :, None], premises.flip(2), premises)

    # Every rule as five cells; a second premise and its & are skipped where there is none.
    cells = torch.empty(n, 2 * k, 5, dtype=torch.long)
    cells[:, :, [0, 2]] = names.gather(1, premises.flatten(1)).view(n, 2 * k, 2)
    cells[:, :, 1], cells[:, :, 3], cells[:, :, 4] = AND, ARROW, conclusions.flatten(1)
    written = torch.ones(n, 2 * k, 5, dtype=torch.bool)
    written[:, :, 1:3] = double[:, :, None]
    rows = torch.arange(n)[:, None]

    tokens = torch.empty(n, config.length, dtype=torch.long)
    tokens[:, : 8 * k] = cells[rows, order][written[rows, order]].view(n, 8 * k)
    given = tokens[:, 8 * k : config.prompt_length - 3]
    given[:, 0::2], given[:, 1::2] = FACT, names[:, : config.facts]
    tail = tokens[:, config.prompt_length - 3 :]
    tail[:, 0], tail[:, 1], tail[:, 2] = QUERY, names.gather(1, asked)[:, 0], ANS
    tail[:, 3:-1] = conclusions[:, 0].gather(1, when[:, 0].argsort(dim=1))
    tail[:, -1] = torch.where(holds, TRUE, FALSE)
    return Problems(tokens, holds)


def _rules(
    config: HornConfig, n: int, generator: torch.Generator
) -> tuple[
    Int[Tensor, "problems rules 2"],
    Bool[Tensor, "problems rules"],
    Int[Tensor, "problems rules"],
]:
    """Both premises of each rule, whether the second is written, the round in which the rule fires.

    Rules of the true side come first. A premise is the position of its name among the names of the
    problem: base names and conclusions of the true side, then those of the false side, whose rounds
    are those it would have if its base names were given.
    """
    k, facts = config.derived, config.facts
    double = torch.rand(n, 2 * k, generator=generator).argsort(dim=1) < k
    pairs = torch.stack(
        [distinct(facts + i, 2, 2 * n, generator).view(n, 2, 2) for i in range(k)], dim=2
    )
    rounds = torch.zeros(n, 2, facts + k, dtype=torch.long)
    for i in range(k):
        first, second = rounds.gather(2, pairs[:, :, i]).unbind(2)
        needed = torch.where(double.view(n, 2, k)[:, :, i], first.maximum(second), first)
        rounds[:, :, facts + i] = needed + 1
    # A fact beside a first premise that fails, since half of a rule must not be enough. It stands
    # for a base name, so that the round stays what it was.
    lure = (pairs[:, 1, :, 1] < facts) & (torch.rand(n, k, generator=generator) < 0.5)
    fact = torch.randint(facts, (n, k), generator=generator)
    pairs[:, 1] += facts + k
    pairs[:, 1, :, 1] = torch.where(lure, fact, pairs[:, 1, :, 1])
    return pairs.flatten(1, 2), double, rounds[:, :, facts:].flatten(1)


def solve(prompt: str) -> str:
    """The answer to a decoded prompt by forward chaining on words; knows nothing of the sampler.

    Independent of `sample` on purpose: tests compare the two. Each round reads the rules in order
    and adds what follows from the rounds before; the answer stops as soon as it holds the query.
    """
    words = prompt.split()
    rules = []
    for i, word in enumerate(words):
        if word == ">":
            double = i >= 3 and words[i - 2] == "&"
            rules.append(({words[i - 1], words[i - 3]} if double else {words[i - 1]}, words[i + 1]))
    known = {words[i + 1] for i, word in enumerate(words) if word == "FACT"}
    query = words[words.index("QUERY") + 1]
    derived: list[str] = []
    while query not in known:
        new = [name for premises, name in rules if premises <= known and name not in known]
        if not new:
            break
        new = list(dict.fromkeys(new))  # two rules may conclude the same name
        derived += new[: new.index(query) + 1] if query in new else new
        known.update(new)
    return " ".join([*derived, "T" if query in known else "F"])
