"""Verdicts follow from effects; the table says when it is stale; the ledger is whole."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import claims, results
from lib.claims import Claim, SubClaim
from lib.ledger import LEDGER

ALL, SOME, NONE, CANNOT = [1.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0], [0.0] * 5, [None] * 5


def sub(effects, id="X1.a", smallest=0.5, **settings):
    return SubClaim(id, "a measure", smallest, lambda: dict(enumerate(effects)), **settings)


def claim(*effects, id="X1"):
    subs = tuple(sub(e, f"{id}.{letter}") for e, letter in zip(effects, "abcdef"))
    return Claim(id, "ours", "something holds", "unseen/some_chapter", subs)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (8, 10, 0.490, 0.943),
        (0, 10, 0.0, 0.278),
        (10, 10, 0.722, 1.0),
        (5, 10, 0.237, 0.763),
        (1, 1, 0.207, 1.0),
        (90, 100, 0.826, 0.945),
    ],
)
def test_known_wilson_intervals(k, n, low, high):
    assert claims.wilson(k, n) == pytest.approx((low, high), abs=6e-4)


@given(st.integers(1, 200), st.data())
def test_wilson_bounds_solve_the_score_equation(n, data):
    k = data.draw(st.integers(0, n))
    low, high = claims.wilson(k, n)
    assert 0 <= low <= k / n + 1e-12 and k / n - 1e-12 <= high <= 1
    for p in (low, high):
        if 1e-9 < p < 1 - 1e-9:
            assert abs(k / n - p) == pytest.approx(1.96 * math.sqrt(p * (1 - p) / n))


@given(st.integers(1, 200), st.data())
def test_wilson_mirrors(n, data):
    k = data.draw(st.integers(0, n))
    low, high = claims.wilson(k, n)
    assert claims.wilson(n - k, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("k", "n"), [(0, 0), (3, 2), (-1, 4)])
def test_impossible_counts_are_refused(k, n):
    with pytest.raises(ValueError, match="need 0 <= k <= n and n > 0"):
        claims.wilson(k, n)


@pytest.mark.parametrize(
    ("effects", "passes"),
    [
        (ALL, True),
        (NONE, False),
        (SOME, False),
        ([1.0, 1.0, 1.0, 1.0, 0.0], True),  # four of five is .8
        ([1.0, 1.0, 1.0, 0.0, 0.0], False),
        ([0.5] * 5, True),  # the smallest effect counts
        ([0.4999] * 5, False),
        ([-1.0] * 5, False),  # the wrong direction
        (CANNOT, None),
        ([], None),
        ([1.0, 1.0, 1.0, None, None], True),
        ([0.0, 0.0, 0.0, None, None], False),
        ([1.0, 1.0, None, None, None], None),
        ([1.0, 1.0, None, None], True),  # half meet the precondition: not fewer than half
    ],
    ids=str,
)
def test_a_subclaim_is_judged(effects, passes):
    assert claims.judge(sub(effects)).passes is passes


def test_the_share_of_seeds_can_be_set():
    assert claims.judge(sub(SOME, share=0.4)).passes
    assert not claims.judge(sub([1.0] * 9 + [0.0], share=1.0)).passes


def test_ten_seeds_of_which_eight_show_it_pass():
    """0.8 x 10 in floating point is no reason to fail."""
    for n in range(5, 101, 5):
        assert claims.judge(sub([1.0] * (n * 4 // 5) + [0.0] * (n // 5))).passes


def test_an_outcome_counts_and_spreads():
    outcome = claims.judge(sub([0.9, 0.1, None, 0.6, 0.7]))
    assert (outcome.k, outcome.n, outcome.unjudged) == (3, 4, 1)
    assert (outcome.low, outcome.median, outcome.high) == pytest.approx((0.1, 0.65, 0.9))


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ([ALL], "reproduced"),
        ([ALL, ALL], "reproduced"),
        ([ALL, NONE], "reproduced with a condition"),
        ([ALL, CANNOT], "reproduced with a condition"),
        ([NONE, CANNOT, ALL], "reproduced with a condition"),
        ([NONE], "not reproduced"),
        ([NONE, SOME], "not reproduced"),
        ([CANNOT], "not at this scale"),
        ([NONE, CANNOT], "not at this scale"),
        ([], "not tested"),
    ],
    ids=str,
)
def test_the_verdict_follows(effects, said):
    verdict, outcomes = claims.verdict(claim(*effects))
    assert verdict == said
    assert verdict in claims.VERDICTS
    assert [o.id for o in outcomes] == [f"X1.{letter}" for letter in "abc"[: len(effects)]]


def test_a_check_is_run_once_for_one_verdict():
    calls = []

    def effects():
        calls.append(1)
        return {0: 1.0}

    claims.verdict(Claim("X1", "ours", "s", "c", (SubClaim("X1.a", "m", 0.5, effects),)))
    assert len(calls) == 1


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A place for verdicts and a README of one's own."""
    monkeypatch.setattr(claims, "STORED", tmp_path / "verdicts.json")
    readme = tmp_path / "README.md"
    text = f"# Title\n\nbefore\n{claims.MARKERS[0]}\nold table\n{claims.MARKERS[1]}\nafter — ü\n"
    readme.write_text(text, encoding="utf-8")
    return readme


