"""The text: an honest split of files, a tokenizer of the training part alone, windows as they stand."""

import os
import random
from functools import lru_cache
from pathlib import Path

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import training
from lib.experiments import logic_run
from lib.generators import text

CONFIG = text.TextConfig(vocabulary=300, reserved=10, context=8)
FILES = {
    "train": [
        ("a.py", "alphabet = alphabet + 1  # alphabet, alphabet\n" * 20),
        ("b.py", "\tdef ∀é(x):\r\n\treturn x\n\n\n" * 10),
        ("empty.py", ""),
    ],
    "validation": [("c.py", "betamax(betamax, betamax)\x00\n" * 20)],
    "test": [("d.py", "gamma ∉ train\n" * 20)],
}
every_part = pytest.mark.parametrize("part", text.PARTS)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def small(monkeypatch):
    """A few short files instead of sympy; returns the list of parts that were read."""
    read = []

    def sources(part):
        read.append(part)
        return FILES[part]

    monkeypatch.setattr(text, "sources", sources)
    for name in ("trained_tokenizer", "encoded"):  # with caches of their own
        monkeypatch.setattr(text, name, lru_cache(getattr(text, name).__wrapped__))
    return read


def test_every_source_file_of_sympy_stands_in_exactly_one_part():
    root = Path(sympy.__file__).parent
    there = set()
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in ("tests", "benchmarks")]
        there |= {Path(folder, name).relative_to(root).as_posix() for name in names}
    there = {name for name in there if name.endswith(".py")}
    parts = [[path for path, _ in text.sources(part)] for part in text.PARTS]
    assert sorted(path for part in parts for path in part) == sorted(there)
    assert 0.7 < len(parts[0]) / len(there) < 0.9 and min(map(len, parts)) > 0.05 * len(there)


@every_part
def test_the_text_of_a_file_is_what_the_file_holds(part):
    root = Path(sympy.__file__).parent
    files = text.sources(part)
    assert [path for path, _ in files] == sorted(path for path, _ in files)
    for path, content in files:
        assert (root / path).read_bytes().decode("utf-8").replace("\r\n", "\n") == content
        assert "<file>" not in content  # it would be taken for a separator


@given(st.text(max_size=30))
def test_the_part_depends_on_the_path_alone(path):
    before = text.part_of(path)
    random.seed(path)
    torch.manual_seed(len(path))
    assert before in text.PARTS and text.part_of(path) == before


def test_one_path_in_ten_is_for_validation_and_one_for_testing():
    parts = [text.part_of(f"folder/file_{i}.py") for i in range(5000)]
    for part, share in zip(text.PARTS, (0.8, 0.1, 0.1), strict=True):
        assert abs(parts.count(part) / len(parts) - share) < 0.02
    for path, part in {
        "abc.py": "train",
        "core/symbol.py": "validation",
        "conftest.py": "test",
    }.items():
        assert text.part_of(path) == part  # another split would make the stored results wrong


def test_the_tokenizer_is_trained_on_the_training_part_alone(small):
    words = set(text.trained_tokenizer(300).get_vocab())
    assert set(small) == {"train"}
    assert "alphabet" in words and not any(
        "beta" in w or "gamma" in w for w in words - {"alphabet"}
    )


@every_part
def test_encoded_text_decodes_to_the_files_one_after_the_other(small, part):
    ids, tokenizer = text.encoded(300, part).tolist(), text.trained_tokenizer(300)
    assert ids[0] == 0 and ids.count(0) == len(FILES[part])
    pieces, rest = [], ids
    for at in [i for i, token in reversed(list(enumerate(ids))) if token == 0]:
        rest, piece = rest[:at], rest[at + 1 :]
        pieces.insert(0, tokenizer.decode(piece))
    assert [piece.encode() for piece in pieces] == [content.encode() for _, content in FILES[part]]


