"""Configurations as plain JSON, the hash that names them, and an answer to unknown names."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def describe(value: Any) -> Any:
    """A configuration as plain JSON types; each dataclass says which it is under `kind`.

    A field that was added later (`field(default=..., metadata={"later": True})`) is left out while
    it has its default, so that runs stored before keep their hash.
    """
    if hasattr(value, "__dataclass_fields__"):
        shown = {
            name: describe(getattr(value, name))
            for name, field in value.__dataclass_fields__.items()
            if not name.startswith("_")
            and not (field.metadata.get("later") and getattr(value, name) == field.default)
        }
        return {"kind": type(value).__name__, **shown}
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    return [describe(v) for v in value] if isinstance(value, list | tuple | range) else value


def config_hash(config: Any) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of the configuration as sorted JSON."""
    text = json.dumps(describe(config), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` if it is known; else a ValueError that names the nearest known ones."""
    names = list(known)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
    raise ValueError(f"unknown {kind} {name!r}; nearest: {', '.join(close or names)}")
