"""What `token_rows.examine` found, as text, JSON or a page that stands alone."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from lib.diagnosis import THRESHOLD, Diagnosis, Spread, table
from lib.plotting import BLUE, VERMILLION, Shown, figure, show, style
from lib.token_rows import CANNOT_KNOW, Examination

COLUMNS = {
    "rows": "{:d}",
    "mean_cosine": "{:.2f}",
    "individual_share": "{:.2f}",
    "effective_rank": "{:.0f}",
    "score": "{:.2f}",
    "length": "{:.2f}",
}
MEANING = (
    "mean_cosine: over pairs of rows. individual_share: 0 when all rows point the same way. "
    "effective_rank: of at most 512 rows. score: cosine with the unused rows' direction, all centred "
    "on the used rows' mean. length: over that of a used row (median)."
)


def judgement(found: Diagnosis) -> str:
    """One sentence or two on one matrix."""
    unused = "lie together, apart from used ones" if found.collapsed else "do not lie together"
    said = f"Rows known to be unused {unused}"
    if found.short:
        said += ", and are shorter than half a used row"
    said += f". {_rows(len(found.hidden), 'other row')} like them"
    return said + (f"; {_rows(len(found.zero), 'row')} zero." if found.zero else ".")


def _rows(n: int, what: str) -> str:
    return f"1 {what} is" if n == 1 else f"{n:,} {what}s are"


def as_text(found: Examination, top: int = 10) -> str:
    """For the terminal: spreads, a judgement, the worst hidden rows."""
    lines = []
    for name, one in found.matrices.items():
        lines.append(f"{name} of {found.model}, {len(one.score):,} rows")
        lines.append(f"  {'':40}" + "".join(f"{column:>18}" for column in COLUMNS))
        for group, spread in one.spreads.items():
            lines.append(f"  {group:40}" + "".join(f"{value:>18}" for value in _values(spread)))
        lines.append(f"  {judgement(one)}")
        for row in table(one, found.names, top):
            lines.append(
                f"    {row['id']:7} {row['token']!r}  score {row['score']:.2f}, length {row['length']:.2f}"
            )
    return "\n".join([*lines, MEANING, CANNOT_KNOW])


def as_json(found: Examination, top: int = 40) -> str:
    """For programs; not-a-number becomes null."""
    text = json.dumps(found.record(top), ensure_ascii=False)
    clean = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(clean, indent=1, ensure_ascii=False) + "\n"


def as_html(found: Examination, top: int = 40) -> str:
    """A page that needs no other file."""
    style()
    title = f"Token rows of {html.escape(found.model)}"
    parts = [f"<h1>{title}</h1>"]
    for name, one in found.matrices.items():
        groups = {group: _values(spread) for group, spread in one.spreads.items()}
        worst = {str(row["id"]): list(row.values())[1:] for row in table(one, found.names, top)}
        parts += [
            f"<h2>{name}, {len(one.score):,} rows</h2><p>{judgement(one)}</p>",
            _html_table(("group", *COLUMNS), groups),
            f"<p>{MEANING}</p>",
            scores(one, found.groups).html,
            f"<h3>Rows of that kind without such a name, the worst {len(worst)} first</h3>",
            _html_table(("id", "token", "score", "length"), worst),
        ]
    look = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}"
        "td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #ccc}img{max-width:100%}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{look}</style></head>'
        f"<body>{''.join(parts)}<p>{CANNOT_KNOW}</p></body></html>\n"
    )


def scores(found: Diagnosis, groups: dict[str, list[int]]) -> Shown:
    """Histogram of scores: rows known to be unused against all others."""
    known = torch.zeros(len(found.score), dtype=torch.bool)
    known[sorted({i for ids in groups.values() for i in ids})] = True
    alive = ~found.score.isnan()
    fig, ax = figure("wide", aspect=0.4)
    bins = np.linspace(-1, 1, 81)
    for mask, label, color, hatch in (
        (~known, "all others", BLUE, None),
        (known, "known to be unused", VERMILLION, "////"),
    ):
        values = found.score[mask & alive].numpy()
        ax.hist(values, bins, label=label, color=color, alpha=0.6, hatch=hatch)
    ax.axvline(THRESHOLD, color="black", linestyle=":")
    ax.set(xlabel="score", ylabel="rows")
    if alive.any():  # no row has a score when all unused ones are zero
        ax.set_yscale("log")
    ax.legend()
    said = judgement(found)
    return show(
        fig, f"Histogram of scores on a logarithmic scale, unused rows and all others. {said}"
    )


def _values(spread: Spread) -> list[str]:
    return [form.format(getattr(spread, column)) for column, form in COLUMNS.items()]


def _html_table(head: tuple[str, ...], rows: Mapping[str, Sequence[object]]) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in (key, *values)) + "</tr>"
        for key, values in rows.items()
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
