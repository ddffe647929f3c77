"""Asynchronous, decentralised, differentially private federated learning.

>>> import gossamer as gs
>>> result = gs.run(gs.Experiment(dataset="digits", budget=gs.Budget(epsilon=5, delta=1e-4)))  # doctest: +SKIP
>>> print(result.guarantee)  # doctest: +SKIP

The file `__init__.pyi` says which names there are. A name is imported when it is first asked for, so that ``import
gossamer`` and the command's ``--help`` are quick.
"""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gossamer.protocol.registries import known_by

for _module in ("gossamer.algorithms.table", "gossamer.experiment.runs.repeats", "gossamer.privacy.masking"):
    known_by(_module)  # what was stored or sent may be read where nothing else was imported

# Who wants to read what is logged says where it goes; a library writes nowhere by itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())


@cache
def _places() -> dict[str, str]:
    """Module of each name, by lines of `__init__.pyi`."""
    text = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", text, re.MULTILINE)}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_places())
    if name not in _places():
        near = "" if name.startswith("_") else _nearest(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near}")
    found = globals()[name] = getattr(import_module(_places()[name]), name)
    return found


def _nearest(name: str) -> str:
    near = get_close_matches(name, _places(), 1)
    return f"; did you mean {near[0]}?" if near else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *_places()})
