"""What takes a while to make, made once: the results of a run, and a federation whose broker is not there."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import gossamer as gs
from gossamer.experiment.specs.spec_file import read_text

RUN = """
dataset: digits
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 3}
budget: {epsilon: 8, delta: 1.0e-4}
"""

DEPLOYED = """
dataset: digits
algorithm: {name: audp, nodes: 2, batch_size: 32, updates_per_node: 20}
budget: {epsilon: 10, delta: 1.0e-4}
"""


def copied(what: str, folder: Path) -> None:
    """Copy what a case needs to its folder."""
    shutil.copytree(_MAKE[what](), folder / what)


@cache
def _home() -> Path:
    """A folder that goes when the process does."""
    kept = tempfile.TemporaryDirectory(prefix="gossamer-bad-inputs-")
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _results() -> Path:
    out = _home() / "results"
    (_home() / "spec.yaml").write_text(RUN)
    gs.run(gs.read_spec(_home() / "spec.yaml"), out)
    return out


@cache
def _wards() -> Path:
    """Results of a run on a table whose columns are declared."""
    from tests.end_to_end.bad_inputs import tables

    out, spec = _home() / "wards", _home() / "wards.yaml"
    (_home() / "rows.csv").write_text(tables.table())
    spec.write_text(tables.declared())
    gs.run(gs.read_spec(spec), out)
    return out


@cache
def _federation() -> Path:
    from gossamer.cli.federation.local_federation import LocalFederation

    LocalFederation.found(read_text(DEPLOYED), _home() / "federation", "mqtt://127.0.0.1:1")
    return _home() / "federation"


_MAKE = {"results": _results, "federation": _federation, "wards": _wards}
