"""One look for every figure: a style, two widths, one mark per condition, a step-through player.

Figures are made without pyplot, so nothing stays open and nothing is drawn twice in a notebook.
What a cell displays is a small object that carries its own HTML: a PNG inside the page, a caption
and a text that says what the picture shows. No file, no network, no random id.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib.configuration import nearest

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#6B6B6B"
# Okabe and Ito; yellow is left out of the cycle, too pale for lines.
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)

# Inches: at 4.8 the type is still 7 points in one printed column.
WIDTHS = {"text": 4.8, "wide": 7.6}
_DPI, _PLAYER_DPI, _SHORTEST_ALT = 150, 110, 20
_PIXELS_PER_INCH = 100  # size on the page, so that type is the same size in every figure


@dataclass(frozen=True)
class Look:
    """How a condition is drawn, everywhere."""

    label: str
    color: str
    marker: str
    linestyle: str

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments for ``Axes.plot``."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}


CONDITIONS: dict[str, Look] = {
    # what is done to the model
    "standard": Look("standard", VERMILLION, "o", "-"),
    "copy": Look("copy", BLUE, "s", "-"),
    "freeze": Look("freeze", GREEN, "^", "--"),
    "reset": Look("reset", ORANGE, "v", "--"),
    "freeze+copy": Look("freeze + copy", SKY, "D", "-."),
    "reset+copy": Look("reset + copy", PURPLE, "P", "-."),
    "untied": Look("untied", BLACK, "X", ":"),
    "reset_half": Look("reset until half-way", BLACK, "<", ":"),
    "reset_half+copy": Look("reset until half-way + copy", GREEN, ">", ":"),
    "standard_slow": Look("standard, slow embedding", ORANGE, "1", ":"),
    "copy_slow": Look("copy, slow embedding", GREEN, "2", "--"),
    "freeze_rows": Look("freeze unused rows", PURPLE, "p", "--"),
    "refresh": Look("refresh unused rows", BLUE, "h", "-"),
    "stand_ins": Look("stand-ins", SKY, "D", "--"),
    "dropped": Look("unused names dropped", ORANGE, "v", "-."),
    # kinds of facts in the analogy task
    "atomic": Look("atomic", BLACK, "o", ":"),
    "comp_id": Look("compositions, trained", GREEN, "s", "--"),
    "comp_ood": Look("compositions, held out", BLUE, "D", "-"),
    "ana_id": Look("analogies, known", ORANGE, "^", "--"),
    "ana_ood": Look("analogies, held out", VERMILLION, "v", "-"),
    # what is done to unseen rows after training
    "as trained": Look("as trained", VERMILLION, "o", "-"),
    "fresh": Look("fresh draws", SKY, "D", "--"),
    "mean_cov": Look("seen rows' mean and covariance", BLUE, "s", "-"),
    "stretched": Look("own parts stretched", ORANGE, "v", "--"),
    "recentred": Look("own parts, seen mean", GREY, "X", ":"),
    "recentred_stretched": Look("stretched, seen mean", GREEN, "^", "-."),
    "duplicates": Look("copies of seen rows", BLACK, "x", ":"),
    "swapped": Look("rows of seen names", PURPLE, "P", "-."),
    "no copy head": Look("copy head silenced", GREY, "d", ":"),
    # who takes the steps
    "adamw": Look("AdamW", VERMILLION, "p", "-"),
    "adamw_no_decay": Look("AdamW, no decay", ORANGE, "<", "--"),
    "adam_l2": Look("Adam with L2", PURPLE, "h", "-."),
    "sgd": Look("SGD", BLUE, "d", "-"),
    "sgd_momentum": Look("SGD, momentum 0.9", BLACK, "x", ":"),
    "adamw_epsilon": Look("AdamW, epsilon 1e-3", GREEN, "+", ":"),
    "sgd_no_decay": Look("SGD, no decay", SKY, ">", "--"),
    # which rows of the embedding
    "seen": Look("seen", BLUE, "*", "-"),
    "unseen": Look("unseen", VERMILLION, "H", "--"),
    "special": Look("special", GREY, "8", ":"),
}


def style() -> None:
    """Set the style; a chapter calls it once, before its first figure."""
    mpl.rcParams.update(
        {
            "savefig.dpi": _DPI,
            "font.family": "DejaVu Sans",  # comes with matplotlib: one look on every machine
            "font.size": 10,
            "axes.titlesize": "medium",
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 9,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#DDDDDD",
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "axes.prop_cycle": mpl.cycler(color=list(PALETTE)),  # type: ignore[attr-defined,unused-ignore]
            "lines.linewidth": 1.8,
            "lines.markersize": 5,
            "image.cmap": "cividis",
            "svg.hashsalt": "seeing-the-unseen",  # otherwise ids in SVG files are random
        }
    )


def figure(
    width: Literal["text", "wide"] = "text",
    aspect: float = 0.62,
    rows: int = 1,
    cols: int = 1,
    **subplots: Any,
) -> tuple[Figure, Any]:
    """A new figure and its axes; ``aspect`` is the height of one panel over its width.

    The axes come as from ``Figure.subplots``, which also gets further arguments (``sharey=True``).
    """
    if width not in WIDTHS:
        raise ValueError(f"width is one of {', '.join(WIDTHS)}, not {width!r}")
    inches = WIDTHS[width]
    fig = Figure(figsize=(inches, inches / cols * rows * aspect), layout="constrained")
    return fig, fig.subplots(rows, cols, **subplots)


def look(condition: str) -> Look:
    """The look of a condition; an unknown name is answered with the nearest ones."""
    return CONDITIONS[nearest("condition", condition, CONDITIONS)]


def curves(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    condition: str,
    seeds: str = "seed",
    label: str | None = None,
) -> Line2D:
    """Every seed as a thin line, their median as a bold one with the condition's marker.

    ``frame`` holds this condition only, one row for each seed and each ``x``.
    """
    mark = look(condition)
    for _, one in frame.groupby(seeds, sort=True):
        one = one.sort_values(x)
        ax.plot(
            one[x], one[y], color=mark.color, linestyle=mark.linestyle, linewidth=0.7, alpha=0.45
        )
    median = frame.groupby(x, sort=True)[y].median()
    (line,) = ax.plot(
        median.index.to_numpy(),
        median.to_numpy(),
        markevery=max(1, len(median) // 8),
        label=mark.label if label is None else label,
        **mark.line,
    )
    return line


@dataclass(frozen=True, repr=False)
class Shown:
    """What a cell displays: HTML for the page, the alternative text everywhere else."""

    html: str
    alt: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.alt


@dataclass(frozen=True, repr=False)
class Said:
    """Prose that a cell computed, shown as Markdown."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def say(text: str) -> Said:
    """A sentence or a table with numbers in it; make it a cell's last expression."""
    return Said(text)


