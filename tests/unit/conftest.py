"""Small random language models in folders, with a tokenizer of given words."""

import pytest

from tests.unit import tiny


@pytest.fixture(scope="session")
def save_model():
    """save(folder, kind, words, rows, change, **how): two layers, d_model 32, read back by transformers.

    `kind`: gemma3 (tied) or llama (untied). `words`: all names, specials first. `change(matrix, W)`
    makes the rows of W_E, and of an untied W_U. `how` goes to `save_pretrained`.
    """
    pytest.importorskip("transformers")
    import torch

    def save(folder, kind, words, rows, change, dtype=torch.float32, **how):
        hf = tiny.model(kind, rows, layers=2, d_model=32, window=32, positions=64)
        ends = {"W_E": hf.get_input_embeddings(), "W_U": hf.get_output_embeddings()}
        with torch.no_grad():
            for name in ("W_E",) if kind == "gemma3" else ends:
                ends[name].weight.copy_(change(name, ends[name].weight.clone()))
        hf.to(dtype).save_pretrained(folder, **how)
        tiny.tokenizer(words).save_pretrained(folder)
        return hf

    return save
