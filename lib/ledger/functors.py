"""Sub-claims on analogies in real models: made up in context (B12, B13, B14, B16), between words (C11);
and their stored rows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from lib import results
from lib.claims import Effects, SubClaim
from lib.generators.prompts import RELATIONS
from lib.ledger.collapse import per_seed
from lib.model_sweeps import DEFAULT, LLAMA
from lib.relation_sweeps import STEERED


def in_context(prompt: str = "base", model: str = DEFAULT) -> pd.DataFrame:
    """All rows of one kind of prompt (lib.model_sweeps.KINDS_OF_PROMPT), one a seed and depth."""
    frame = results.table("in_context")
    return frame[(frame["prompt"] == prompt) & (frame["model"] == model)]


def at_top(prompt: str, column: str, model: str = DEFAULT) -> pd.Series:
    """A column after the last block, by seed."""
    frame = in_context(prompt, model)
    return frame[frame["depth"] == frame["depth"].max()].set_index("seed")[column]


def _falls_as_it_rises(prompt: str, model: str = DEFAULT) -> Effects:
    return per_seed(-at_top(prompt, "correlation_energy", model))


def _beside_mismatched(prompt: str) -> Effects:
    frame = in_context(prompt)
    gap = frame["control_queried"] - frame["energy_queried"]
    return per_seed(gap.groupby(frame["seed"]).max())


def _above_chance(prompt: str, chance: float, model: str = DEFAULT) -> Effects:
    return per_seed(at_top(prompt, "among", model) - chance)


def _helps(prompt: str, plain: str) -> Effects:
    return per_seed(at_top(prompt, "among") - at_top(plain, "among"))


def _depths_between() -> Effects:
    """Depths from where a probe is right half of the time to where the lens is; None if never."""
    ahead: Effects = {}
    for seed, rows in in_context().sort_values("depth").groupby("seed"):
        first = {}
        for who in ("probe", "lens"):
            good = rows["depth"][rows[who] >= 0.5]
            first[who] = float(good.min()) if len(good) else None
        there = first["probe"] is not None and first["lens"] is not None
        ahead[int(str(seed))] = first["lens"] - first["probe"] if there else None  # type: ignore[operator]
    return ahead


ENERGY = (
    "correlation over depths of energy (unit vectors) and lens probability, mean over prompts, "
)
B12 = (
    SubClaim("B12.a", ENERGY + "sign turned", 0.5, lambda: _falls_as_it_rises("base")),
    SubClaim(
        "B12.b",
        "the same with energy of the streams as they are, sign not turned",
        0.2,
        lambda: per_seed(at_top("base", "correlation_energy_raw")),
    ),
    SubClaim(
        "B12.c",
        "energy of the queried source with wrong targets minus with its own, at the best depth",
        0.1,
        lambda: _beside_mismatched("base"),
    ),
    SubClaim(
        "B12.d",
        "share of answers that beat the other candidates, minus chance",
        0.3,
        lambda: _above_chance("base", 1 / 3),
    ),
)
B13 = (
    SubClaim(
        "B13.a", ENERGY + "SmolLM2, sign turned", 0.5, lambda: _falls_as_it_rises("base", LLAMA)
    ),
    SubClaim(
        "B13.b",
        "SmolLM2: share of answers that beat the other candidates, minus chance",
        0.3,
        lambda: _above_chance("base", 1 / 3, LLAMA),
    ),
    *(
        SubClaim(
            f"B13.{letter}",
            ENERGY + f"{n} entities, sign turned",
            0.5,
            lambda n=n: _falls_as_it_rises(f"{n} entities"),  # type: ignore[misc]
        )
        for letter, n in (("c", 2), ("d", 4), ("e", 5))
    ),
)
B14 = (
    SubClaim(
        "B14.d",
        "Gemma 3 270M: depth at which the lens is right half of the time, minus that of a probe",
        1.0,
        _depths_between,
        "both are right half of the time at some depth",
    ),
)
B16 = (
    SubClaim(
        "B16.a",
        "answers that beat the other candidates, letters: with an arithmetic short cut minus without",
        0.1,
        lambda: _helps("letters, short cut", "base"),
    ),
    SubClaim(
        "B16.b",
        "the same for digits",
        0.1,
        lambda: _helps("digits, short cut", "digits"),
    ),
    SubClaim(
        "B16.c",
        "answers that beat the other candidates, words: source and target share a token minus not",
        0.1,
        lambda: _helps("words, token shared", "words"),
    ),
)


ONE_TO_ONE = sorted(name for name, kind in RELATIONS.items() if kind == "one-to-one")


def in_embedding(direction: str = "mean difference") -> pd.DataFrame:
    """Rows of one direction: a pair each, of all relations."""
    frame = results.table("relations_embedding")
    return frame[frame["direction"] == direction]


def _per_relation(values: pd.Series, names: Iterable[str] = ONE_TO_ONE) -> Effects:
    """Relations take the place of seeds."""
    return {i: float(values[name]) for i, name in enumerate(names)}


def _shares(direction: str = "mean difference", column: str = "right") -> pd.Series:
    return in_embedding(direction).groupby("relation")[column].mean()


def steered(depth: int = 6, dose: float = 1.0) -> pd.DataFrame:
    """Steering at one depth and dose, a row a pair and direction; `gain` is that of log p, in nats."""
    frame = results.table("relations_steering")
    frame = frame[frame["depth"] == depth]
    keys = ["relation", "direction", "source"]
    plain = frame[frame["dose"] == 0].set_index(keys)["p"]
    found = frame[frame["dose"] == dose].set_index(keys)
    gain = (found["p"] / plain.reindex(found.index)).map(math.log)
    return found.assign(gain=gain).reset_index()


def _steers() -> Effects:
    gains = steered().groupby(["direction", "relation"])["gain"].mean()
    others = [name for name in STEERED if name not in ("capital", "opposite")]
    return _per_relation(gains["mean difference"] - gains["other relation"], others)


NEAREST = "share of targets nearest to e_s + f in the whole vocabulary, f from the other pairs"
C11 = (
    SubClaim("C11.a", f"one-to-one relations: {NEAREST}", 0.5, lambda: _per_relation(_shares())),
    SubClaim(
        "C11.b",
        "one-to-one relations: that share minus the one without f",
        0.3,
        lambda: _per_relation(_shares() - _shares("none")),
    ),
    SubClaim(
        "C11.c",
        "one-to-one relations: mean cosine of e_t - e_s with f, minus that with shuffled targets",
        0.1,
        lambda: _per_relation(
            _shares(column="parallelism") - _shares("shuffled", column="parallelism")
        ),
    ),
    # depth and dose were chosen on capitals (seed 0), which are left out
    SubClaim(
        "C11.d",
        "five one-to-one relations, f added at depth 6: gain of the target's log probability, minus the "
        "gain with another relation's f",
        0.7,
        _steers,
    ),
)
