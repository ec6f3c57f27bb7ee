"""Imports within `lib` only go down."""

import ast
from pathlib import Path

import pytest

LIB = Path(__file__).parents[2] / "lib"
# ground floor first; rooms on one line know nothing of each other
FLOORS = [
    ["configuration", "geometry", "theory", "generators", "models.copy_attention"],
    [
        "models.transformer",
        "generators.logic",
        "generators.text",
        "generators.analogy",
        "generators.prompts",
        "fixed_features",
        "diagnosis",
        "model_files",
    ],
    ["generators.horn", "ensemble", "results", "repair", "language_models"],
    ["evaluation", "token_rows", "policies"],
    ["symbols", "functors", "relations"],
    ["fine_tuning"],
    ["model_sweeps"],
    ["relation_sweeps"],
    ["training"],
    ["analogies"],
    ["mechanism"],
    ["analogy_sweeps"],
    ["experiments"],
    ["bridge_sweeps"],
    ["sweeps"],
    ["claims"],
    ["ledger.collapse"],
    ["ledger.arms", "ledger.price", "ledger.analogy", "ledger.functors"],
    ["ledger.mechanism", "ledger.models", "ledger.bridge"],
    ["ledger"],
    ["plotting"],
    ["bench", "report", "exercises.attempt"],
    ["exercises.unseen", "exercises.analogy", "exercises.models", "exercises.bridge"],
    ["exercises"],
    ["cli"],
    ["__main__"],
]
FLOOR = {f"lib.{room}": floor for floor, rooms in enumerate(FLOORS) for room in rooms}
DRAWS = FLOOR["lib.plotting"]


def rooms():
    for path in sorted(LIB.rglob("*.py")):
        parts = path.relative_to(LIB.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in {"lib", "lib.models"}:
            yield name, path


@pytest.mark.parametrize(
    ("name", "path"), list(rooms()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_imports_only_go_down(name, path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lib"):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [room if room in FLOOR else node.module for room in inside]
        for room in found:
            assert FLOOR[room] < FLOOR[name], f"{name} imports {room}"
        imported = ast.unparse(node) if isinstance(node, ast.Import | ast.ImportFrom) else ""
        assert FLOOR[name] >= DRAWS or "matplotlib" not in imported