def test_what_was_just_written_is_not_stale(stored):
    ledger = [claim(ALL), claim(NONE, id="X2"), claim(CANNOT, id="X3"), claim(id="X4")]
    claims.write(ledger, stored)
    assert claims.stale(ledger) == []
    assert json.loads(claims.STORED.read_text(encoding="utf-8")) == claims.all_verdicts(ledger)


@pytest.mark.parametrize(
    ("ledger", "ids"),
    [
        ([claim(NONE), claim(ALL, id="X2")], ["X1"]),
        ([claim(ALL), claim(CANNOT, id="X2")], ["X2"]),
        ([claim(ALL)], ["X2"]),
        ([claim(ALL), claim(ALL, id="X2"), claim(id="X3")], ["X3"]),
        ([claim([1.0] * 4 + [0.9]), claim(ALL, id="X2")], []),  # same median, same counts
        ([claim([0.9] * 5), claim(ALL, id="X2")], ["X1"]),  # the numbers moved
    ],
    ids=["verdict", "cannot", "gone", "new", "same", "numbers"],
)
def test_a_changed_verdict_is_stale(stored, ledger, ids):
    claims.write([claim(ALL), claim(ALL, id="X2")], stored)
    assert claims.stale(ledger) == ids


def test_missing_verdicts_name_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m lib claims --write"):
        claims.stale([claim(ALL)], tmp_path / "verdicts.json")


def test_stored_verdicts_are_plain_json(stored):
    claims.write([claim(CANNOT), claim(ALL, id="X2")], stored)
    text = claims.STORED.read_text(encoding="utf-8")
    assert "NaN" not in text
    assert json.loads(text)["X1"]["checks"]["X1.a"]["median"] is None


def test_only_what_stands_between_the_markers_is_replaced(stored):
    claims.write([claim(ALL)], stored)
    text = stored.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nbefore\n") and text.endswith("\nafter — ü\n")
    assert "old table" not in text
    assert text.count("something holds") == 1
    assert claims.in_readme([claim(ALL)], text) == text  # a second time changes nothing


@pytest.mark.parametrize("text", ["", "no markers", claims.MARKERS[0], claims.MARKERS[1]])
def test_a_readme_without_markers_is_refused_with_a_message(text):
    with pytest.raises(ValueError, match="claims -->"):
        claims.in_readme([claim(ALL)], text)


def test_the_table_has_a_row_and_a_link_for_each_claim():
    table = claims.markdown([claim(ALL), Claim("X2", "B", "more holds", why_not="later")], "up/")
    first, second = table.splitlines()[2:]
    assert first.startswith("| X1 | something holds | [")
    assert "(up/unseen/some_chapter.ipynb)" in first and "| reproduced |" in first
    assert second == "| X2 | more holds | to come | not tested |"


def test_the_evidence_shows_seeds_interval_and_spread():
    text = claims.evidence(claim([1.0] * 8 + [0.0, 0.0], CANNOT))
    first, second = text.splitlines()[2:]
    assert "8 of 10 [0.49, 0.94]" in first and "1 [0, 1]" in first
    assert first.endswith("| yes |")
    assert "5 not judged (precondition: none)" in second and second.endswith("| cannot be judged |")


def test_no_cell_of_the_evidence_is_no_number():
    assert "nan" not in claims.evidence(claim(CANNOT))


IDS = [f"A{i}" for i in range(1, 16)] + [f"B{i}" for i in range(1, 19)]


def test_the_ledger_holds_every_claim_of_both_papers_once():
    assert [c.id for c in LEDGER if c.source in ("A", "B")] == IDS
    assert len({c.id for c in LEDGER}) == len(LEDGER)


IN_PART = {"A13", "B12", "B13"}  # other models than ours cannot be had


@pytest.mark.parametrize("entry", LEDGER, ids=lambda c: c.id)
def test_an_entry_is_either_tested_or_says_why_not(entry):
    assert entry.source in ("A", "B", "ours")
    assert entry.source == "ours" or entry.id[0] == entry.source
    if entry.id in IN_PART:
        assert entry.subclaims and entry.why_not
    else:
        assert bool(entry.subclaims) != bool(entry.why_not)
    assert bool(entry.chapter) or not entry.subclaims
    assert entry.statement and not entry.statement.endswith(".") and "|" not in entry.statement


@pytest.mark.parametrize("entry", [c for c in LEDGER if c.subclaims], ids=lambda c: c.id)
def test_subclaims_belong_to_their_claim(entry):
    letters = "abcdefgh"[: len(entry.subclaims)]
    assert [s.id for s in entry.subclaims] == [f"{entry.id}.{letter}" for letter in letters]
    for s in entry.subclaims:
        assert s.smallest > -1e-5 and 0.5 < s.share <= 1
        assert s.measure and "|" not in s.measure + s.precondition


def test_these_claims_are_tested():
    assert {"A1", "A2", "A3", "A4", "A5"} <= {c.id for c in LEDGER if c.subclaims}


def test_verdicts_lie_beside_the_results():
    assert claims.STORED.parent == results.STORE
