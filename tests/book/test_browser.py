"""The pages in a browser: no error, no request that leaves the machine, formulas drawn, no overflow."""

import functools
import http.server
import shutil
import threading

import pytest

pytestmark = pytest.mark.browser

FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync --disable-extensions --disable-default-apps"

# Formulas that were not drawn, or drawn as an error; and the signs of TeX left in the text.
UNRENDERED = r"""() => {
  const found = [...document.querySelectorAll(".math")]
    .filter(e => !e.querySelector("mjx-container")).map(e => e.textContent);
  for (const e of document.querySelectorAll('[data-mjx-error], mjx-merror, mjx-container [fill="red"]'))
    found.push(e.textContent || e.outerHTML.slice(0, 200));
  const copy = document.querySelector(".bd-article").cloneNode(true);
  copy.querySelectorAll("pre, code, script, mjx-container").forEach(e => e.remove());
  const tex = copy.textContent.match(/.{0,30}(\\\(|\\\[|\$\$|\\begin\{).{0,30}/);
  return tex ? found.concat(tex[0]) : found;
}"""

# What sticks out to the right of the window and is not inside something that scrolls.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = e => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  return [...document.querySelectorAll(".bd-main *")]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement))
    .slice(0, 5).map(e => e.outerHTML.slice(0, 120));
}"""

MATH_DRAWN = (
    "() => !document.querySelector('.math') || window.MathJax?.startup?.promise?.then(() => true)"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(site):
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"no browser here: looked for {', '.join(names)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all pages, and the list of what went wrong in it."""
    page = browser.new_page(viewport={"width": 1600, "height": 900})
    page.wrong = []
    page.on("console", lambda m: m.type == "error" and page.wrong.append(m.text))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("requestfailed", lambda r: page.wrong.append(f"failed: {r.url[:200]}"))
    page.on("response", lambda r: r.status >= 400 and page.wrong.append(f"{r.status}: {r.url}"))
    page.on("request", lambda r: page.wrong.extend(leaves(r.url)))
    yield page
    page.close()


def leaves(url):
    ours = ("http://127.0.0.1:", "file://", "data:", "blob:")
    return [] if url.startswith(ours) else [f"leaves the machine: {url}"]


def open_page(tab, url):
    tab.wrong.clear()
    tab.goto(url, wait_until="load")
    tab.wait_for_function(MATH_DRAWN)


def test_page(tab, address, page_name):
    open_page(tab, f"{address}/{page_name}.html")
    assert tab.evaluate(UNRENDERED) == []
    for width in (1600, 380):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, tab.evaluate(OVERFLOW)
    tab.set_viewport_size({"width": 1600, "height": 900})
    for player in tab.query_selector_all("[data-player]"):
        step_through(player)
    assert tab.wrong == []


def step_through(player):
    """Button, arrow keys and slider move it; one step is to be seen at a time."""
    count = len(player.query_selector_all("img"))

    def step():
        shown = [image.is_visible() for image in player.query_selector_all("img")]
        assert sum(shown) == 1
        assert (
            player.query_selector("figcaption")
            .inner_text()
            .startswith(f"Step {shown.index(True) + 1} of {count}")
        )
        return shown.index(True)

    assert step() == 0
    player.query_selector('[data-go="next"]').click()
    assert step() == min(1, count - 1)
    player.query_selector('[data-go="last"]').click()
    assert step() == count - 1
    player.focus()
    player.press("Home")
    assert step() == 0
    player.query_selector("input").fill(str(count))
    assert step() == count - 1
    player.query_selector('[data-go="first"]').click()
    assert step() == 0


def test_a_player_does_not_move_for_who_wants_no_motion(tab, address, site):
    name = next((p for p in site.rglob("*.html") if "data-player=" in p.read_text("utf-8")), None)
    if name is None:
        pytest.skip("no page has a player yet")
    tab.emulate_media(reduced_motion="reduce")
    open_page(tab, f"{address}/{name.relative_to(site).as_posix()}")
    assert not tab.is_visible('[data-go="play"]') and tab.is_visible('[data-go="next"]')
    tab.emulate_media(reduced_motion="no-preference")


def test_formulas_are_drawn_without_a_server(tab, site):
    pages = [p for p in site.rglob("*.html") if 'class="math' in p.read_text("utf-8")]
    assert pages, "no page has a formula"
    for page in (pages[0], max(pages, key=lambda p: len(p.parts))):
        open_page(tab, page.as_uri())
        assert tab.query_selector(".math mjx-container svg") is not None
        assert tab.evaluate(UNRENDERED) == [] and tab.wrong == []


def test_search_finds_a_page(tab, address):
    open_page(tab, f"{address}/search.html?q=unseen")
    tab.wait_for_selector("ul.search li a")
    assert tab.wrong == []
