"""Real language models: their activations by name, through TransformerLens.

`load` gives a model whose activations have names (a `TransformerBridge` with the raw weights, so
that its logits are those of transformers), `tokens` what it reads, `run`, `streams` and `lens` what
happens inside. The three packages are imported where they are used: the rest of `lib` needs none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib import diagnosis
from lib.configuration import nearest
from lib.model_files import locate, no_access, package, quiet


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model. `bridge(tokens)` gives its logits, `bridge.hook_dict` the names for `run`.

    `W_E` and `W_U` are the weights themselves, one row a token, before any scale that the model
    puts on its embedding (Gemma: sqrt(d_model)); a change in place, under `torch.no_grad()`,
    changes the model, on both sides when `tied`. The tokenizer may know fewer or more than d_vocab.
    """

    bridge: Any
    tokenizer: Any
    name: str

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.bridge.embed.original_component.weight

    @property
    def W_U(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.bridge.unembed.original_component.weight

    @property
    def tied(self) -> bool:
        """Whether embedding and unembedding share storage."""
        return self.W_E.data_ptr() == self.W_U.data_ptr()

    @property
    def d_vocab(self) -> int:
        """Rows of the (un)embedding."""
        return len(self.W_E)

    @property
    def n_tokenizer(self) -> int:
        """Tokens that the tokenizer knows."""
        return len(self.tokenizer)

    @property
    def n_layers(self) -> int:
        return len(self.bridge.blocks)


def load(name: str | Path, cache: str | Path | None = None, device: str = "cpu") -> LanguageModel:
    """A model in float32 and evaluation mode, with eager attention and its weights as they are.

    `name` is "gemma-3-270m" or "smollm2-135m" (from packages; dequantised once into `cache`, by
    default $SEEING_THE_UNSEEN_CACHE or ~/.cache/seeing-the-unseen: 1.1 and 0.6 GB), a folder that
    holds a Hugging Face model, or a hub name `owner/model`, the only kind for which anything is
    fetched. Raises ValueError for another name, FileNotFoundError for a missing folder, ImportError
    when a package is missing and OSError when the hub gives nothing, each saying what to do.
    """
    TransformerBridge = package("transformer_lens.model_bridge").TransformerBridge
    hf, tokenizer = plain(name, cache, device)
    with quiet(package("transformers")):
        # without this TransformerLens reads the tokenizer a second time, from its address
        tokenizer.init_kwargs["add_bos_token"] = True
        bridge = TransformerBridge.boot_transformers(
            hf.name_or_path, hf_model=hf.eval(), tokenizer=tokenizer, device=device
        )
    model = LanguageModel(bridge, bridge.tokenizer, str(name))
    last = f"blocks.{model.n_layers - 1}.hook_resid_post"
    seen = run(model, tokens(model, [0]), [last, "logits"])
    if not torch.allclose(lens(model, seen[last]), seen["logits"], atol=1e-3):
        raise ValueError(
            f"{name}: final norm, unembedding and softcap do not give this model's logits, so `lens` "
            "would be wrong: use a model of the Llama, Gemma or GPT-2 kind"
        )
    return model


def plain(name: str | Path, cache: str | Path | None = None, device: str = "cpu") -> Any:
    """Model and tokenizer as transformers gives them, in float32 with eager attention; see `load`."""
    transformers = package("transformers")
    address, local = locate(name, cache)
    with quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(address, local_files_only=local)
            hf = transformers.AutoModelForCausalLM.from_pretrained(
                address, local_files_only=local, dtype=torch.float32, attn_implementation="eager"
            )
        except OSError as error:
            if local:
                raise
            raise OSError(no_access(address)) from error
    return hf.to(device), tokenizer


def tokens(
    model: LanguageModel,
    text: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | Int[Tensor, "*batch n"],
) -> Int[Tensor, "batch tokens"]:
    """Token ids with exactly one BOS, first in each row, whether `text` brought it or not.

    `text` is a text, ids (a list or a tensor), or a list of either. Rows of a batch must be equally
    long: no padding, hence no mask to carry along. A tokenizer without BOS gets its end-of-text
    token there, as in TransformerLens. Raises ValueError for nothing, for rows of different
    lengths, for a BOS further on and for ids that the model has not.
    """
    if isinstance(text, Tensor):
        text = text.tolist()
    one = isinstance(text, str) or (len(text) > 0 and isinstance(text[0], int))
    rows = [_row(model, row) for row in ([text] if one else text)]
    if not rows:
        raise ValueError("no text: nothing to tokenise")
    if len(lengths := sorted({len(row) for row in rows})) > 1:
        raise ValueError(f"rows of {lengths} tokens: batch those of one length")
    return torch.tensor(rows, device=model.W_E.device)


def _row(model: LanguageModel, row: Any) -> list[int]:
    bos, text = model.tokenizer.bos_token_id, model.tokenizer.bos_token
    ids = _encode(model, row)[0] if isinstance(row, str) else list(row)
    while ids and ids[0] == bos:
        ids = ids[1:]
    if bos in ids:
        raise ValueError(f"{text} stands again at position {ids.index(bos) + 1}: one text a row")
    if strange := [i for i in ids if not 0 <= i < model.d_vocab]:
        raise ValueError(f"id {strange[0]} is outside the model's {model.d_vocab} rows")
    return [bos, *ids]


def _encode(model: LanguageModel, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Ids without BOS, and the characters [start, end) of `text` that each stands for."""
    start = 0
    while text.startswith(model.tokenizer.bos_token, start):
        start += len(model.tokenizer.bos_token)
    coded = model.tokenizer(text[start:], add_special_tokens=False, return_offsets_mapping=True)
    return coded["input_ids"], [(start + a, start + b) for a, b in coded["offset_mapping"]]


def positions(model: LanguageModel, text: str, entity: str) -> list[list[int]]:
    """Where `entity` stands in `tokens(model, text)`: one list of positions an occurrence.

    "cat" is not looked for inside "cats". The tokens of each occurrence decode to the entity, up to
    white space around it. Raises ValueError when it does not occur or shares a token with what
    stands beside it.
    """
    wanted = entity.strip()
    if not wanted:
        raise ValueError("an entity needs at least one character that is not a space")
    # ends of ASCII words only: in scripts without spaces every occurrence counts
    left, right = (r"\b" if re.match(r"\w", c, re.ASCII) else "" for c in (wanted[0], wanted[-1]))
    found = list(re.finditer(f"{left}{re.escape(wanted)}{right}", text, re.ASCII))
    if not found:
        raise ValueError(f"{entity!r} does not stand in {text!r}")
    ids, spans = _encode(model, text)
    places = []
    for match in found:
        first, end = match.span()
        inside = [i for i, (a, b) in enumerate(spans) if a < end and b > first]
        decoded = model.tokenizer.decode([ids[i] for i in inside]).strip()
        if decoded != wanted:
            raise ValueError(f"{entity!r} has no tokens of its own in {text!r}: {decoded!r}")
        places.append([i + 1 for i in inside])  # BOS stands first
    return places


@torch.no_grad()
def run(
    model: LanguageModel,
    tokens: Int[Tensor, "batch tokens"],
    names: Iterable[str],
    at: Sequence[int] | None = None,
) -> dict[str, Float[Tensor, "..."]]:
    """The named activations of one forward pass: hooks of the bridge, and "logits".

    `at` are the positions whose logits are wanted, by default all: for Gemma 3 270M each takes 1 MB.
    Raises ValueError for a name that this model has not, with the nearest ones it has, and for one
    that exists but is not computed. Gradients and edits: `model.bridge.run_with_hooks`.
    """
    wanted = list(names)
    known = [*model.bridge.hook_dict, "logits"]
    for name in wanted:
        nearest("activation", name, known)
    kept: dict[str, Tensor] = {}

    def keep(name: str, value: Tensor, hook: Any) -> None:
        kept[name] = value

    hooks = [(name, functools.partial(keep, name)) for name in wanted if name != "logits"]
    few = {} if at is None else {"logits_to_keep": torch.tensor(at, device=tokens.device)}
    kept["logits"] = model.bridge.run_with_hooks(tokens, fwd_hooks=hooks, **few)
    if silent := [name for name in wanted if name not in kept]:
        raise ValueError(f"{model.name} does not compute {', '.join(silent)}")
    return {name: kept[name] for name in wanted}


def streams(
    model: LanguageModel, tokens: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "depth batch tokens d_model"]:
    """The residual stream after the embedding (0) and after each block, never normed.

    depth is n_layers + 1. In transformers the last of the `hidden_states` is already normed.
    """
    after = [f"blocks.{layer}.hook_resid_post" for layer in range(model.n_layers)]
    first = "blocks.0.hook_resid_pre"
    return torch.stack(list(run(model, tokens, [first, *after], at=[0]).values()))


@torch.no_grad()
def lens(
    model: LanguageModel, streams: Float[Tensor, "*any d_model"]
) -> Float[Tensor, "*any d_vocab"]:
    """Logits read from any stream (the logit lens): final norm, unembedding, softcap if there is one.

    From the last stream these are the model's logits. Cut to the positions you need first: for
    Gemma 3 270M each position of each layer takes 1 MB.
    """
    return capped(model, model.bridge.unembed(model.bridge.ln_final(streams)))


def capped(
    model: LanguageModel, logits: Float[Tensor, "*any d_vocab"]
) -> Float[Tensor, "*any d_vocab"]:
    """Logits after the softcap of models that have one (Gemma 2)."""
    config = model.bridge.original_model.config.get_text_config()
    softcap = getattr(config, "final_logit_softcapping", None)
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def watcher(rows: Sequence[int]) -> Any:
    """A callback for transformers' `Trainer`: with each log entry it writes what `diagnosis.watch` says
    of these rows, as `W_E_cosine`, `W_E_own`, `W_E_length`, and for W_U where it is another matrix.

    The numbers stand in `trainer.state.log_history`, and in `logs` for callbacks that come after it.
    """
    transformers = package("transformers")

    class Watcher(transformers.TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, model: Any, logs: dict[str, Any], **_: Any
        ) -> None:
            ends = {"W_E": model.get_input_embeddings(), "W_U": model.get_output_embeddings()}
            if ends["W_U"] is None or ends["W_U"].weight is ends["W_E"].weight:
                del ends["W_U"]
            for name, layer in ends.items():
                found = diagnosis.watch(layer.weight.detach(), rows)
                logs |= {f"{name}_{what}": value for what, value in found.items()}
            state.log_history[-1] |= logs

    return Watcher()
