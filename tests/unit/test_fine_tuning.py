"""Fine-tuning on tiny models with random weights, against transformers and loops."""

import importlib.util
import string

import pytest
import torch
import torch.nn.functional as F

from lib import fine_tuning
from lib.fine_tuning import Batch, TuningConfig, accuracy, answer_logits, batch_of, fine_tune
from lib.generators import stream
from lib.generators.logic import LogicConfig
from lib.generators.prompts import RELATION_NAMES, WORDS, PromptConfig
from lib.language_models import load
from tests.unit import tiny

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="needs the extra `models`"
)
SPECIALS = [word.strip() for word in fine_tuning.SPECIALS]


@pytest.fixture(scope="module", params=["gemma2", "gemma3"])
def folder(request, tmp_path_factory):
    names = [*tiny.SPECIALS, ".", "is", "to", *SPECIALS]
    names += [*string.ascii_uppercase, *WORDS, *RELATION_NAMES]
    where = tmp_path_factory.mktemp(request.param)
    tiny.save(where, request.param, names, len(names) + 3, layers=2, window=8)
    return where


@pytest.fixture
def model(folder):
    return load(folder)


LOGIC = TuningConfig(lr=1e-3, batch=4, steps=4, eval_every=2, eval_problems=6, seed=3)
ANALOGY = TuningConfig(task=PromptConfig(entities=3, shown=1, alphabet="words"), batch=4)


def test_logic_problems_in_the_models_tokens(model):
    batch = batch_of(model, LOGIC, 5, stream(0, "x"))
    problems = fine_tuning.logic.sample(LOGIC.task, 5, stream(0, "x"))
    words = dict(zip(fine_tuning.logic.SPECIALS, SPECIALS, strict=True))
    for row, mask, tokens in zip(*batch, problems.tokens, strict=True):
        said = model.tokenizer.convert_ids_to_tokens(row.tolist())
        letters = dict(zip(LOGIC.task.seen, string.ascii_uppercase, strict=True))
        right = [
            letters[i] if i in letters else words[fine_tuning.logic.SPECIALS[i]]
            for i in tokens.tolist()
        ]
        assert said == ["<bos>", *right]
        assert mask.nonzero().flatten().tolist() == list(range(len(said) - 4, len(said)))


def test_analogies_with_their_answers(model):
    batch = batch_of(model, ANALOGY, 6, stream(0, "x"))
    prompts = fine_tuning.analogy_prompts(ANALOGY.task, 6, stream(0, "x"))
    for row, mask, prompt in zip(*batch, prompts, strict=True):
        ids = model.tokenizer.encode(prompt.text + prompt.answer, add_special_tokens=False)
        assert row[: len(ids) + 1].tolist() == [2, *ids]
        (place,) = mask.nonzero().flatten().tolist()
        assert model.tokenizer.decode(row[place]) == prompt.answer.strip()
        assert place == len(ids)


@pytest.mark.parametrize("config", [LOGIC, ANALOGY], ids=["logic", "analogy"])
def test_logits_and_accuracy_are_those_of_transformers(model, config):
    batch = batch_of(model, config, 20, stream(0, "x"))
    hf = model.bridge.original_model
    with torch.no_grad():
        got = answer_logits(model, batch)
        full = [hf(row[None]).logits[0] for row in batch.tokens]
        unpadded = [
            hf(row[None, : int(mask.nonzero().max()) + 1]).logits[0]
            for row, mask in zip(*batch, strict=True)
        ]
    wanted = torch.cat([f[:-1][m[1:]] for f, m in zip(full, batch.answer, strict=True)])
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    bare = torch.cat([u[:-1][m[1 : len(u)]] for u, m in zip(unpadded, batch.answer, strict=True)])
    torch.testing.assert_close(got, bare, atol=1e-5, rtol=1e-5)
    # let about half of the last tokens be right
    tokens, best = batch.tokens.clone(), got.argmax(dim=-1)
    last = [int(m.nonzero().max()) for m in batch.answer]
    ends = torch.tensor([int(m.sum()) for m in batch.answer]).cumsum(0) - 1
    for i in range(0, 20, 2):
        tokens[i, last[i]] = best[ends[i]]
    shares = accuracy(model, Batch(tokens, batch.answer))
    hits = [bool(best[e] == t[p]) for e, t, p in zip(ends, tokens, last, strict=True)]
    assert shares["last"] == sum(hits) / 20 >= 0.5
    if config is ANALOGY:
        assert shares["whole"] == shares["last"] and shares["names"] == 1.0


