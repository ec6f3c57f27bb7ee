"""Where the book and its built pages are, and what must not stand in an output."""

import re
from pathlib import Path

import pytest
import yaml

BOOK = Path(__file__).parents[2] / "book"
SITE = BOOK / "_build" / "html"

toc = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [toc["root"]] + [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
NOTEBOOKS = sorted(
    path
    for path in BOOK.rglob("*.ipynb")
    if not {"_build", "results", ".ipynb_checkpoints"} & set(path.relative_to(BOOK).parts)
)

CHAPTERS = [path for path in NOTEBOOKS if re.match(r"\d\d_", path.name)]

# What a picture holds is no text, and its letters may spell anything.
PICTURE = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+")
DIRT = {
    "numpy's own repr": r"\bnp\.\w+\(",
    "an address": r" at 0x[0-9a-fA-F]+",
    "a path of one machine": r"/(home|root|work|tmp|Users)/|\b[A-Z]:\\",
    "a time of day": r"\b\d\d:\d\d:\d\d\b|\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d",
    "a progress bar": r"\bit/s\b|\bs/it\b|\d%\|",
    "a warning": r"Warning:",
    "an error": r"Traceback",
    "a colour code": r"\x1b\[",
}


def pytest_generate_tests(metafunc):
    if "page_name" in metafunc.fixturenames:
        metafunc.parametrize("page_name", PAGES)
    for name, paths in (("notebook", NOTEBOOKS), ("chapter", CHAPTERS)):
        if name in metafunc.fixturenames:
            ids = [path.relative_to(BOOK).as_posix() for path in paths]
            metafunc.parametrize(name, paths, ids=ids)


@pytest.fixture(scope="session")
def book():
    return BOOK


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("the book is not built: `make book`")
    return SITE


@pytest.fixture(scope="session")
def dirt_in():
    """A function: text -> what does not belong there, each with the words around it."""

    def find(text):
        text = PICTURE.sub("IMAGE", text)
        hits = ((what, re.search(pattern, text)) for what, pattern in DIRT.items())
        return {what: text[max(0, hit.start() - 40) : hit.end() + 40] for what, hit in hits if hit}

    return find
