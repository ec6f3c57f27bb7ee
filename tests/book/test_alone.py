"""A chapter opened far from the clone, and the pages that code must agree with."""

import re
import subprocess
import sys

import nbformat

from lib import claims, evaluation, geometry
from lib.experiments import logic_run
from lib.generators import stream
from lib.models.transformer import Transformer, TransformerConfig, initialise

WITHOUT_LIB = "import sys; sys.modules['lib'] = None\n"  # as if it were not installed


def test_without_lib_the_first_cell_says_what_to_do_in_one_line(chapter, tmp_path):
    cells = nbformat.read(chapter, as_version=4).cells
    first = next(cell.source for cell in cells if cell.cell_type == "code")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIB + first],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "pip install" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_chapter_runs_in_an_empty_folder(chapter, tmp_path):
    """It reads nothing by a path of its own: imports from lib are enough."""
    source = chapter.with_suffix(".py").read_text(encoding="utf-8")
    assert not re.search(r"open\(|read_csv|Path\(|\.\./", re.sub(r"(?m)^#.*$", "", source))


def test_notation_names_what_the_code_has(book):
    text = (book / "notation.md").read_text(encoding="utf-8")
    symbols, activations, measures = (part for part in re.split(r"(?m)^## ", text)[1:])
    config = logic_run("laptop", "copy")
    model = initialise(Transformer(config.model), stream(0, "weights"))
    names = re.findall(r"(?m)^\|[^|]*\| `(\w+)` \|(?! Part II)", symbols)
    known = {*dir(config), *dir(config.task), *dir(config.model), *dir(model), "query_unseen"}
    known |= {"resid_pre", "resid_post", "pattern", "final", "logits", "all_unseen"}
    assert len(names) > 15 and set(names) <= known, set(names) - known

    listed = re.findall(r"(?m)^\| `([\w.{}]+)` \|", activations)
    expected = {re.sub(r"\.\d+\.", ".{l}.", name) for name in model.activation_names()}
    assert set(listed) == expected

    for name in re.findall(r"(?m)^\| [^|`]+\| `(\w+)` \|", measures):
        assert hasattr(geometry, name), name


def test_methods_names_the_verdicts_and_the_settings(book):
    text = (book / "methods.md").read_text(encoding="utf-8")
    assert [said for said in claims.VERDICTS if f"| `{said}` |" in text] == list(claims.VERDICTS)
    config = logic_run("laptop")
    assert f"{config.model.n_layers} layers, {config.model.n_heads} heads, `d_model` 64" in text
    assert isinstance(config.model, TransformerConfig) and config.model.d_model == 64
    assert f"| batch | 256 | {config.batch} |" in text
    assert set(evaluation.HALVES) == {"true", "false"}