def test_first_step_is_that_of_adamw_on_the_answers(model, folder):
    other = load(folder).bridge.original_model
    fine_tune(model, TuningConfig(lr=1e-3, batch=4, steps=1, eval_problems=2, seed=3))
    batch = batch_of(model, LOGIC, 4, stream(3, "batch", 0))
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3, weight_decay=0.01)
    labels = batch.tokens.masked_fill(~batch.answer, -100)
    logits = other(batch.tokens).logits
    F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    optimizer.step()
    trained = dict(model.bridge.original_model.named_parameters())
    for name, value in other.named_parameters():
        # Adam turns rounding in a gradient near zero into a step of either sign
        assert (trained[name] - value).abs().mean() < 1e-5, name
    assert model.tied


def test_rows_steps_and_repeatability(model, folder):
    rows = fine_tune(model, LOGIC)
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[0].keys() == {"step", "loss", "whole", "names", "last"}
    again = fine_tune(load(folder), LOGIC)
    assert [r["loss"] for r in again[1:]] == pytest.approx([r["loss"] for r in rows[1:]])
    other = fine_tune(load(folder), TuningConfig(**{**vars(LOGIC), "seed": 4}))
    assert other[1]["loss"] != pytest.approx(rows[1]["loss"])


def test_it_learns(model):
    config = TuningConfig(lr=3e-3, steps=30, eval_every=30, eval_problems=4)
    first, last = fine_tune(model, TuningConfig(**{**vars(config), "eval_every": 15}))[1:]
    assert last["loss"] < first["loss"] - 0.3


def test_it_stops_when_solved_twice_in_a_row_unless_watched(model, folder, monkeypatch):
    shares = iter([0.0, 0.95, 0.5, 0.95, 0.9, 0.0, 0.0])
    monkeypatch.setattr(fine_tuning, "accuracy", lambda *_: {"whole": next(shares)})
    config = TuningConfig(batch=2, steps=12, eval_every=2, eval_problems=2)
    assert [row["step"] for row in fine_tune(model, config)] == [0, 2, 4, 6, 8]
    monkeypatch.setattr(fine_tuning, "accuracy", lambda *_: {"whole": 1.0})
    watched = fine_tune(load(folder), config, lambda step: [{"depth": d} for d in range(2)])
    assert [(r["step"], r["depth"]) for r in watched[-3:]] == [(10, 1), (12, 0), (12, 1)]


def test_loss_that_explodes_is_one_clear_error(model):
    with torch.no_grad():
        model.W_E.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="step 0: lower lr"):
        fine_tune(model, LOGIC)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("symbols", "leters", "unknown kind of symbols 'leters'; nearest: letters"),
        ("treatment", "meancov", "nearest: mean_cov"),
        ("batch", 0, "at least 1"),
        ("steps", -1, "steps at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(field, value, says):
    with pytest.raises(ValueError, match=says):
        TuningConfig(**{field: value})


def test_word_without_a_token_is_refused(model, monkeypatch):
    monkeypatch.setattr(fine_tuning, "SPECIALS", (" > >", *fine_tuning.SPECIALS[1:]))
    with pytest.raises(ValueError, match="no single token for one of  > >"):
        batch_of(model, LOGIC, 2, stream(0, "x"))


def test_default_task_has_26_names():
    assert TuningConfig().task == LogicConfig(n_seen=26, n_unseen=6)
