"""What runs give, byte for byte: simulations, deployments and the fault lab, as they were recorded before a move."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")
pytest.importorskip("torch", reason="needs the extra torch")

from tests.oracle import machine
from tests.oracle.called import run
from tests.oracle.record import EXPECTED, differences, expected
from tests.oracle.specs import FAST, SPECS
from tests.oracle.worlds import QUICK, WORLDS, written

from gossamer.version import __version__

CASES = [
    pytest.param(world, name, id=f"{world}-{name}", marks=() if name in QUICK[world] else pytest.mark.slow)
    for world, cases in WORLDS.items()
    for name in cases
]


def recorded(world: str) -> dict[str, Any]:
    """What was recorded of a world, if bytes can be compared here."""
    document = expected(world)
    if document["version"] != __version__:
        pytest.skip(f"recorded with version {document['version']}, whose noise is another; `test_inputs` says so")
    if other := machine.differing(document["machine"]):
        pytest.skip(f"bytes are not promised over machines: {other}")
    cases: dict[str, Any] = document["cases"]
    return cases


@pytest.mark.parametrize(("world", "name"), CASES)
def test_bytes_are_what_they_were(world: str, name: str) -> None:
    """`python -m tests.oracle.record --keep FOLDER`, here and at the commit before, shows what is in the files."""
    before = recorded(world)[name]
    found = WORLDS[world][name](None)
    assert differences(before, found) == []


def test_everything_is_recorded() -> None:
    assert {path.stem for path in EXPECTED.glob("*.json")} == set(WORLDS)
    for world, cases in WORLDS.items():
        assert list(expected(world)["cases"]) == list(cases), world
        assert set(QUICK[world]) <= set(cases), world


def test_another_seed_gives_other_bytes() -> None:
    """So the comparison can fail: all that depends on the seed differs, and nothing else."""
    with written({**SPECS[FAST[0]], "seed": 8}) as spec:
        found = run(spec, "--reproducible")
    with written(SPECS[FAST[0]]) as spec:
        before = run(spec, "--reproducible")
    assert differences(before, found) == [
        "metrics.jsonl",
        "model.safetensors",
        "nodes.json",
        "spec.yaml",
        "summary.json",
        "trace",
        "out",
    ]
