"""The figures: the same bytes twice, a text for every picture, a player that needs nothing else."""

import itertools
import re

import matplotlib as mpl
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest

from lib import plotting

ALT = "A line that rises from the lower left to the upper right"


@pytest.fixture(autouse=True)
def styled():
    with mpl.rc_context():
        plotting.style()
        yield


def line(slope: float = 1.0):
    fig, ax = plotting.figure()
    ax.plot([0, 1], [0, slope])
    return fig


def three(key: str = "three-lines"):
    return plotting.player([line(s) for s in (1, 2, 3)], ["one", "two", 'three <"'], ALT, key)


def test_a_figure_is_the_same_html_twice():
    assert plotting.show(line(), ALT, "A line.").html == plotting.show(line(), ALT, "A line.").html


def test_what_is_shown_has_html_and_a_text():
    shown = plotting.show(line(), ALT, "Seeds & <median>")
    assert repr(shown) == ALT
    assert f'alt="{ALT}"' in shown._repr_html_()
    assert "Seeds &amp; &lt;median&gt;" in shown.html


@pytest.mark.parametrize("alt", ["", "a line", "x" * 20, " " * 40])
def test_a_short_alternative_text_is_refused(alt):
    with pytest.raises(ValueError, match="alternative text"):
        plotting.show(line(), alt)
    with pytest.raises(ValueError, match="alternative text"):
        plotting.player([line()], ["one"], alt, "key")


def test_nothing_stays_open():
    import matplotlib.pyplot as plt

    plotting.show(line(), ALT)
    fig, ax = plt.subplots()
    plotting.show(fig, ALT)
    assert plt.get_fignums() == []


def deuteranopia(color: str) -> np.ndarray:
    """The colour as seen without the middle cones (Machado, Oliveira and Fernandes 2009)."""
    matrix = np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    )
    rgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(matrix @ linear, 0, 1)
    return np.where(seen <= 0.0031308, seen * 12.92, 1.055 * seen ** (1 / 2.4) - 0.055)


def test_conditions_can_be_told_apart_without_red_and_green():
    groups = [
        ["standard", "copy", "freeze", "reset", "freeze+copy", "reset+copy", "untied"],
        [
            "adamw",
            "adamw_no_decay",
            "adamw_epsilon",
            "adam_l2",
            "sgd",
            "sgd_no_decay",
            "sgd_momentum",
        ],
        ["seen", "unseen", "special"],
        ["standard", "stand_ins", "dropped"],
        ["standard", "freeze", "reset", "reset_half", "freeze_rows", "refresh"],
        ["standard", "copy", "reset", "reset+copy", "reset_half", "reset_half+copy"],
        [
            "as trained",
            "fresh",
            "mean_cov",
            "stretched",
            "recentred",
            "recentred_stretched",
            "duplicates",
            "swapped",
        ],
        ["copy", "no copy head"],
        ["atomic", "comp_id", "comp_ood", "ana_id", "ana_ood"],
        ["standard", "copy", "standard_slow", "copy_slow"],
    ]
    assert set(itertools.chain(*groups)) == set(plotting.CONDITIONS)
    for group in groups:  # these stand in one figure together
        markers = [plotting.CONDITIONS[name].marker for name in group]
        assert len(set(markers)) == len(markers)
        for a, b in itertools.combinations(group, 2):
            one, two = plotting.CONDITIONS[a], plotting.CONDITIONS[b]
            assert one.color != two.color
            distance = np.linalg.norm(deuteranopia(one.color) - deuteranopia(two.color))
            assert distance > 0.15 or one.linestyle != two.linestyle, (a, b, distance)


def test_an_unknown_condition_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="freeze"):
        plotting.look("freez")


def test_curves_draw_each_seed_and_their_median():
    frame = pd.DataFrame(
        {"seed": [0, 0, 1, 1, 2, 2], "step": [1, 0] * 3, "loss": [1.0, 5, 2, 6, 9, 7]}
    )
    fig, ax = plotting.figure("wide")
    median = plotting.curves(ax, frame, "step", "loss", "reset")
    assert len(ax.lines) == 4
    assert list(median.get_xdata()) == [0, 1]
    assert list(median.get_ydata()) == [6, 2]
    assert list(ax.lines[0].get_ydata()) == [5, 1]  # sorted by step
    assert ax.get_legend_handles_labels()[1] == ["reset"]


def test_only_the_two_widths():
    assert plotting.figure("wide", cols=2)[0].get_figwidth() == plotting.WIDTHS["wide"]
    with pytest.raises((ValueError, TypeError)):
        plotting.figure("huge")


def test_the_player_is_the_same_html_twice_and_needs_no_network():
    html = three().html
    assert html == three().html
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    assert "http" not in without_pictures and "//" not in without_pictures
    assert set(re.findall(r' id="([^"]+)"', html)) == {
        "player-three-lines",
        "player-three-lines-step",
        "player-three-lines-caption",
    }


def test_the_player_can_be_used_from_the_keyboard_and_heard():
    html = three().html
    assert 'tabindex="0"' in html and 'role="group"' in html and 'aria-live="polite"' in html
    for key in ("ArrowLeft", "ArrowRight", "Home", "End"):
        assert key in html
    buttons = re.findall(r"<button[^>]*>", html)
    assert len(buttons) == 5
    assert all('type="button"' in button and "aria-label=" in button for button in buttons)
    assert re.search(r'<input type="range"[^>]*aria-label=', html)
    assert "prefers-reduced-motion" in html


def test_without_scripts_the_first_step_is_there():
    pictures = re.findall(r"<img[^>]*>", three().html)
    assert ["display:block" in picture for picture in pictures] == [True, False, False]
    assert "Step 3 of 3: three &lt;&quot;" in pictures[2]
    assert "display:none" in re.search(r'<div class="unseen-controls"[^>]*>', three().html)[0]


def test_a_player_of_twelve_steps_stays_small():
    rng = np.random.default_rng(0)
    figures = []
    for _ in range(12):
        fig, axes = plotting.figure("wide", cols=2, aspect=0.8)
        for ax in axes:
            ax.scatter(*rng.normal(size=(2, 300)), s=9)
        figures.append(fig)
    html = plotting.player(figures, ["after some steps"] * 12, ALT, "rows").html
    assert len(html) < 600_000


def test_a_player_wants_captions_and_a_key():
    with pytest.raises(ValueError, match="one caption"):
        plotting.player([line()], [], ALT, "key")
    with pytest.raises(ValueError, match="key is a short name"):
        plotting.player([line()], ["one"], ALT, "A key")
