"""The store of results: text tables that can be read, kept together with where they came from.

One CSV per experiment holds the rows of all its runs; the first column is the hash of the run's
configuration. `MANIFEST.json` holds, per experiment, the SHA-256 of the table and, per run,
configuration, versions, device, threads, seconds and date. Tensors that a run leaves go to
`EXPERIMENT-HASH.safetensors`. A file that does not match the manifest is refused by name.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor

from lib.configuration import config_hash, describe

STORE = Path(__file__).parent.parent / "book" / "results"
SCRATCH = STORE.parent.parent / ".runs"  # checkpoints of unfinished runs, not tracked
PACKAGES = ("torch", "numpy", "sympy", "tokenizers", "seeing-the-unseen")
IF_IMPORTED = {"transformers": "transformers", "transformer_lens": "transformer-lens"}

Rows = Sequence[Mapping[str, Any]]
Runner = Callable[[Any], tuple[Rows, Mapping[str, Tensor]]]


class DamagedResults(RuntimeError):
    """A stored file is missing, half-written or changed by hand. The message names it."""


def load_or_run(
    experiment: str, config: Any, run: Runner, device: str = "cpu", store: Path | None = None
) -> pd.DataFrame:
    """The stored rows of `config` in `experiment`; run and store them if they are not there.

    `run(config)` returns rows (mappings with one set of columns) and named tensors (maybe none).
    Raises DamagedResults when what is stored does not match the manifest, and ValueError when the
    new rows have other columns than the stored ones; a run that fails leaves the store as it was.
    """
    root = STORE if store is None else store
    key = config_hash(config)
    stored = load(experiment, store=root, missing_ok=True)
    if stored is None or key not in set(stored["config"]):
        started = time.time()
        rows, tensors = run(config)
        _add(root, experiment, config, rows, tensors, device, time.time() - started)
        stored = load(experiment, store=root)
    assert stored is not None
    return stored[stored["config"] == key].reset_index(drop=True)


def load(
    experiment: str, store: Path | None = None, missing_ok: bool = False
) -> pd.DataFrame | None:
    """All rows of an experiment, or None when it was never run and `missing_ok`."""
    text = _checked(STORE if store is None else store, experiment)
    if text is None:
        if missing_ok:
            return None
        raise FileNotFoundError(
            f"experiment {experiment!r} has no stored results: run `python -m lib sweep {experiment}`"
        )
    return pd.read_csv(
        io.StringIO(text), dtype={"config": str}, keep_default_na=False, na_values=["", "nan"]
    )


def table(experiment: str, store: Path | None = None) -> pd.DataFrame:
    """All rows of an experiment; raises FileNotFoundError when it was never run."""
    frame = load(experiment, store)
    assert frame is not None
    return frame


def tensors(experiment: str, key: str, store: Path | None = None) -> dict[str, Tensor]:
    """The tensors that the run with configuration hash `key` left."""
    root = STORE if store is None else store
    name = f"{experiment}-{key}.safetensors"
    _verify(root, name, _manifest(root).get("files", {}).get(name))
    return load_file(root / name)


def manifest(store: Path | None = None) -> dict[str, Any]:
    """Provenance of everything stored."""
    return _manifest(STORE if store is None else store)


def verify(store: Path | None = None) -> list[str]:
    """Check every stored file against the manifest; returns their names, raises DamagedResults."""
    root = STORE if store is None else store
    entries = _manifest(root).get("files", {})
    there = [n for n, e in entries.items() if "sha256" in e or (root / n).exists()]
    for name in there:
        _verify(root, name, entries[name])
    return sorted(there)


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, then move into place: a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _add(
    root: Path,
    experiment: str,
    config: Any,
    rows: Rows,
    tensors: Mapping[str, Tensor],
    device: str,
    seconds: float,
) -> None:
    if not rows:
        raise ValueError(f"{experiment}: the run returned no rows")
    key = config_hash(config)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".lock"):
        record = _manifest(root)
        text = _checked(root, experiment)
        lines = list(csv.reader(io.StringIO(text))) if text else [["config", *rows[0]]]
        if any(["config", *row] != lines[0] for row in rows):
            raise ValueError(f"{experiment}: the new rows have other columns than the stored ones")
        lines = [line for line in lines if line[0] != key]
        lines += [[key, *(_short(value) for value in row.values())] for row in rows]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(lines)
        if tensors:
            name = f"{experiment}-{key}.safetensors"
            beside = root / f"{name}.{os.getpid()}.tmp"
            save_file({k: v.contiguous() for k, v in tensors.items()}, beside)
            data = beside.read_bytes()
            beside.unlink()
            _put(root, record, name, data)
        runs = record.setdefault("runs", {}).setdefault(experiment, {})
        if text is None:  # a deleted table takes its runs along
            runs.clear()
        runs[key] = {"config": describe(config), **provenance(device, seconds)}
        _put(root, record, f"{experiment}.csv", out.getvalue().encode())


def provenance(device: str, seconds: float) -> dict[str, Any]:
    """Where and how a result was made."""
    return {
        "versions": versions(),
        "device": device,
        "processor": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
        "date": datetime.date.today().isoformat(),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that a result depends on."""
    names = [*PACKAGES, *(name for module, name in IF_IMPORTED.items() if module in sys.modules)]
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {"python": platform.python_version()}


def _put(root: Path, record: dict[str, Any], name: str, data: bytes) -> None:
    """Store one file so that a kill at any moment leaves a pair that verifies.

    The manifest first accepts both the old and the coming hash, then the file is replaced, then
    only the new hash stays.
    """
    digest = hashlib.sha256(data).hexdigest()
    entry = record.setdefault("files", {}).setdefault(name, {})
    if "next" in entry and (root / name).exists():  # a kill left this pair open: settle it
        there = hashlib.sha256((root / name).read_bytes()).hexdigest()
        if there in entry.values():
            entry["sha256"] = there
    entry["next"] = digest
    _write_manifest(root, record)
    write_atomically(root / name, data)
    record["files"][name] = {"sha256": digest}
    _write_manifest(root, record)


def _write_manifest(root: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(root / "MANIFEST.json", text.encode())


def _manifest(root: Path) -> dict[str, Any]:
    path = root / "MANIFEST.json"
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedResults(
            f"{path} is not valid JSON: restore it from version control"
        ) from error


def _checked(root: Path, experiment: str) -> str | None:
    """The text of an experiment's table, verified; None when it is not there: deleting a table is
    the way to have it made anew."""
    name = f"{experiment}.csv"
    while (root / name).exists():
        record = _manifest(root)
        try:
            return _verify(root, name, record.get("files", {}).get(name)).decode("utf-8")
        except DamagedResults:
            if _manifest(root) == record:  # else another process wrote in between: look again
                raise
    return None


def _verify(root: Path, name: str, entry: Mapping[str, str] | None) -> bytes:
    path = root / name
    if entry is None:
        raise DamagedResults(
            f"{path} is not in MANIFEST.json: restore both, or delete it to run anew"
        )
    anew = "delete it and run `make results`"
    if path.suffix == ".safetensors":
        anew = f"delete {name.rsplit('-', 1)[0]}.csv and run `make results`"
    if not path.exists():
        anew = anew if path.suffix == ".safetensors" else "run `make results`"
        raise DamagedResults(f"{path} is missing: restore it, or {anew}")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() not in entry.values():
        raise DamagedResults(f"{path} does not match MANIFEST.json: restore both, or {anew}")
    return data


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
