"""Small random language models in folders, with a tokenizer of given words."""

import pytest


def _tokenizer(words):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


@pytest.fixture(scope="session")
def save_model():
    """save(folder, kind, words, rows, change, **how): two layers, d_model 32, read back by transformers.

    `kind`: gemma3 (tied) or llama (untied). `words`: all names, specials first. `change(matrix, W)`
    makes the rows of W_E, and of an untied W_U. `how` goes to `save_pretrained`.
    """
    t = pytest.importorskip("transformers")
    import torch

    def save(folder, kind, words, rows, change, dtype=torch.float32, **how):
        sizes = {
            "vocab_size": rows,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "initializer_range": 0.3,
            "attn_implementation": "eager",
        }
        torch.manual_seed(0)
        if kind == "gemma3":
            hf = t.Gemma3ForCausalLM(t.Gemma3TextConfig(**sizes, sliding_window=32))
        else:
            hf = t.LlamaForCausalLM(t.LlamaConfig(**sizes, tie_word_embeddings=False))
        ends = {"W_E": hf.get_input_embeddings(), "W_U": hf.get_output_embeddings()}
        with torch.no_grad():
            for name in ("W_E",) if kind == "gemma3" else ends:
                ends[name].weight.copy_(change(name, ends[name].weight.clone()))
        hf.to(dtype).save_pretrained(folder, **how)
        _tokenizer(words).save_pretrained(folder)
        return hf.eval()

    return save
