"""Cells of the experiments on language models, run on a tiny model: rows, columns, seeds, nothing left changed."""

import dataclasses
import importlib.util
import json
import re
import string

import pytest
import torch

from lib import fine_tuning, model_sweeps, relation_sweeps, relations
from lib.fine_tuning import TuningConfig
from lib.generators.prompts import RELATION_NAMES, WORDS, PromptConfig, word_pairs
from lib.language_models import load
from lib.model_sweeps import InContext, Induction, Teaching, TokenRows
from lib.relation_sweeps import Relation
from lib.results import STORE
from lib.sweeps import SWEEPS

needs_lens = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="needs the extra `models`"
)
RELATED = [w for p in word_pairs() if p.relation in ("capital", "third_person") for w in p[1:]]
NAMES = [
    *("<pad>", "<eos>", "<bos>", "<unk>"),
    *[f"<unused{i}>" for i in range(30)],
    *string.ascii_uppercase,
    *(word.strip() for word in fine_tuning.SPECIALS),
    *WORDS,
    *RELATION_NAMES,
    *("The", "word", ":", "is", "to", "."),
    *RELATED,
]
NAMES = list(dict.fromkeys(NAMES))
PATTERNS = json.loads((STORE / "dictionary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(save_model, tmp_path_factory):
    made = tmp_path_factory.mktemp("tiny")
    save_model(made, "gemma3", NAMES, len(NAMES), lambda _, W: torch.randn_like(W))
    yield str(made)
    model_sweeps.model_of.cache_clear()


def known(rows):
    """One set of columns, all in the data dictionary."""
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    unknown = [c for c in rows[0] if not any(re.fullmatch(p, c) for p in PATTERNS)]
    assert not unknown, unknown
    return rows


def weights(folder):
    return model_sweeps.model_of(folder, "cpu").W_E.detach().clone()


@needs_lens
def test_induction(folder):
    before = weights(folder)
    cell = Induction("letters", "fresh", 10, folder, sequences=3, lengths=(4, 6))
    rows = known(model_sweeps.run_induction(cell)[0])
    assert [row["length"] for row in rows] == [4, 6]
    assert rows == model_sweeps.run_induction(cell)[0]
    other = model_sweeps.run_induction(dataclasses.replace(cell, seed=11))[0]
    assert other[0]["attention_layer_0"] != rows[0]["attention_layer_0"]
    assert torch.equal(weights(folder), before)


@needs_lens
def test_token_rows(folder, monkeypatch):
    monkeypatch.setattr(
        model_sweeps, "SETS", (("letters", "none"), ("words", "none"), ("unused", "none"))
    )
    rows = known(model_sweeps.run_rows_of_tokens(TokenRows(10, folder))[0])
    named = {row["symbols"]: row for row in rows}
    assert set(named) == {"letters", "words", "unused", "all unused", "as many used"}
    assert named["all unused"]["n"] == named["as many used"]["n"] == 30
    x = weights(folder)[4:34]
    x = x / x.norm(dim=1, keepdim=True)
    pairs = (x @ x.T)[*torch.triu_indices(30, 30, offset=1)]
    assert named["all unused"]["cosine"] == pytest.approx(float(pairs.mean()), abs=1e-5)


@needs_lens
def test_in_context(folder):
    cell = InContext(model_sweeps.BASE, 10, folder, prompts=8, probe=True)
    rows = known(model_sweeps.run_in_context(cell)[0])
    assert [row["depth"] for row in rows] == [0, 1, 2]
    assert {row["prompt"] for row in rows} == {"base"}
    assert len({row["correlation_energy"] for row in rows}) == 1
    plain = known(model_sweeps.run_in_context(dataclasses.replace(cell, probe=False))[0])
    assert tuple(plain[0]) == tuple(rows[0]) and plain[0]["probe"] != plain[0]["probe"]
    assert plain[1]["energy"] == rows[1]["energy"]


@needs_lens
def test_tuning_and_teaching_start_from_a_fresh_model(folder):
    tuning = TuningConfig(model=folder, batch=2, steps=2, eval_every=1, eval_problems=2, seed=10)
    one = known(model_sweeps.run_tuning(tuning)[0])
    assert one[1:] == model_sweeps.run_tuning(tuning)[0][1:]
    task = PromptConfig(entities=3, shown=1, alphabet="words")
    cell = Teaching(dataclasses.replace(tuning, task=task), prompts=3)
    rows = known(model_sweeps.run_teaching(cell)[0])
    where = [(row["step"], row["alphabet"], row["depth"]) for row in rows]
    assert where == [(s, a, d) for s in range(3) for a in ("words", "letters") for d in range(3)]
    fresh = load(folder).W_E
    assert torch.equal(weights(folder), fresh)


@needs_lens
@pytest.mark.parametrize("name", relation_sweeps.RELATION_SWEEPS)
def test_relations(folder, name, monkeypatch):
    monkeypatch.setattr(relation_sweeps, "DEPTHS", (0, 1, 2))
    monkeypatch.setattr(relations, "DOSES", (0.0, 1.0))
    _, run = relation_sweeps.RELATION_SWEEPS[name]
    cell = Relation("capital", 10, folder)
    rows = known(run(cell)[0])
    assert {row["relation"] for row in rows} == {"capital"}
    assert str(rows) == str(run(cell)[0])


def test_cells_differ_and_cover_what_the_ledger_asks_for():
    for name in ("token_rows", "induction", "in_context", "tuning", "teaching"):
        cells = SWEEPS[name][0]()
        assert len(set(cells)) == len(cells)
    seeds = {cell.seed for cell in SWEEPS["tuning"][0]()}
    assert len(SWEEPS["tuning"][0]()) == len(seeds) * len(model_sweeps.TUNED)
    bases = [c for c in SWEEPS["in_context"][0]() if c.probe]
    assert len(bases) == len({c.seed for c in SWEEPS["in_context"][0]()}) == 5
