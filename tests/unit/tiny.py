"""Small language models with random weights, and tokenizers of given words."""

import torch

SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>"]
SOFTCAP = 3.0  # of Gemma 2


def tokenizer(words, cut=None):
    """Knows `words`, specials first; text is cut at spaces and signs, or by the pattern `cut`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    if cut is None:
        core.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        core.pre_tokenizer = pre_tokenizers.Split(Regex(cut), "isolated")
        core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


def model(kind, d_vocab, layers=3, d_model=16, window=64, positions=256):
    """gemma2 (softcapped), gemma3 or llama (untied); rows long enough for a softcap to bend logits."""
    import transformers as t

    sizes = {
        "vocab_size": d_vocab,
        "hidden_size": d_model,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": positions,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "initializer_range": 0.3,
        "attn_implementation": "eager",
    }
    torch.manual_seed(0)
    if kind == "gemma2":
        caps = {"final_logit_softcapping": SOFTCAP, "attn_logit_softcapping": 5.0}
        config = t.Gemma2Config(**sizes, sliding_window=window, **caps)
        return t.Gemma2ForCausalLM(config).eval()
    if kind == "gemma3":
        return t.Gemma3ForCausalLM(t.Gemma3TextConfig(**sizes, sliding_window=window)).eval()
    return t.LlamaForCausalLM(t.LlamaConfig(**sizes, tie_word_embeddings=False)).eval()


def save(folder, kind, words, d_vocab, cut=None, **sizes):
    """Both in a folder, as transformers reads them; the model."""
    hf = model(kind, d_vocab, **sizes)
    hf.save_pretrained(folder)
    tokenizer(words, cut).save_pretrained(folder)
    return hf
