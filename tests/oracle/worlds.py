"""Everything whose bytes are recorded, case by case: what is run, and the hashes that it gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.oracle import called
from tests.oracle.called import EXAMPLES, ROOT, Hashes
from tests.oracle.specs import COMMANDS, FAST, ON_SPECS, SPECS, WITH_SECRET

Case = Callable[[Path | None], Hashes]
"""Gives the hashes of one case; with a folder, it also keeps there what was hashed."""


@contextmanager
def written(spec: Mapping[str, Any]) -> Iterator[Path]:
    """A spec as a file."""
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(yaml.safe_dump(dict(spec), sort_keys=False), encoding="utf-8")
        yield path


def _example(name: str) -> Case:
    def case(keep: Path | None) -> Hashes:
        path = ROOT / "examples" / f"{name}.yaml"
        return called.run(path, "--reproducible", keep=keep) | called.check(path, keep=keep)

    return case


def _spec(name: str) -> Case:
    def case(keep: Path | None) -> Hashes:
        with written(SPECS[name]) as path:
            return called.run(path, "--reproducible", keep=keep) | called.check(path, keep=keep)

    return case


def _with_secret(name: str) -> Case:
    """A run whose noise comes from a secret, and its repeat."""

    def case(keep: Path | None) -> Hashes:
        from tests.oracle.handles import known_secret

        with written(SPECS[name]) as path, known_secret():
            return called.run(path, keep=keep)

    return case


def _command(line: str) -> Case:
    return lambda keep: called.command(*line.split(), keep=keep)


def _on_spec(name: str, line: str) -> Case:
    """A command about a spec, whose files are hashed too."""

    def case(keep: Path | None) -> Hashes:
        with written(SPECS[name]) as path:
            words = [str(path) if word == "SPEC" else word for word in line.split()]
            return called.command(*words, writes=True, keep=keep)

    return case


def _deployed(name: str) -> Case:
    def case(keep: Path | None) -> Hashes:
        from tests.oracle.deployed import run

        return run(name)

    return case


def _faults(name: str) -> Case:
    def case(keep: Path | None) -> Hashes:
        from tests.oracle.faults import run

        return run(name, keep)

    return case


def _tables() -> dict[str, dict[str, Case]]:
    from tests.oracle.deployed import DEPLOYED
    from tests.oracle.faults import FAULTS

    return {
        "examples": {name: _example(name) for name in EXAMPLES},
        "simulations": {name: _spec(name) for name in SPECS},
        "secret": {name: _with_secret(name) for name in WITH_SECRET},
        "commands": {
            **{name: _command(line) for name, line in COMMANDS.items()},
            **{name: _on_spec(*about) for name, about in ON_SPECS.items()},
        },
        "deployments": {name: _deployed(name) for name in DEPLOYED},
        "faults": {name: _faults(name) for name in FAULTS},
    }


WORLDS = _tables()
"""Cases by world and name."""
QUICK = {
    "examples": (),
    "simulations": FAST,
    "secret": ("graph-secure-agent-noise",),
    "commands": ("plan-mapa",),
    "deployments": ("graph-walk", "side of gossip"),
    "faults": ("gossip", "increasing"),
}
"""What is compared whenever tests run."""
