"""The built pages: they are there, their links lead somewhere, nothing comes from a network."""

import re
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

SOURCES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
SOURCES |= {"video": "src", "audio": "src", "embed": "src", "object": "data"}


@pytest.fixture(scope="module")
def soups(site):
    """Every built page, parsed once: path -> soup."""
    pages = (path for path in site.rglob("*.html") if "_static" not in path.relative_to(site).parts)
    return {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in pages}


@pytest.fixture(scope="module")
def anchors(soups):
    return {
        path: {tag[key] for key in ("id", "name") for tag in soup.find_all(attrs={key: True})}
        for path, soup in soups.items()
    }


def test_the_page_is_there_and_not_older_than_its_source(page_name, site, book):
    page = site / f"{page_name}.html"
    assert page.exists(), f"{page_name} stands in _toc.yml and was not built"
    sources = [book / f"{page_name}{suffix}" for suffix in (".md", ".ipynb")]
    newest = max(source.stat().st_mtime for source in sources if source.exists())
    # The index is written by every build; a page only when its source has changed.
    built = max(page.stat().st_mtime, (site / "index.html").stat().st_mtime)
    assert built >= newest, f"{page_name} has changed since the book was built: `make book`"


def test_links_and_anchors_lead_somewhere(soups, anchors):
    broken = []
    for path, soup in soups.items():
        links = [(tag, tag.get("href")) for tag in soup.find_all(["a", "link"])]
        links += [(tag, tag.get("src")) for tag in soup.find_all(["script", "img"])]
        for tag, link in links:
            parts = urlsplit(link or "")
            if not link or parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            wanted = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.name}: {link}")
            elif tag.name == "a" and wanted and target in anchors and wanted not in anchors[target]:
                broken.append(f"{path.name}: {link} (no such anchor)")
    assert broken == []


def test_every_picture_has_a_text(soups):
    poor = []
    for path, soup in soups.items():
        for picture in soup.select(".bd-article img"):
            alt = picture.get("alt", "")
            # Without a text of its own, a picture gets its file name as one.
            if len(alt) <= 20 or alt.startswith("<Figure") or re.search(r"\.(png|svg|jpe?g)$", alt):
                poor.append((path.name, alt))
    assert poor == []


def test_nothing_comes_from_a_network(soups, site):
    outside = []
    for path, soup in soups.items():
        for name, key in SOURCES.items():
            for tag in soup.find_all(name):
                if re.match(r"(https?:)?//", tag.get(key) or "") and tag.get("rel") != [
                    "canonical"
                ]:
                    outside.append((path.name, tag.get(key)))
        styles = " ".join(tag.get_text() for tag in soup.find_all("style"))
        outside += [
            (path.name, hit) for hit in re.findall(r"url\([\"']?(?:https?:)?//[^)]*", styles)
        ]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        for hit in re.findall(r"(?:url\(|@import\s+)[\"']?(?:https?:)?//[^)\"';]*", text):
            outside.append((sheet.name, hit))
    assert outside == []


def test_outputs_on_the_pages_are_clean(soups, dirt_in):
    found = {}
    for path, soup in soups.items():
        for output in soup.select(".cell_output"):
            for script in output.find_all("script"):
                script.extract()
            found |= {(path.name, what): hit for what, hit in dirt_in(output.get_text()).items()}
    assert found == {}


def test_no_page_shows_markup_that_was_not_understood(soups):
    """A role or directive left as text, a citation or a reference without a target."""
    odd = []
    for path, soup in soups.items():
        for article in soup.select(".bd-article"):
            for code in article.select("pre, code, script, .math"):
                code.extract()
            odd += [
                (path.name, hit)
                for hit in re.findall(
                    r"\{\w[\w:-]*\}`|:::\s*\{|\[\?\]|\*\*\w+\*\*", article.get_text()
                )
            ]
    assert odd == []
