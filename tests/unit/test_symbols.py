"""Symbols of a small tied model: sets, treated rows, and induction against transformers' own forward pass."""

import importlib.util
import string
from types import SimpleNamespace

import pytest
import torch

from lib import repair, symbols
from lib.generators.prompts import WORDS
from lib.language_models import LanguageModel, load, plain
from lib.symbols import SIZE, induction, rows_replaced, symbol_set, treatment

LETTERS = list(string.ascii_uppercase)
LOW, HIGH = [f"<unused{i}>" for i in range(30)], [f"<unused{i}>" for i in range(30, 60)]
RARE = [f"▁rare{c}" for c in string.ascii_lowercase] + ["▁two", "Three", "▁four4"]
NAMES = ["<pad>", "<eos>", "<bos>", "<unk>", *LOW, *LETTERS, *WORDS, *RARE, *HIGH]
ID = {name: i for i, name in enumerate(NAMES)}
HIDDEN = [ID[name] for name in RARE[:3]]
KEEPING = [method for method in symbols.TREATMENTS if method not in ("none", "resized", "swapped")]
needs_lens = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="needs the extra `models`"
)


def rows(_, W):
    """Unused rows (and three others) about one direction, all rows of different lengths."""
    g = torch.Generator().manual_seed(1)
    W = torch.randn(W.shape, generator=g)
    near = [ID[name] for name in LOW + HIGH] + HIDDEN
    W[near] = 3 * W[0] + 0.5 * W[near]
    W[0] = W[1] + W[2]
    return W / W.norm(dim=1, keepdim=True) * (1 + torch.rand(len(W), 1, generator=g))


@pytest.fixture(scope="module")
def folder(save_model, tmp_path_factory):
    made = tmp_path_factory.mktemp("gemma3")
    hf = save_model(made, "gemma3", NAMES, len(NAMES), rows)
    with torch.no_grad():
        hf.model.norm.weight.fill_(-2)  # 1 - 2: a symbol does not simply predict itself
    hf.save_pretrained(made)
    return str(made)


@pytest.fixture(scope="module")
def hf(folder):
    return plain(folder)[0].eval()


def holder(hf, tokenizer, name, tied=True):
    """A `LanguageModel` as far as rows go, without TransformerLens."""
    ends = [SimpleNamespace(original_component=hf.get_input_embeddings())] * 2
    if not tied:
        ends[1] = SimpleNamespace(original_component=torch.nn.Linear(32, len(NAMES), bias=False))
    return LanguageModel(SimpleNamespace(embed=ends[0], unembed=ends[1]), tokenizer, name)


@pytest.fixture
def model(folder):
    return holder(*plain(folder), folder)


@pytest.fixture(scope="module")
def bridged(folder):
    pytest.importorskip("transformer_lens")
    return load(folder)


def ids(names):
    return [ID[name] for name in names]


# ---- sets ----


@pytest.fixture
def tokenizer(folder):
    return plain(folder)[1]


def test_letters_are_the_alphabet_for_every_seed(folder, tokenizer):
    for seed in (0, 1):
        assert symbol_set(folder, tokenizer, "letters", seed) == ids(LETTERS)


@pytest.mark.parametrize(
    ("kind", "among"),
    [
        ("words", WORDS),
        ("unused", LOW),
        ("unused_high", HIGH),
        ("random", set(NAMES) - {*LOW, *HIGH, *RARE[:3]}),
    ],
)
def test_sets_are_26_of_their_kind(folder, tokenizer, kind, among):
    chosen = symbol_set(folder, tokenizer, kind, 0)
    assert len(set(chosen)) == len(chosen) == SIZE and set(chosen) <= set(ids(among))
    assert symbol_set(folder, tokenizer, kind, 0) == chosen
    assert symbol_set(folder, tokenizer, kind, 1) != chosen


def test_late_tokens_are_used_lower_case_words(folder, tokenizer, monkeypatch):
    with pytest.raises(ValueError, match="has 0 tokens of kind 'late', 26 are needed"):
        symbol_set(folder, tokenizer, "late", 0)
    monkeypatch.setattr(symbols, "LATE", (ID[RARE[0]], ID[RARE[-1]] + 1))
    with pytest.raises(ValueError, match="has 24 tokens of kind 'late'"):  # 3 hidden, 2 not lower
        symbol_set(folder, tokenizer, "late", 0)
    monkeypatch.setattr(symbols, "SIZE", 24)
    assert set(symbol_set(folder, tokenizer, "late", 0)) == set(ids(RARE[3:27]))


