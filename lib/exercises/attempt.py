"""Call a reader's function without letting it break a chapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def attempt(answer: Callable[..., Any], kind: type, *args: Any) -> tuple[Any, str]:
    """What the reader's function returns, as a `kind`, and what is wrong with it (empty if nothing)."""
    try:
        said = answer(*args)
        if said is None:
            return None, f"Not yet: the function returns nothing. Let it return a {kind.__name__}."
        return kind(said), ""
    except Exception as error:  # whatever a reader's code raises is the answer
        return None, f"Not yet: {type(error).__name__}: {error}."
