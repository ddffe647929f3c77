"""Values as notebooks show them: a heading, a table and more to open, in the colours that the notebook has.

Nothing is fetched, and every text is escaped: names come from data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

Rows = Mapping[str, str]
"""Cells of a table by the heading of their row."""


def card(title: str, rows: Rows, more: Iterable[str] = ()) -> str:
    """Return a box with a ``title``, a table, and further HTML such as `opened` and other cards give."""
    return f'<div style="{_BOX}"><strong>{escape(title)}</strong>{_table(rows)}{"".join(more)}</div>'


def opened(summary: str, lines: Sequence[str]) -> str:
    """Return a list that is shown once its ``summary`` is chosen; nothing where there are no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{escape(summary)}</summary><ul>{items}</ul></details>" if lines else ""


def verbatim(summary: str, text: str) -> str:
    """Return a text whose lines stay as they are, shown once its ``summary`` is chosen."""
    return f'<details><summary>{escape(summary)}</summary><pre style="{_PRE}">{escape(text)}</pre></details>'


def _table(rows: Rows) -> str:
    lines = (
        f'<tr style="background:none"><th scope="row" style="{_HEAD}">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'<table style="border-collapse:collapse;margin:.3em 0">{"".join(lines)}</table>' if rows else ""


# No colour is named but that of the text around, so that a box is as readable as its notebook, by day and by night.
_BOX = "border:1px solid;border-radius:.4em;padding:.5em .8em;margin:.3em 0;max-width:52em;overflow-wrap:anywhere"
_HEAD = "text-align:left;font-weight:normal;opacity:.75;padding:.1em 1em .1em 0;vertical-align:top;white-space:nowrap"
_CELL = "text-align:left;padding:.1em 0"
_PRE = "white-space:pre-wrap;margin:.3em 0"
