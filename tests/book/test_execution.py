"""Chapters stay within their budget, and executing one shows what the library says now."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
BUDGET_MB, MODEL_BUDGET_MB = 1500, 4000  # a chapter with toy models, with a real one


def test_every_notebook_was_measured_and_keeps_its_budget(notebook, book):
    measured = json.loads((book / "results" / "chapters.json").read_text(encoding="utf-8"))
    name = notebook.relative_to(book).with_suffix("").as_posix()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    timeout = re.search(r"^CELL_TIMEOUT \?= (\d+)", makefile, re.M)
    real = f"book/{name}.ipynb" in re.search(r"^MODEL_CHAPTERS := (.*)", makefile, re.M)[1].split()
    assert measured[name]["memory_mb"] < (MODEL_BUDGET_MB if real else BUDGET_MB)
    assert measured[name]["slowest_cell_s"] < int(timeout[1]) / 3


def test_a_change_in_lib_shows_after_executing_again(tmp_path):
    """No cache stands between the library and a page."""
    for folder in ("lib", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    chapter = tmp_path / "book" / "page.py"
    chapter.parent.mkdir()
    chapter.write_text("# %%\nfrom lib.generators import logic\n\nprint(logic.SPLITS)\n", "utf-8")
    source = tmp_path / "lib" / "generators" / "logic.py"

    def shown():
        subprocess.run(
            [sys.executable, "tools/execute.py", str(chapter)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            check=True,
            capture_output=True,
        )
        return nbformat.read(chapter.with_suffix(".ipynb"), as_version=4).cells[-1].outputs[0].text

    assert "all_unseen" in shown()
    source.write_text(source.read_text("utf-8").replace("all_unseen", "all_strange"), "utf-8")
    assert "all_strange" in shown()