def _check_alt(alt: str) -> str:
    alt = " ".join(alt.split())
    if len(alt) <= _SHORTEST_ALT:
        raise ValueError(
            f"the alternative text {alt!r} has {len(alt)} characters: say in more than "
            f"{_SHORTEST_ALT} what the picture shows, for readers who cannot see it"
        )
    return alt


def _img(fig: Figure, dpi: int, alt: str, display: str = "block") -> str:
    """The figure as an ``<img>`` that holds its own PNG; closes the figure."""
    buffer = io.BytesIO()
    # No software tag: matplotlib's own holds its version.
    fig.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    plt.close(fig)  # of no effect for figures from `figure`, needed for those made with pyplot
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<img class="dark-light" src="data:image/png;base64,{data}" alt="{html.escape(alt)}" '
        f'width="{round(fig.get_figwidth() * _PIXELS_PER_INCH)}" '
        f'style="display:{display};height:auto;max-width:100%;background:#fff">'
    )


def show(fig: Figure, alt: str, caption: str | None = None) -> Shown:
    """The figure for a page; make it a cell's last expression.

    ``alt`` says what a reader should see in the picture, in more than 20 characters.
    """
    alt = _check_alt(alt)
    picture = f'<div class="unseen-frames">{_img(fig, _DPI, alt)}</div>'
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return Shown(f'<figure class="unseen-figure">{picture}{below}</figure>', alt)


_BUTTONS = ("First step", "Back one step", "Play all steps", "Next step", "Last step")

