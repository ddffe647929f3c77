"""Personal models of parties: each in its own folder, with a note, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.oracle.deployed import federation
from tests.reference.run_of_hosts import run as run_of_hosts

import gossamer as gs
from gossamer.deployment.party.reporting import PERSONAL, write_results
from gossamer.experiment.results.personalisation import NOTE, personal_models
from gossamer.privacy.guarantee_card import read_guarantee_card
from gossamer.protocol.encoding import encode
from gossamer.protocol.trace import TraceStep

pytestmark = pytest.mark.usefixtures("called_here")

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedbuff", "nodes": 3, "updates_per_node": 2, "buffer": 2},
    "privacy": {"clip": 0.5, "noise_multiplier": 4.0},
}
SETTINGS = {"steps": 5, "learning_rate": 0.05}


def deployed(folder: Path, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each party has left, by its name, and what its node did and kept: steps and journal."""
    steps: dict[str, list[bytes]] = {}
    left, kept = {}, {}

    def watch(step: TraceStep) -> None:
        steps.setdefault(step.node, []).append(encode(step))

    with federation({**SPEC, **more}, folder) as found:
        hosts = found.hosts(watch)
        run_of_hosts(hosts)
        for party, held in found.held.items():
            summary = write_results(found.folders[party], held.agreed, hosts[party], held, "")
            left[party] = (found.folders[party].path, summary, held)
            journal = hosts.journals[party]
            kept[party] = (steps[party], journal.base, list(journal.entries))
    return left, kept


def test_each_party_keeps_its_personal_model_to_itself(tmp_path: Path) -> None:
    left, kept = deployed(tmp_path / "f", personalisation=SETTINGS)
    personal = {}
    for party, (path, summary, held) in left.items():
        written = json.loads((path / "summary.json").read_text())
        assert written.get("personalisation") == summary.get("personalisation")
        if party == "server":  # it has no examples
            assert not (path / PERSONAL).exists()
            assert "personalisation" not in summary
            assert not (path / "guarantee.json").exists()
            continue
        card = read_guarantee_card((path / "guarantee.json").read_text(), path)
        assert card.guarantees[0].epsilon == summary["privacy"]["guarantee"]["epsilon"]
        arrays, released = load_file(path / PERSONAL), load_file(path / "model.safetensors")
        own, final = (np.concatenate([of["weight"].ravel(), of["bias"]]) for of in (arrays, released))
        personal[party] = own
        settings = held.agreed.prepared.experiment.personalisation
        expected = personal_models(held.agreed.prepared, settings, [party], final[None])[0]
        np.testing.assert_array_equal(own, expected)
        assert np.abs(own - final).max() > 1e-3
        with safe_open(path / PERSONAL, "np") as file:
            assert json.loads(file.metadata()["gossamer"])["note"] == NOTE
        assert (path / PERSONAL).stat().st_mode & 0o077 == 0
        deployed_model, own_model = gs.load_model(path), gs.load_model(path / PERSONAL)
        assert deployed_model.card.owners == held.agreed.names
        assert (deployed_model.card.note, own_model.card.note) == (None, NOTE)
        np.testing.assert_array_equal(own_model.vector, own)
        pixels = 16 * held.agreed.prepared.dataset.train.features[:3]
        assert set(deployed_model.predict(pixels)) <= set(map(str, range(10)))
        assert NOTE in (path / "node.log").read_text()
        assert summary["personalisation"]["note"] == NOTE
    assert len({model.tobytes() for model in personal.values()}) == 3
    done = [content for steps, base, entries in kept.values() for content in (*steps, base or b"", *entries)]
    assert any(final.tobytes()[:64] in content for content in done)  # which is how a model looks in there
    for model in personal.values():
        assert not any(model.tobytes()[:64] in content for content in done)


def test_nodes_do_and_are_charged_the_same_without(tmp_path: Path) -> None:
    """Steps, journals, released models, and all that summaries say of privacy."""
    with_, kept = deployed(tmp_path / "f", personalisation=SETTINGS)
    without, kept_without = deployed(tmp_path / "g")
    assert kept.keys() == kept_without.keys()
    for party, (steps, _, _) in kept.items():
        assert len(steps) == len(kept_without[party][0])
        (path, summary, _), (other, plain, _) = with_[party], without[party]
        assert (path / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
        assert _said(summary) == _said(plain)


def _said(summary: dict[str, Any]) -> Any:
    return {name: value for name, value in summary.items() if name not in ("run", "personalisation")}
