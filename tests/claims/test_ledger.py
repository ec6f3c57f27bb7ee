"""The ledger against what is stored: verdicts follow, tables are fresh, every number has a source."""

import csv
import json
import re

import pytest

from lib import claims, ledger, results
from lib.ledger.analogy import dynamics, hits
from lib.results import STORE
from lib.sweeps import SWEEPS

MANIFEST = results.manifest()
EXPERIMENTS = sorted(MANIFEST.get("runs", {}))


def test_stored_verdicts_still_follow():
    assert claims.stale(ledger.LEDGER) == [], "run `python -m lib claims --write`"


def test_the_readme_shows_the_same_table():
    text = claims.README.read_text(encoding="utf-8")
    assert claims.in_readme(ledger.LEDGER, text) == text, "run `python -m lib claims --write`"


@pytest.mark.parametrize("claim", [c for c in ledger.LEDGER if c.subclaims], ids=lambda c: c.id)
def test_each_subclaim_has_the_seeds_it_needs(claim):
    said, outcomes = claims.verdict(claim)
    assert said in claims.VERDICTS[:-1]
    assert all(outcome.n + outcome.unjudged >= 5 for outcome in outcomes)


# Registered, and not (all) run yet. This list only gets shorter: what is stored must leave it.
TO_COME = {"refresh", "price"}


def test_every_sweep_is_stored_whole_but_for_what_is_to_come():
    missing = set()
    for name, (cells, _) in SWEEPS.items():
        stored = results.load(name, missing_ok=True)
        keys = set() if stored is None else set(stored["config"])
        for cell in cells():
            if results.config_hash(cell) not in keys:
                missing.add(name)
    assert missing == TO_COME, "run `make results`, or take what is stored off the list"


def test_every_stored_file_matches_its_hash():
    assert {f"{name}.csv" for name in EXPERIMENTS} <= set(results.verify())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_provenance_is_complete(name):
    runs = MANIFEST["runs"][name]
    assert set(results.table(name)["config"]) == set(runs)
    for key, run in runs.items():
        assert {"config", "versions", "device", "threads", "seconds", "date"} <= set(run)
        assert results.config_hash(run["config"]) == key


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_column_is_in_the_data_dictionary(name):
    patterns = json.loads((STORE / "dictionary.json").read_text(encoding="utf-8"))
    with open(STORE / f"{name}.csv", encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    unknown = [c for c in columns if not any(re.fullmatch(p, c) for p in patterns)]
    assert not unknown


def test_arms_of_a_comparison_share_everything_else():
    """One architecture, data, steps and grid for all arms; what differs is what the arm says."""
    runs = [run["config"]["run"] for run in MANIFEST["runs"]["logic"].values()]
    free = {"policy", "optimiser", "lr", "embed_lr_scale", "weight_decay", "seed", "model"}
    shared = [{k: v for k, v in run.items() if k not in free} for run in runs]
    models = [{k: v for k, v in run["model"].items() if k not in {"tied", "copy"}} for run in runs]
    assert all(s == shared[0] for s in shared) and all(m == models[0] for m in models)


def test_results_stay_small_and_name_no_machine():
    files = [path for path in STORE.iterdir() if path.is_file() and path.suffix != ".lock"]
    assert sum(path.stat().st_size for path in files) < 25e6
    for path in files:
        if path.suffix in {".csv", ".json"}:
            assert not re.search(r"/(home|root|Users)/", path.read_text(encoding="utf-8")), (
                path.name
            )


def test_stand_ins_follow_the_exact_softmax():
    """Their median loss stays inside the exact seeds' range along the run, and so do their dates."""
    exact, other = (dynamics(arm) for arm in ("exact", "stand_ins"))
    for step in range(50, 501, 50):
        spread = exact[exact["step"] == step]["loss"]
        assert spread.min() <= other[other["step"] == step]["loss"].median() <= spread.max(), step
    for kind in ("comp_id", "comp_ood", "ana_id", "ana_ood"):
        dates = hits(exact, f"acc_{kind}")
        assert dates.min() <= hits(other, f"acc_{kind}").median() <= dates.max(), kind