def test_too_few_hidden_rows_and_unknown_kinds_are_refused(folder, tokenizer, monkeypatch):
    with pytest.raises(ValueError, match="tokens of kind 'hidden', 26 are needed"):
        symbol_set(folder, tokenizer, "hidden", 0)
    monkeypatch.setattr(symbols, "SIZE", len(HIDDEN))
    assert set(symbol_set(folder, tokenizer, "hidden", 0)) == set(HIDDEN)
    with pytest.raises(ValueError, match="nearest: letters"):
        symbol_set(folder, tokenizer, "leters", 0)


# ---- treatments ----


@pytest.mark.parametrize("method", KEEPING)
def test_treated_rows_are_new_and_as_long_as_before(folder, model, method):
    W, chosen = model.W_E.detach(), ids(LOW[:SIZE])
    before = W.clone()
    new = treatment(folder, W, chosen, method, 0)
    assert torch.equal(W, before) and new.shape == (SIZE, 32) and new.dtype == W.dtype
    torch.testing.assert_close(new.norm(dim=1), W[chosen].norm(dim=1))
    again, other = (treatment(folder, W, chosen, method, seed) for seed in (0, 1))
    assert torch.equal(new, again) and torch.equal(new, other) == (method == "stretched")
    cosine = torch.cosine_similarity(new, W[chosen])
    assert cosine.mean() < 0.95 if method == "stretched" else cosine.abs().mean() < 0.5


def test_draws_are_like_used_rows(folder, model):
    found, used = symbols.known_rows(folder)
    assert set(found.matrices["W_E"].hidden) >= set(HIDDEN)
    assert not set(used) & {*ids(LOW), *ids(HIGH), *HIDDEN}
    W, chosen = model.W_E.detach(), ids(LOW[:SIZE])
    drawn = repair.draw(
        *repair.moments(W, used), SIZE, "mean_cov", symbols.stream(4, "treatment mean_cov")
    )
    got = treatment(folder, W, chosen, "mean_cov", 4)
    torch.testing.assert_close(
        torch.cosine_similarity(got.double(), drawn), torch.ones(SIZE).double()
    )


def test_stretched_rows_are_what_was_their_own_five_times(folder, model):
    x = model.W_E.detach()[ids(LOW[:SIZE])].double().numpy()
    want = 5 * x - 4 * x.mean(axis=0)
    got = treatment(folder, model.W_E.detach(), ids(LOW[:SIZE]), "stretched", 0).double()
    cosine = torch.cosine_similarity(got, torch.from_numpy(want))
    torch.testing.assert_close(cosine, torch.ones(SIZE).double())


