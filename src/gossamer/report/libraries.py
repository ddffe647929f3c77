"""Libraries that draw reports, which are an extra."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gossamer.errors import DataError
from gossamer.extras import install_line


def altair() -> Any:
    """Return the library that charts are made with.

    Raises
    ------
    DataError
        If it is not installed.
    """
    return _needed("altair")


def vl_convert() -> Any:
    """Return the library that draws charts without a browser, and has the code that draws them in one.

    Raises
    ------
    DataError
        If it is not installed.
    """
    return _needed("vl_convert")


def jinja2() -> Any:
    """Return the library that fills in pages.

    Raises
    ------
    DataError
        If it is not installed.
    """
    return _needed("jinja2")


def require_libraries() -> None:
    """Do nothing where all of them are installed, without importing them, which takes seconds.

    Raises
    ------
    DataError
        If one is not.
    """
    for name in ("altair", "vl_convert", "jinja2"):
        if find_spec(name) is None:
            raise _missing(name)


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name) from None


def _missing(name: str) -> DataError:
    return DataError(f"a report needs the package {name}, which is not installed: {install_line('report')}")
