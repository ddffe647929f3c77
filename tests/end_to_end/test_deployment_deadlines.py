"""Parties that train a network, as real processes: their answers have a deadline, and their guarantees say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

import gossamer as gs
from gossamer.cli import main
from gossamer.privacy.mechanisms import OPEN_TIMES, PUBLIC_TIMES

pytestmark = [pytest.mark.usefixtures("called_here"), pytest.mark.slow]

SPEC = """
dataset: digits
objective: mlp
algorithm: {name: gossip, topology: complete, nodes: 2, batch_size: 4, updates_per_node: 5}
privacy: {clip: 1.0}
budget: {epsilon: 3, delta: 1.0e-5}
"""
UPDATES = 5


def up(more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summaries of the parties, and of the simulation."""
    Path("spec.yaml").write_text(SPEC + more, encoding="utf-8")
    assert main(["up", "spec.yaml", "--out", "up", "--json"]) == 0
    parties = {
        path.parent.parent.name: json.loads(path.read_text()) for path in Path("up").glob("*/state/summary.json")
    }
    return parties, gs.run(gs.read_spec(Path("spec.yaml"))).summary


def logs() -> list[str]:
    return [path.read_text() for path in Path("up").glob("*/state/node.log")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", PUBLIC_TIMES),
        ("deployment: {release_deadline: 0.4}", PUBLIC_TIMES),
        ("deployment: {release_deadline: off}", OPEN_TIMES),
    ],
    ids=["measured", "given", "off"],
)
def test_a_network_in_two_processes(more: str, said: str) -> None:
    parties, simulated = up(more)
    assert len(parties) == 2
    nodes = simulated["privacy"]["nodes"]
    for name, summary in parties.items():
        privacy = summary["privacy"]
        assert summary["finished"] == "quota"
        assert privacy["releases"] == UPDATES
        assert privacy["epsilon"] == pytest.approx(nodes[name]["epsilon"], rel=1e-12)
        assert said in privacy["guarantee"]["assumptions"]
        assert 1e-5 <= privacy["guarantee"]["delta"] <= 1e-5 * (1 + 1e-11)  # late answers are far below rounding
    measured = ["answers go at multiples of a deadline" in log for log in logs()]
    assert measured == [more == ""] * 2