def test_the_same_files_give_the_same_tokens(small):
    first = text.encoded(300, "train")
    text.encoded.cache_clear()
    text.trained_tokenizer.cache_clear()
    assert torch.equal(text.encoded(300, "train"), first)


@every_part
def test_reserved_tokens_never_occur(small, part):
    assert text.encoded(300, part).max() < CONFIG.vocabulary
    assert set(CONFIG.seen) | set(CONFIG.unseen) == set(range(CONFIG.d_vocab))
    assert len(CONFIG.unseen) == 10 and not set(CONFIG.seen) & set(CONFIG.unseen)
    assert text.trained_tokenizer(300).get_vocab_size() <= CONFIG.vocabulary
    for windows in (text.sample(CONFIG, 500, seeded(), part), text.spread(CONFIG, 20, part)):
        assert windows.tokens.shape[1] == CONFIG.length == CONFIG.answer_length + 1
        assert not (windows.tokens >= CONFIG.unseen.start).any()


@every_part
def test_windows_are_stretches_of_their_part(small, part):
    ids = text.encoded(300, part).tolist()
    here = {tuple(ids[i : i + CONFIG.length]) for i in range(len(ids) - CONFIG.length + 1)}
    drawn = {tuple(w) for w in text.sample(CONFIG, 5000, seeded(1), part).tokens.tolist()}
    assert drawn == here  # the first and the last one included
    assert {tuple(w) for w in text.spread(CONFIG, 30, part).tokens.tolist()} <= here


def test_a_seed_is_a_data_set(small):
    first, again, other = (text.sample(CONFIG, 50, seeded(s), "train").tokens for s in (3, 3, 4))
    assert torch.equal(text.sample(CONFIG, 50, seeded(3)).tokens, first)  # training text by default
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_spread_windows_are_the_same_for_every_seed_and_cover_the_part(small):
    ids = text.encoded(300, "test")
    torch.manual_seed(1)
    once = text.spread(CONFIG, 5, "test").tokens
    torch.manual_seed(2)
    assert torch.equal(text.spread(CONFIG, 5, "test").tokens, once)
    assert torch.equal(once[0], ids[: CONFIG.length].long())
    assert torch.equal(once[-1], ids[-CONFIG.length :].long())
    middle = (len(ids) - CONFIG.length) // 2
    assert torch.equal(once[2], ids[middle : middle + CONFIG.length].long())


@pytest.mark.parametrize("ids", [CONFIG.seen, CONFIG.unseen, range(40, 44)])
def test_repeated_shows_different_tokens_and_then_the_same_again(ids):
    tokens = text.repeated(ids, 4, 300, seeded())
    first, second = tokens[:, :4], tokens[:, 4:]
    assert tokens.shape == (300, 8) and torch.equal(first, second)
    assert all(len(set(row)) == 4 for row in first.tolist())
    assert set(tokens.flatten().tolist()) <= set(ids)
    if len(ids) <= 10:
        assert set(tokens.flatten().tolist()) == set(ids)
    assert torch.equal(text.repeated(ids, 4, 300, seeded()), tokens)


def test_training_reads_the_training_part_alone(small):
    config = logic_run("text", task=CONFIG, seed=5)
    tokens = training.batch_of(config, 0).tokens
    assert tokens.shape == (config.batch, 9) and set(small) == {"train"}
    assert not torch.equal(training.batch_of(config, 1).tokens, tokens)


def test_an_unknown_part_is_named():
    for call in (
        lambda: text.sources("training"),
        lambda: text.sample(CONFIG, 1, seeded(), "training"),
        lambda: text.spread(CONFIG, 1, "training"),
    ):
        with pytest.raises(ValueError, match="'training' is unknown.*train, validation, test"):
            call()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vocabulary": 256}, "256 bytes and a separator"),
        ({"reserved": 1}, "reserved is 1"),
        ({"context": 1}, "context is 1"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        text.TextConfig(**wrong)
