"""Sub-claims of paper B that need no pretrained model, and their stored rows.

A run that never reaches a skill counts as reaching it one evaluation after its last.
"""

from __future__ import annotations

import math

import pandas as pd

from lib import results
from lib.analogy_sweeps import BASE, sensitivity_cells
from lib.claims import Effects, SubClaim
from lib.ledger.collapse import per_seed

NEVER = BASE.steps + BASE.eval_every  # one evaluation after the last


def dynamics(arm: str = "exact") -> pd.DataFrame:
    """All rows of an arm of the sweep `dynamics`. Raises ValueError when there are none."""
    frame = results.table("dynamics")
    if arm not in set(frame["arm"]):
        raise ValueError(f"no arm {arm!r}: run `python -m lib sweep dynamics`")
    return frame[frame["arm"] == arm].reset_index(drop=True)


def varied(name: str, value: str | None = None) -> pd.DataFrame:
    """The rows of the sweep `sensitivity` that vary one thing, values in the order of the sweep; one row
    per seed for a `value`.

    Raises ValueError when there are none.
    """
    frame = results.table("sensitivity").astype({"value": str})
    frame = frame[frame["varied"] == name]
    order = {cell.value: i for i, cell in enumerate(sensitivity_cells()) if cell.name == name}
    frame = frame.sort_values(["value", "seed"], key=lambda column: column.replace(order))
    if value is not None:
        frame = frame[frame["value"] == value].set_index("seed")
    if frame.empty:
        raise ValueError(f"no {name!r} at {value!r}: run `python -m lib sweep sensitivity`")
    return frame


def hits(frame: pd.DataFrame, measure: str, level: float = 0.9) -> pd.Series:
    """For each seed the first step at which a measure reaches `level`; missing if it never does."""
    reached = frame[frame[measure] >= level].groupby("seed")["step"].min()
    return reached.reindex(sorted(set(frame["seed"])))


def _gap(later: str, earlier: str) -> Effects:
    frame = dynamics()
    return numbers(hits(frame, f"acc_{later}") - hits(frame, f"acc_{earlier}"))


def numbers(effects: pd.Series) -> Effects:
    """Effects by seed; a seed without a number does not meet the precondition."""
    return {
        int(s): None if math.isnan(v) else float(v)
        for s, v in zip(effects.index, effects.to_numpy(dtype=float), strict=True)
    }


def _steps(name: str, value: str, kind: str = "ana_ood") -> pd.Series:
    return varied(name, value)[f"sustained_{kind}"].fillna(NEVER)


def _later(name: str, slow: str, fast: str) -> Effects:
    return per_seed(_steps(name, slow) - _steps(name, fast))


def right(name: str, value: str, kind: str = "ana_ood") -> Effects:
    return per_seed(varied(name, value)[f"last_{kind}"])


def wrong(name: str, value: str) -> Effects:
    return per_seed(1 - varied(name, value)["last_ana_ood"])


def _lost(name: str, value: str) -> Effects:
    frame = varied(name, value)
    return per_seed(frame["best_ana_ood"] - frame["last_ana_ood"])


def _worse(name: str, value: str, reference: str) -> Effects:
    return per_seed(varied(name, reference)["last_ana_ood"] - varied(name, value)["last_ana_ood"])


def at_first_analogy(column: str, arm: str = "exact") -> pd.DataFrame:
    """A measure at the start, at the first hit of held-out analogies and at the end, by seed."""
    frame = dynamics(arm)
    hit = hits(frame, "acc_ana_ood")
    table = frame.pivot(index="seed", columns="step", values=column)
    at_hit = [table.at[s, step] if pd.notna(step) else float("nan") for s, step in hit.items()]
    ends = {"start": table.iloc[:, 0], "end": table.iloc[:, -1]}
    return pd.DataFrame({**ends, "hit": pd.Series(at_hit, index=hit.index)})


def _energy_fall(matrix: str, arm: str = "exact") -> Effects:
    table = at_first_analogy(f"{matrix}_energy_held_out", arm)
    return numbers(table["start"] - table["hit"])


def _below_mismatched() -> Effects:
    held, other = (at_first_analogy(f"W_E_energy_{g}") for g in ("held_out", "mismatched"))
    return numbers(other["hit"] - held["hit"])


def _attention_rise() -> Effects:
    table = at_first_analogy("attention_source")
    return numbers(table["hit"] - table["start"])


def _parallel(group: str = "held_out") -> pd.Series:
    return at_first_analogy(f"W_E_parallelism_{group}")["end"]


def _norm_spread() -> Effects:
    """Largest over smallest norm at the first hit of analogy, over weight decays, by seed."""
    norms = varied("decay_adam_l2").pivot(index="seed", columns="value", values="norm_at_hit")
    return numbers(norms.max(axis=1) / norms.min(axis=1))


_HIT = "held-out analogies reach accuracy .9"

