"""The comparison as a picture: a panel per measure, a group of bars per kind of churn, a bar per assignor.

SVG is plain text that any browser shows; HTML adds the figures as a table. PNG needs matplotlib.
"""

from __future__ import annotations

import importlib
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Panel(NamedTuple):
    """A measure in the picture: the summary's column, its title with the unit, and the divisor of its values."""

    column: str
    title: str
    scale: float = 1.0


class _Table(NamedTuple):
    """Kinds of churn, assignors, and the rows by both, in the summary's order."""

    kinds: Sequence[str]
    assignors: Sequence[str]
    rows: Mapping[tuple[str, str], Mapping[str, Any]]


PANELS: Final = (
    Panel("rebalances_mean", "rebalances to converge"),
    Panel("tasks_moved_mean", "active tasks moved"),
    Panel("restored_bytes_mean", "state restored, GB", 1e9),
    Panel("down_task_s_mean", "task-seconds not running"),
    Panel("exposed_task_s_mean", "task-seconds without a warm standby"),
    Panel("converge_s_mean", "seconds to converge"),
    Panel("imbalance_worst_mean", "worst imbalance, active tasks per thread"),
    Panel("cross_rack_bytes_per_s_mean", "cross-rack traffic at rest, MB/s", 1e6),
)
_KINDS: Final = (".svg", ".html", ".png")
# Okabe and Ito's colours, which the colour-blind can distinguish.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C00", "#555555")
_STYLE: Final = (
    "text{font:11px sans-serif;fill:#222}text.big{font:bold 17px sans-serif}text.title{font:bold 13px sans-serif}"
    "text.small{font-size:8px;fill:#555}"
)
_COLUMNS: Final = 2
_PANEL_WIDTH: Final = 560
_LABEL_WIDTH: Final = 110
_VALUE_WIDTH: Final = 60
_BAR: Final = 9
_GAP: Final = 8
_LEGEND_ENTRY: Final = 180


def check_picture(path: Path) -> None:
    """Reject a picture that cannot be written, before the study runs.

    Raises:
        ConfigException: the suffix is unknown, the folder is missing, or PNG lacks matplotlib.
    """
    if path.suffix.lower() not in _KINDS:
        raise ConfigException(f"picture {path} must end in one of {', '.join(_KINDS)}")
    if not path.parent.is_dir():
        raise ConfigException(f"picture {path}: the folder {path.parent} does not exist; make it first")
    if path.suffix.lower() == ".png":
        _matplotlib(path)


