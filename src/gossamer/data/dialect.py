"""The dialect of a CSV file: what separates cells, decimals, letters, and whether it begins with names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from gossamer.section import Section

_NAMED = {"tab": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}


def _separator(text: str) -> str:
    found = _NAMED.get(text, text)
    if len(found) != 1 or found.isalnum() or found in "\"'\r\n.+-_":
        raise ValueError("separator must be one sign such as ';', or tab")
    return found


def _encoding(name: str) -> str:
    try:
        "a".encode(name)
    except (LookupError, UnicodeError, ValueError):
        raise ValueError("encoding must be that of a text, such as utf-8, latin-1 or windows-1252") from None
    return name


class CsvSettings(Section):
    """Dialect of a CSV file.

    Attributes
    ----------
    separator : str
        Stands between cells: one sign, or ``tab``.
    decimal : str
        Stands before the decimals of numbers: a point or a comma.
    encoding : str
        How letters are written, such as ``latin-1``.
    header : bool, optional
        Whether the first row has the columns' names. Without it columns are called ``0``, ``1``, ... By default it has,
        and a first row that has numbers, dates or the like in it is refused.
    row_names : bool, optional
        Whether each row below the header begins with a cell that has no name there, as R's ``write.table`` writes; it
        is left out.
    """

    separator: Annotated[str, AfterValidator(_separator)] = ","
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    header: bool | None = None
    row_names: bool | None = None

    @property
    def in_utf8(self) -> bool:
        """Whether letters are written in UTF-8."""
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")

    @model_validator(mode="after")
    def _decimals_do_not_separate(self) -> CsvSettings:
        if self.separator == self.decimal:
            raise ValueError("a comma cannot stand between cells and in numbers; say separator: ';' as well, or tab")
        if self.row_names and self.header is False:
            raise ValueError(
                "row_names is about files with a header, and header: false says there is none; leave one out"
            )
        return self
