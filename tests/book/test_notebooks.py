"""The stored notebooks: run in order, clean outputs, one shape for every chapter."""

import ast
import re

import nbformat

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


def test_it_is_a_valid_notebook(notebook):
    nbformat.validate(nbformat.read(notebook, as_version=4))


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
                if not text.startswith("<"):  # tables and pictures in HTML have lines of their own
                    assert len(text.splitlines()) <= LONGEST_OUTPUT, cell.source
            if output.output_type in ("display_data", "execute_result"):
                assert "<Figure" not in output.data.get("text/plain", ""), cell.source


def test_the_pair_is_small(notebook):
    size = sum(notebook.with_suffix(suffix).stat().st_size for suffix in (".ipynb", ".py"))
    assert size < LARGEST_PAIR


def test_a_chapter_says_what_it_gives_and_what_it_needs(chapter):
    opening = cells(chapter, "markdown")[0].source
    assert opening.startswith("# ")
    for word in ("You will be able to", "Needs", "Minutes", "Memory"):
        assert f"**{word}" in opening


def test_a_chapter_ends_like_every_other(chapter):
    prose = "\n".join(cell.source for cell in cells(chapter, "markdown"))
    headings = re.findall(r"^## .*$", prose, re.MULTILINE)
    assert headings[-len(ENDING) :] == ENDING


def test_a_chapter_opened_elsewhere_says_what_to_do(chapter):
    """Its first cell tries `import lib` and otherwise says in one line how to get it."""
    body = ast.parse(cells(chapter, "code")[0].source).body
    attempt = next((node for node in body if isinstance(node, ast.Try)), None)
    assert attempt is not None, "the first code cell has no try"
    assert any(
        isinstance(node, ast.Import | ast.ImportFrom) and "lib" in ast.unparse(node)
        for node in attempt.body
    )
    (handler,) = attempt.handlers
    assert isinstance(handler.body[-1], ast.Raise)
    message = [node.value for node in ast.walk(handler) if isinstance(node, ast.Constant)]
    lines = [text for text in message if isinstance(text, str) and len(text) > 10]
    assert lines and "\n" not in "".join(lines)


def test_code_needs_no_package_of_the_book_builder(notebook):
    source = "\n".join(cell.source for cell in cells(notebook, "code"))
    assert not re.search(r"^\s*(from|import) (myst_nb|jupyter_book|sphinx)", source, re.MULTILINE)


def functions(notebook):
    """Name and body, without docstring, of each function that a notebook defines."""
    for cell in cells(notebook, "code"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef):
                docstring = ast.get_docstring(node) is not None
                yield node.name, "\n".join(ast.unparse(part) for part in node.body[docstring:])


def test_no_chapter_gives_a_solution_away(chapter, book):
    solutions = sorted((book / "solutions").glob("*.ipynb"))
    solved = {pair for solution in solutions for pair in functions(solution)}
    given = {name for name, body in functions(chapter) if (name, body) in solved}
    assert not given, f"solved in the chapter itself: {sorted(given)}"


def test_each_kind_of_dirt_is_seen(dirt_in):
    for text in (
        "loss np.float64(0.1)",
        "<object at 0x7f00>",
        "in /" + "tmp/x",
        "C:\\Users",
        "12:30:01",
        "50%|###  | 3it/s",
        "UserWarning: no",
        "Traceback (most",
        "\x1b[0m",
    ):
        assert dirt_in(text), text
    assert not dirt_in('<img src="data:image/png;base64,iVBOR/home/w0KGgo=">')
    assert not dirt_in("accuracy 0.98 over 5 seeds (40 % of rows)")