def write_picture(path: Path, summary: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """Write rows of :func:`sparkrelay.simulate.study.summarize` as a ``.svg``, ``.html`` or ``.png``.

    Raises:
        ConfigException: see :func:`check_picture`.
    """
    check_picture(path)
    match path.suffix.lower():
        case ".svg":
            path.write_text(draw_svg(summary, title=title), encoding="utf-8")
        case ".html":
            path.write_text(draw_html(summary, title=title), encoding="utf-8")
        case _:
            _write_png(path, summary, title)


def draw_svg(summary: Sequence[Mapping[str, Any]], *, title: str) -> str:
    """Return the picture as SVG."""
    table = _pivot(summary)
    kinds, assignors, _ = table
    group = _BAR * len(assignors) + _GAP
    panel_height = 34 + group * len(kinds)
    legend_columns = max(1, _COLUMNS * _PANEL_WIDTH // _LEGEND_ENTRY)
    top = 58 + 18 * -(-len(assignors) // legend_columns)
    height = top + panel_height * -(-len(PANELS) // _COLUMNS) + 12
    width = _COLUMNS * _PANEL_WIDTH + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="14" y="26" class="big">{escape(title)}</text>',
        '<text x="14" y="43">means over scenarios; shorter bars are better</text>',
    ]
    for number, name in enumerate(assignors):
        x = 14 + number % legend_columns * _LEGEND_ENTRY
        y = 62 + number // legend_columns * 18
        parts.append(f'<rect x="{x}" y="{y - 9}" width="11" height="11" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{escape(name)}</text>')
    for number, panel in enumerate(PANELS):
        x, y = number % _COLUMNS * _PANEL_WIDTH + 14, top + number // _COLUMNS * panel_height
        parts += _panel(panel, table, x=x, y=y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def draw_html(summary: Sequence[Mapping[str, Any]], *, title: str) -> str:
    """Return a page with the picture and a table of the figures."""
    heads = "".join(f"<th>{escape(panel.title)}</th>" for panel in PANELS)
    rows = []
    for row in summary:
        cells = "".join(f"<td>{_shown(_value(row, panel))}</td>" for panel in PANELS)
        rows.append(
            f"<tr><th>{escape(row['churn'])}</th><th>{escape(row['assignor'])}</th><td>{row['runs']}</td>"
            f"<td>{row['failed']}</td><td>{row['unconverged']}</td>{cells}</tr>"
        )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        "<style>body{font:13px sans-serif;margin:1.5em}table{border-collapse:collapse;margin-top:1em}"
        "td,th{padding:3px 9px;border-bottom:1px solid #ddd;text-align:right}"
        "tbody th{text-align:left;font-weight:normal}svg{max-width:100%;height:auto}</style></head><body>\n"
        f"{draw_svg(summary, title=title)}<table><thead><tr><th>churn</th><th>assignor</th><th>runs</th>"
        f"<th>failed</th><th>not converged</th>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n"
        "</tbody></table></body></html>\n"
    )


def _panel(panel: Panel, table: _Table, *, x: int, y: int) -> list[str]:
    kinds, assignors, values = table
    group = _BAR * len(assignors) + _GAP
    found = {key: _value(row, panel) for key, row in values.items()}
    most = max((value for value in found.values() if value is not None), default=0.0)
    room = _PANEL_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH - 20
    parts = [f'<text x="{x}" y="{y + 16}" class="title">{escape(panel.title)}</text>']
    for place, kind in enumerate(kinds):
        begin = y + 26 + place * group
        middle = begin + group / 2
        parts.append(f'<text x="{x + _LABEL_WIDTH - 8}" y="{middle:.1f}" text-anchor="end">{escape(kind)}</text>')
        for number, name in enumerate(assignors):
            value = found.get((kind, name))
            bar_y = begin + number * _BAR
            left = x + _LABEL_WIDTH
            length = room * value / most if value is not None and most > 0 else 0.0
            tip = f"{kind}, {name}: {_shown(value)}"
            parts.append(
                f'<rect x="{left}" y="{bar_y}" width="{max(length, 0.5):.1f}" height="{_BAR - 1}" '
                f'fill="{_colour(number)}"><title>{escape(tip)}</title></rect>'
            )
            parts.append(
                f'<text x="{left + length + 4:.1f}" y="{bar_y + _BAR - 2}" class="small">{_shown(value)}</text>'
            )
    return parts


def _write_png(path: Path, summary: Sequence[Mapping[str, Any]], title: str) -> None:
    figures = _matplotlib(path)
    kinds, assignors, values = _pivot(summary)
    rows = -(-len(PANELS) // _COLUMNS)
    figure = figures.Figure(figsize=(13, 3.4 * rows), layout="constrained")
    figure.suptitle(f"{title}\nmeans over scenarios; shorter bars are better")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    thickness = 0.8 / max(1, len(assignors))
    for number, panel in enumerate(PANELS):
        axis = axes[number // _COLUMNS][number % _COLUMNS]
        for place, name in enumerate(assignors):
            rows_of = [values.get((kind, name)) for kind in kinds]
            lengths = [0.0 if row is None else _value(row, panel) or 0.0 for row in rows_of]
            offsets = [group + (place - (len(assignors) - 1) / 2) * thickness for group in range(len(kinds))]
            axis.barh(offsets, lengths, thickness, color=_colour(place), label=name)
        axis.set_yticks(range(len(kinds)), kinds)
        axis.invert_yaxis()
        axis.set_title(panel.title)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.savefig(path, format="png", dpi=110)


def _matplotlib(path: Path) -> Any:
    try:
        return importlib.import_module("matplotlib.figure")  # noqa: TID251 - a fixed name
    except ImportError as error:
        raise ConfigException(
            f"picture {path}: PNG needs matplotlib, which is not installed; name a .svg or .html file, "
            "or pip install matplotlib"
        ) from error


def _pivot(summary: Sequence[Mapping[str, Any]]) -> _Table:
    values = {(row["churn"], row["assignor"]): row for row in summary}
    kinds, assignors = dict.fromkeys(kind for kind, _ in values), dict.fromkeys(name for _, name in values)
    return _Table(list(kinds), list(assignors), values)


def _value(row: Mapping[str, Any], panel: Panel) -> float | None:
    value = row[panel.column]
    return None if value is None else float(value) / panel.scale


def _shown(value: float | None) -> str:
    return "failed" if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
