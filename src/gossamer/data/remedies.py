"""Remedies for rows that cannot be read: of the spec while there is one, and of the file once there is a model."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.data.columns import Column
from gossamer.data.dialect import CsvSettings


def of_cell(name: str, column: Column, *, empty: bool, declared: bool, trained: bool) -> str:
    """Say what to do about a cell of a column.

    Parameters
    ----------
    name : str
        The column's.
    column : Column
        As it was declared, or a number.
    empty : bool
        Whether the cell says nothing.
    declared : bool
        Whether a spec declares the columns.
    trained : bool
        Whether a model reads the rows, so that no declaration can be changed.
    """
    act = "fill it in" if empty else "correct it"
    if trained:
        return f"{act}, or leave the row out"
    if not declared:
        return "declare what its cells are under dataset.columns, or name the column under 'ignore'"
    if empty:
        filling = {"category": (column.categories or ("",))[0], "boolean": "false"}
        value = filling.get(column.kind, f"{column.shift_and_unit[0]:g}")
        return f"{act}, or say in dataset.columns.{name} what it is read as, such as missing: {value}"
    if column.kind == "category":
        return f"{act}, or add it to dataset.columns.{name}"
    if column.kind == "boolean":
        return f"{act}, or declare its texts: dataset.columns.{name}: [A, B]"
    return f"{act}, or leave {name} out of dataset.columns"


def of_letters(name: str, names: Sequence[str], csv: CsvSettings, *, trained: bool) -> str:
    """The end of an error about an absent column that is there if the file is in UTF-8; otherwise nothing."""
    try:
        seen = {text.encode().decode(csv.encoding) for text in (name, f"\ufeff{name}")} - {name}
    except UnicodeError:
        return ""
    if csv.in_utf8 or not seen & set(names):
        return ""
    return (
        f": the file is in UTF-8, and {of_dialect(csv)}"
        if trained
        else (f": the file is in UTF-8, and is read as {csv.encoding}; say dataset.csv: {{encoding: utf-8}}")
    )


def of_dialect(csv: CsvSettings) -> str:
    """Say how files for a model are written."""
    sign = {",": "commas", "\t": "tabs"}.get(csv.separator, repr(csv.separator))
    comma = " and a decimal comma" if csv.decimal == "," else ""
    return f"this model reads files with {sign} between cells{comma}, in {csv.encoding}; save it so"
