"""The stored notebooks: run in order, clean outputs, one shape for every chapter."""

import ast
import re

import jupytext
import nbformat
import pytest

LARGEST_PAIR = 2_000_000  # bytes
LONGEST_OUTPUT = 80  # lines of text below one cell
ENDING = ["## Summary", "## What would change our mind", "## Exercises", "## Next"]


def cells(notebook, kind):
    read = nbformat.read(notebook, as_version=4)
    return [cell for cell in read.cells if cell.cell_type == kind]


def texts(output):
    """All that an output says, whatever its kind."""
    if output.output_type == "stream":
        return [output.text]
    if output.output_type == "error":
        return [f"{output.ename}: {output.evalue}"]
    return [
        text for kind, text in output.data.items() if isinstance(text, str) and "image/" not in kind
    ]


def is_chapter(notebook):
    return re.match(r"\d\d_", notebook.name) is not None


def test_nbformat_and_kernel(notebook):
    read = nbformat.read(notebook, as_version=4)
    nbformat.validate(read)
    assert read.metadata.kernelspec.name == "python3"
    # A version of Python or of a kernel would differ from machine to machine.
    assert "version" not in read.metadata.get("language_info", {})


def test_run_once_from_top_to_bottom(notebook):
    code = [cell for cell in cells(notebook, "code") if cell.source.strip()]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1)), "run it again: `make execute`"


def test_stored_outputs_are_clean(notebook, dirt_in):
    for cell in cells(notebook, "code"):
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", output.text
            for text in texts(output):
                assert not dirt_in(text), cell.source
                if "<" not in text[:1]:  # tables and pictures in HTML have lines of their own
                    assert len(text.splitlines()) <= LONGEST_OUTPUT, cell.source
            if output.output_type in ("display_data", "execute_result"):
                assert "<Figure" not in output.data.get("text/plain", ""), cell.source


def test_the_pair_holds_the_same_cells(notebook):
    pair = notebook.with_suffix(".py")
    assert pair.exists(), f"{pair.name} is missing: `jupytext --sync {notebook.name}`"

    def essence(read):
        return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in read.cells]

    stored = nbformat.read(notebook, as_version=4)
    assert essence(jupytext.read(pair)) == essence(stored), "`jupytext --sync` both"


def test_the_pair_is_small(notebook):
    size = sum(notebook.with_suffix(suffix).stat().st_size for suffix in (".ipynb", ".py"))
    assert size < LARGEST_PAIR


def test_a_chapter_says_what_it_gives_and_what_it_needs(notebook):
    if not is_chapter(notebook):
        pytest.skip("not a chapter")
    opening = cells(notebook, "markdown")[0].source
    assert opening.startswith("# ")
    for word in ("You will be able to", "Needs", "Minutes", "Memory"):
        assert f"**{word}" in opening


def test_a_chapter_ends_like_every_other(notebook):
    if not is_chapter(notebook):
        pytest.skip("not a chapter")
    prose = "\n".join(cell.source for cell in cells(notebook, "markdown"))
    headings = re.findall(r"^## .*$", prose, re.MULTILINE)
    assert headings[-len(ENDING) :] == ENDING


def test_a_chapter_opened_elsewhere_says_what_to_do(notebook):
    """Its first cell tries `import lib` and otherwise says in one line how to get it."""
    if not is_chapter(notebook):
        pytest.skip("not a chapter")
    (attempt, *_) = [
        node
        for node in ast.parse(cells(notebook, "code")[0].source).body
        if isinstance(node, ast.Try)
    ] or [None]
    assert attempt is not None, "the first code cell has no try"
    assert any(
        isinstance(node, ast.Import | ast.ImportFrom) and "lib" in ast.unparse(node)
        for node in attempt.body
    )
    (handler,) = attempt.handlers
    assert isinstance(handler.body[-1], ast.Raise)
    message = [node.value for node in ast.walk(handler) if isinstance(node, ast.Constant)]
    assert any(isinstance(text, str) and "pip install" in text for text in message)
    assert all("\n" not in text for text in message if isinstance(text, str))


def test_no_bare_output_needs_a_package_of_the_book_builder(notebook):
    source = "\n".join(cell.source for cell in cells(notebook, "code"))
    assert not re.search(r"^\s*(from|import) (myst_nb|jupyter_book|sphinx)", source, re.MULTILINE)


def functions(notebook):
    """Name and body, without docstring, of each function that a notebook defines."""
    for cell in cells(notebook, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef):
                docstring = ast.get_docstring(node) is not None
                yield node.name, "\n".join(ast.unparse(part) for part in node.body[docstring:])


def test_no_chapter_gives_a_solution_away(notebook, book):
    if not is_chapter(notebook):
        pytest.skip("not a chapter")
    solutions = sorted((book / "solutions").glob("*.ipynb"))
    solved = {pair for solution in solutions for pair in functions(solution)}
    given = {name for name, body in functions(notebook) if (name, body) in solved}
    assert not given, f"solved in the chapter itself: {sorted(given)}"


def test_every_chapter_has_the_checks_for_dirt(dirt_in):
    """The broom itself: each kind of dirt is seen, and a picture's letters are not."""
    for text in (
        "loss np.float64(0.1)",
        "<object at 0x7f00>",
        "/tmp/x",
        "C:\\Users",
        "12:30:01",
        "50%|###  | 3it/s",
        "UserWarning: no",
        "Traceback (most",
        "\x1b[0m",
    ):
        assert dirt_in(text), text
    assert not dirt_in('<img src="data:image/png;base64,iVBOR/tmp/w0KGgo=">')
    assert not dirt_in("accuracy 0.98 over 5 seeds (40 % of rows)")