B1 = (
    SubClaim(
        "B1.a",
        "steps from memorised to held-out compositions right (accuracy .9)",
        10.0,
        lambda: _gap("comp_ood", "comp_id"),
    ),
    SubClaim(
        "B1.b",
        "steps from held-out compositions to held-out analogies right",
        10.0,
        lambda: _gap("ana_ood", "comp_ood"),
    ),
)
B2 = (
    SubClaim(
        "B2.a",
        "steps until analogy lasts: 20 entities minus 10",
        20.0,
        lambda: _later("entities", "20", "10"),
    ),
    SubClaim(
        "B2.b", "the same: 25 entities minus 15", 20.0, lambda: _later("entities", "25", "15")
    ),
)
B3 = (
    SubClaim(
        "B3.a",
        "14 relations: share of held-out analogies wrong at the end",
        0.5,
        lambda: wrong("relations", "14/10000"),
    ),
    SubClaim(
        "B3.b",
        "210 relations: share right at the end",
        0.8,
        lambda: right("relations", "210/10000"),
    ),
    SubClaim(
        "B3.c",
        "210 relations: best share right during training minus last (it comes and goes)",
        0.2,
        lambda: _lost("relations", "210/10000"),
    ),
)
B4 = (
    SubClaim("B4.a", "nine tenths held out: share wrong", 0.5, lambda: wrong("ana_ood", "0.90")),
    SubClaim("B4.b", "one third held out: share right", 0.8, lambda: right("ana_ood", "0.33")),
)
B5 = (
    SubClaim(
        "B5.a",
        "Adam with L2, steps until analogy lasts: decay 0 minus 1e-2",
        20.0,
        lambda: _later("decay_adam_l2", "0", "0.01"),
    ),
    SubClaim("B5.b", "decay 1: share of analogies wrong", 0.5, lambda: wrong("decay_adam_l2", "1")),
    SubClaim(
        "B5.c",
        "decay 1: share of held-out compositions right",
        0.9,
        lambda: right("decay_adam_l2", "1", "comp_ood"),
    ),
    SubClaim(
        "B5.d",
        "AdamW, steps until analogy lasts: decay 0 minus 10",
        20.0,
        lambda: _later("decay_adamw", "0", "10"),
    ),
    SubClaim(
        "B5.e",
        "AdamW, decay 100: share of analogies wrong",
        0.5,
        lambda: wrong("decay_adamw", "100"),
    ),
)
B6 = (
    SubClaim(
        "B6.a",
        "steps until analogy lasts: batch 16 minus 256",
        100.0,
        lambda: _later("batch", "16", "256"),
    ),
)
B7 = (
    SubClaim("B7.a", "width 512: share of analogies wrong", 0.5, lambda: wrong("width", "512")),
    SubClaim("B7.b", "three layers: share of analogies wrong", 0.5, lambda: wrong("depth", "3")),
    SubClaim(
        "B7.c",
        "three layers, lr 1e-4, decay 1e-2: share right",
        0.8,
        lambda: right("depth_3", "0.0001/0.01"),
    ),
)
B8 = (
    SubClaim(
        "B8.a",
        "fall of the energy of held-out pairs from the start to the first time analogies are right",
        0.5,
        lambda: _energy_fall("W_E"),
        _HIT,
    ),
    SubClaim(
        "B8.b",
        "at that time: energy of mismatched pairs minus that of held-out pairs",
        0.2,
        _below_mismatched,
        _HIT,
    ),
    SubClaim(
        "B8.c",
        "the same as B8.a for the input matrix of an untied model",
        0.5,
        lambda: _energy_fall("W_E", "untied"),
        _HIT,
    ),
)
B9 = (
    SubClaim(
        "B9.a",
        "rise of the functor's attention to the source until analogies are first right",
        0.05,
        _attention_rise,
        _HIT,
    ),
)
B10 = (
    SubClaim(
        "B10.a",
        "mean cosine of e_t - e_s and f at the end, held-out pairs",
        0.5,
        lambda: numbers(_parallel()),
    ),
    SubClaim(
        "B10.b",
        "the same minus that of mismatched pairs",
        0.05,
        lambda: numbers(_parallel() - _parallel("mismatched")),
    ),
)
B11 = (
    SubClaim(
        "B11.a",
        "norm of entity rows when analogies are first right: largest over smallest across decays",
        1.5,
        _norm_spread,
        _HIT,
    ),
)
B15 = (
    SubClaim(
        "B15.a",
        "share of held-out analogies right: true isomorphism minus four fifths of relations rewired",
        0.2,
        lambda: _worse("noise", "0.8", "0"),
    ),
    SubClaim("B15.b", "two functors: share right", 0.8, lambda: right("functors", "2")),
    SubClaim(
        "B15.c",
        "share right: functor named minus functor shown by an example",
        0.2,
        lambda: per_seed(
            varied("functors", "1")["last_ana_ood"] - varied("implicit", "yes")["last_ana_ood"]
        ),
    ),
)
B18 = (
    SubClaim(
        "B18.a",
        "share of entities whose nearest row in the other category is their partner, at the end",
        0.8,
        lambda: numbers(at_first_analogy("W_E_matched")["end"]),
    ),
)
