"""Sets of tokens of a language model as symbols, and what the model does with them.

`symbol_set` picks tokens of a kind, `treatment` gives them other rows, `induction` asks whether the
model, untrained, continues a random sequence of them that begins again.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from lib import model_files, repair, token_rows
from lib.configuration import nearest
from lib.generators import stream
from lib.generators.prompts import WORDS
from lib.language_models import LanguageModel, plain, run, tokens
from lib.repair import DRAWS

SIZE = 26  # symbols in every set
KINDS = {
    "letters": "capital letters with a space before",
    "words": "short English nouns with a space before",
    "random": "tokens drawn from all that are used",
    "late": "lower-case tokens that the tokenizer learned last, so rare ones",
    "unused": "reserved names with low ids",
    "unused_high": "reserved names at the end of the vocabulary",
    "hidden": "other tokens whose rows lie with those of reserved names",
}
TREATMENTS = {
    "none": "rows as they are",
    **DRAWS,
    "fresh": "directions at random",
    "stretched": "own individual parts, five times as long",
    "swapped": "rows of nouns, which get theirs",
    "resized": "what transformers gives added tokens (mean resizing)",
}
LATE = (200_000, 236_000)  # ids of Gemma's last merges; single characters follow


@functools.lru_cache(maxsize=1)
def known_rows(name: str) -> tuple[token_rows.Examination, list[int]]:
    """What is known of a model's rows, and its used rows; kept for the last model asked for."""
    found = token_rows.examine(name)
    hidden = [one.hidden for one in found.matrices.values()]
    d_vocab = len(found.matrices["W_E"].score)
    return found, token_rows.used_rows(d_vocab, *found.groups.values(), *hidden)


@functools.lru_cache(maxsize=1)
def _moments(name: str) -> tuple[Tensor, Tensor]:
    W = model_files.matrices(model_files.folder_of(name))["W_E"]
    return repair.moments(W, known_rows(name)[1])


def symbol_set(name: str, tokenizer: object, kind: str, seed: int) -> list[int]:
    """26 token ids of a kind, the same for the same seed; letters are always the alphabet.

    Raises ValueError for an unknown kind and when the model has too few tokens of it.
    """
    nearest("kind of symbols", kind, KINDS)
    if kind in ("letters", "words"):
        names = string.ascii_uppercase if kind == "letters" else WORDS
        coded = [tokenizer.encode(f" {w}", add_special_tokens=False) for w in names]  # type: ignore[attr-defined]
        ids = [one[0] for one in coded if len(one) == 1]
    else:
        found, used = known_rows(name)
        groups = list(found.groups.values())
        late = [i for i in used if LATE[0] <= i < LATE[1] and _plain_lower(found.names[i])]
        ids = {
            "random": used,
            "late": late,
            "unused": groups[0] if groups else [],
            "unused_high": groups[-1] if len(groups) > 1 else [],
            "hidden": found.matrices["W_E"].hidden,
        }[kind]
    if len(ids) < SIZE:
        raise ValueError(f"{name} has {len(ids)} tokens of kind {kind!r}, {SIZE} are needed")
    if kind == "letters":
        return ids
    chosen = torch.randperm(len(ids), generator=stream(seed, f"symbols {kind}"))[:SIZE]
    return [ids[i] for i in chosen.tolist()]


def _plain_lower(token: str) -> bool:
    letters = token.removeprefix("▁")
    return letters.isascii() and letters.isalpha() and letters.islower()


def treatment(
    name: str, W: Float[Tensor, "d_vocab d_model"], ids: Sequence[int], method: str, seed: int
) -> Float[Tensor, "ids d_model"]:
    """Other rows for `ids`, each as long as before (but for `resized`); see TREATMENTS.

    `swapped` is no matter of rows alone: see `rows_replaced`. Raises ValueError for other names.
    """
    nearest("treatment", method, TREATMENTS)
    own, draws = W[list(ids)], stream(seed, f"treatment {method}")
    if method in DRAWS:
        new = repair.draw(*_moments(name), len(ids), method, draws).to(W)
    elif method == "fresh":
        new = torch.randn(own.shape, generator=draws).to(W)
    elif method == "stretched":
        new = own.mean(dim=0) + 5 * (own - own.mean(dim=0))
    elif method == "resized":
        return _resized(name, len(ids), seed).to(W)
    else:
        raise ValueError(f"{method!r} draws no rows")
    return new / new.norm(dim=1, keepdim=True) * own.norm(dim=1, keepdim=True)


def _resized(name: str, n: int, seed: int) -> Float[Tensor, "n d_model"]:
    """The rows that transformers itself gives to `n` added tokens."""
    hf, _ = plain(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf.resize_token_embeddings(hf.get_input_embeddings().num_embeddings + n, mean_resizing=True)
    return hf.get_input_embeddings().weight[-n:].detach().clone()


@contextmanager
def rows_replaced(
    model: LanguageModel, ids: Sequence[int], method: str, seed: int
) -> Iterator[LanguageModel]:
    """The (tied) model with treated rows for `ids`; afterwards it is as before.

    Raises ValueError for a model that is not tied, whose two matrices would need two draws, and when
    other than 26 symbols are to be swapped.
    """
    if not model.tied:
        raise ValueError(f"{model.name} is not tied: change W_E and W_U by hand")
    W, rows = model.W_E, list(ids)
    if method == "swapped":
        if len(rows) != SIZE:
            raise ValueError(f"{SIZE} symbols can be swapped with as many nouns, not {len(rows)}")
        rows += symbol_set(model.name, model.tokenizer, "words", seed)
    before = W[rows].detach().clone()
    try:
        with torch.no_grad():
            if method == "swapped":
                W[rows] = before.roll(SIZE, dims=0)
            elif method != "none":
                W[rows] = treatment(model.name, W.detach(), rows, method, seed)
        yield model
    finally:
        with torch.no_grad():
            W[rows] = before


def induction(
    model: LanguageModel, ids: Sequence[int], length: int, n: int, generator: torch.Generator
) -> dict[str, float]:
    """Continue a sequence that begins again: `n` sequences of `length` different symbols, shown twice.

    `right`: argmax over the whole vocabulary, from the second symbol of the repetition on; `among`:
    over `ids` only. `attention_layer_i`: from a repeated symbol to the one that followed it, mean of
    the best head. Raises ValueError for more different symbols than there are.
    """
    if not 2 <= length <= len(ids):
        raise ValueError(f"length is {length}: 2 to {len(ids)} different symbols are possible")
    order = torch.stack([torch.randperm(len(ids), generator=generator)[:length] for _ in range(n)])
    symbols = torch.tensor(list(ids))
    text = tokens(model, symbols[order].repeat(1, 2)[:, :-1])  # the last one predicts nothing
    asked = range(length + 1, 2 * length)
    patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.n_layers)]
    got = run(model, text, ["logits", *patterns], at=list(asked))
    wanted = order[:, 1:]
    right = got["logits"].argmax(dim=-1).cpu() == symbols[wanted]
    among = got["logits"][..., symbols].argmax(dim=-1).cpu() == wanted
    row = {"right": float(right.float().mean()), "among": float(among.float().mean())}
    source, target = torch.tensor(asked), torch.arange(2, length + 1)
    for layer, name in enumerate(patterns):
        heads = got[name][:, :, source, target].mean(dim=(0, 2))
        row[f"attention_layer_{layer}"] = float(heads.max())
    return row
