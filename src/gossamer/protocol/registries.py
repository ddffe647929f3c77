"""Modules whose import registers types with `encoding`: imported once a type is met that is not known yet.

It imports nothing, so naming a module here costs nothing until bytes are read that need it.
"""

from __future__ import annotations

from importlib import import_module

_NAMED: list[str] = []


def known_by(module: str) -> None:
    """Let types that are not known be looked for in ``module``, by its full name."""
    if module not in _NAMED:
        _NAMED.append(module)


def import_all() -> None:
    """Import the modules that were named; those that were imported before are not imported again."""
    for module in _NAMED:
        import_module(module)