def test_resized_is_what_transformers_gives_added_tokens(folder, hf, model):
    state = torch.get_rng_state()
    got = treatment(folder, model.W_E.detach(), ids(LOW[:SIZE]), "resized", 5)
    assert torch.equal(torch.get_rng_state(), state)
    own, _ = plain(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        own.resize_token_embeddings(len(NAMES) + SIZE)
    torch.testing.assert_close(got, own.get_input_embeddings().weight[len(NAMES) :].detach())
    assert not torch.equal(
        got, treatment(folder, model.W_E.detach(), ids(LOW[:SIZE]), "resized", 6)
    )
    mean = hf.get_input_embeddings().weight.detach().mean(dim=0)
    assert torch.cosine_similarity(got, mean[None]).min() > 0.99  # they lie together themselves


@pytest.mark.parametrize(
    ("method", "says"),
    [("none", "draws no rows"), ("swapped", "draws no rows"), ("frseh", "nearest: fresh")],
)
def test_what_draws_nothing_is_refused(folder, model, method, says):
    with pytest.raises(ValueError, match=says):
        treatment(folder, model.W_E.detach(), [4, 5], method, 0)


@pytest.mark.parametrize("method", symbols.TREATMENTS)
def test_rows_come_back_bit_for_bit_also_after_a_failure(model, method):
    before, chosen = model.W_E.detach().clone(), ids(LOW[:SIZE])
    with rows_replaced(model, chosen, method, 0) as inside:
        assert inside is model
        changed = (model.W_E != before).any(dim=1).nonzero().flatten().tolist()
        want = set() if method == "none" else set(chosen)
        if method == "swapped":
            want |= set(symbol_set(model.name, model.tokenizer, "words", 0))
        assert set(changed) == want
    assert torch.equal(model.W_E, before) and model.W_E.requires_grad
    with pytest.raises(RuntimeError, match="inside"), rows_replaced(model, chosen, method, 0):
        raise RuntimeError("inside")
    assert torch.equal(model.W_E, before)
    with pytest.raises(ValueError), rows_replaced(model, chosen, "frseh", 0):
        pytest.fail("the body must not run")
    assert torch.equal(model.W_E, before)


def test_swapped_swaps_symbols_and_nouns(model):
    before, chosen = model.W_E.detach().clone(), ids(LOW[:SIZE])
    words = symbol_set(model.name, model.tokenizer, "words", 3)
    with rows_replaced(model, chosen, "swapped", 3):
        assert torch.equal(model.W_E[chosen], before[words])
        assert torch.equal(model.W_E[words], before[chosen])


def test_only_26_symbols_can_be_swapped(model):
    before = model.W_E.detach().clone()
    for some in (ids(LOW[:20]), ids(LOW)):
        with (
            pytest.raises(ValueError, match="26 symbols"),
            rows_replaced(model, some, "swapped", 0),
        ):
            pytest.fail("the body must not run")
    assert torch.equal(model.W_E, before)


def test_untied_model_is_refused(hf, folder, tokenizer):
    with (
        pytest.raises(ValueError, match="not tied: change W_E and W_U by hand"),
        rows_replaced(holder(hf, tokenizer, folder, tied=False), [4], "fresh", 0),
    ):
        pytest.fail("the body must not run")


# ---- induction ----


def by_loop(hf, text, chosen):
    """Each repeated symbol: does the logit of what followed it win; how much is looked at that place."""
    with torch.no_grad():
        out = hf(text, output_attentions=True)
    right, among, looks = [], [], []
    for row, line in enumerate(text.tolist()):
        assert line[0] == ID["<bos>"]
        for place, symbol in enumerate(line):
            if symbol not in line[:place]:
                continue
            first = line.index(symbol) + 1
            logits = out.logits[row, place].tolist()
            right.append(max(range(len(logits)), key=logits.__getitem__) == line[first])
            among.append(max(chosen, key=logits.__getitem__) == line[first])
            looks.append([a[row, :, place, first].tolist() for a in out.attentions])
    heads = torch.tensor(looks).mean(dim=0)  # layer, head
    return {
        "right": sum(right) / len(right),
        "among": sum(among) / len(among),
        **{f"attention_layer_{i}": float(h.max()) for i, h in enumerate(heads)},
    }, len(right)


@needs_lens
@pytest.mark.parametrize("length", [2, 5])
def test_induction_is_what_a_loop_over_transformers_finds(bridged, hf, monkeypatch, length):
    texts, chosen = [], ids(LETTERS[:6])
    real = symbols.run

    def keeps(model, text, *rest, **more):
        texts.append(text)
        return real(model, text, *rest, **more)

    monkeypatch.setattr(symbols, "run", keeps)
    generator = torch.Generator().manual_seed(2)
    # rows so long that symbols win over all other tokens now and then
    with torch.no_grad():
        before = bridged.W_E.clone()
        bridged.W_E[chosen] *= 4
        hf.get_input_embeddings().weight.copy_(bridged.W_E)
    try:
        got = induction(bridged, chosen, length, 40, generator)
        expected, asked = by_loop(hf, texts[0], chosen)
    finally:
        with torch.no_grad():
            bridged.W_E.copy_(before)
            hf.get_input_embeddings().weight.copy_(before)
    assert texts[0].shape == (40, 2 * length) and asked == 40 * (length - 1)
    assert set(texts[0][:, 1:].flatten().tolist()) <= set(chosen)
    assert len({tuple(line) for line in texts[0].tolist()}) > 15
    for line in texts[0].tolist():
        assert len(set(line[1 : length + 1])) == length
        assert line[length + 1 :] == line[1:length]
    assert got == pytest.approx(expected, abs=1e-5)
    assert 0 < got["among"] < 1 and 0 < got["right"] < 1
    assert len(got) == 4


@needs_lens
def test_rows_replaced_change_what_the_model_reads_and_says(bridged):
    chosen = ids(LETTERS)

    def asked():
        return induction(bridged, chosen, 8, 10, torch.Generator().manual_seed(0))

    before = asked()
    with rows_replaced(bridged, chosen, "fresh", 0):
        assert asked() != before
    assert asked() == before


@needs_lens
@pytest.mark.parametrize("length", [1, 7])
def test_impossible_lengths_are_refused(bridged, length):
    with pytest.raises(ValueError, match=f"length is {length}: 2 to 6 different symbols"):
        induction(bridged, ids(LETTERS[:6]), length, 3, torch.Generator())