# Controls appear only when this runs: without scripts the first step stands as a plain figure.
# A notebook may show one player twice (two views of a cell), hence every root not yet alive.
_SCRIPT = """
(function () {
  document.querySelectorAll('[data-player="KEY"]').forEach(function (root) {
    if (root.dataset.alive) { return; }
    root.dataset.alive = "yes";
    var frames = root.querySelectorAll("img"), captions = JSON.parse(root.dataset.captions);
    var slider = root.querySelector("input"), caption = root.querySelector("[aria-live]");
    var play = root.querySelector('[data-go="play"]'), at = 0, timer = null;
    var still = window.matchMedia && window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    function show(i) {
      frames[at].style.display = "none";
      at = Math.max(0, Math.min(frames.length - 1, i));
      frames[at].style.display = "block";
      slider.value = at + 1; slider.setAttribute("aria-valuetext", captions[at]);
      caption.textContent = captions[at];
    }
    function say(text, name, live) {
      play.textContent = text; play.setAttribute("aria-label", name);
      caption.setAttribute("aria-live", live);
    }
    function stop() { clearInterval(timer); timer = null; say("Play", "Play all steps", "polite"); }
    function start() {
      say("Pause", "Pause", "off");
      if (at === frames.length - 1) { show(0); }
      timer = setInterval(function () {
        if (!root.isConnected) { clearInterval(timer); return; }
        show(at + 1);
        if (at === frames.length - 1) { stop(); }
      }, 900);
    }
    function go(where) {
      if (where === "play") { if (timer) { stop(); } else { start(); } return; }
      stop();
      show({first: 0, back: at - 1, next: at + 1, last: frames.length - 1}[where]);
    }
    root.querySelectorAll("button").forEach(function (button) {
      button.addEventListener("click", function () { go(button.dataset.go); });
    });
    slider.addEventListener("input", function () { stop(); show(slider.value - 1); });
    root.addEventListener("keydown", function (event) {
      var where = {ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last"}[event.key];
      if (!where || event.altKey || event.ctrlKey || event.metaKey) { return; }
      event.preventDefault(); event.stopPropagation(); go(where);
    });
    if (still) { play.style.display = "none"; }
    root.querySelector(".unseen-controls").style.display = "flex";
  });
})();
"""


def player(figures: Sequence[Figure], captions: Sequence[str], alt: str, key: str) -> Shown:
    """Figures to step through, with buttons, a slider and the arrow keys; needs no network.

    ``key`` names the player within its page; its ids come from it and are the same in every run.
    """
    alt = _check_alt(alt)
    n, name = len(figures), html.escape(alt)
    if n == 0 or n != len(captions):
        raise ValueError(f"one caption for each figure, at least one: got {n} and {len(captions)}")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
        raise ValueError(f"key is a short name such as 'rows-over-time', not {key!r}")
    steps = [f"Step {i} of {n}: {' '.join(c.split())}" for i, c in enumerate(captions, start=1)]
    first, texts = html.escape(steps[0]), html.escape(json.dumps(steps, ensure_ascii=False))
    images = "".join(
        _img(
            fig, _PLAYER_DPI, f"{alt.rstrip('.')}. {step}", "block" if step == steps[0] else "none"
        )
        for fig, step in zip(figures, steps, strict=True)
    )
    buttons = "".join(
        f'<button type="button" data-go="{text.lower()}" aria-label="{what}">{text}</button>'
        for text, what in ((what.split()[0], what) for what in _BUTTONS)
    )
    slider = (
        f'<input type="range" id="player-{key}-step" min="1" max="{n}" value="1" step="1" '
        f'aria-label="Step" aria-valuetext="{first}" style="flex:1 1 8em;min-width:6em">'
    )
    controls = "display:none;flex-wrap:wrap;gap:0.3em;align-items:center"
    # JupyterLab would take the arrow keys to move between cells: data-lm-... says not to.
    return Shown(
        f'<figure class="unseen-figure unseen-player" id="player-{key}" data-player="{key}" '
        f'data-captions="{texts}" role="group" aria-label="{name}" tabindex="0" '
        f'data-lm-suppress-shortcuts="true"><div class="unseen-frames">{images}</div>'
        f'<div class="unseen-controls" style="{controls}">{buttons}{slider}</div>'
        f'<figcaption aria-live="polite" id="player-{key}-caption">{first}</figcaption></figure>'
        f"<script>{_SCRIPT.replace('KEY', key)}</script>",
        alt,
    )
