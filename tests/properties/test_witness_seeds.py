"""Faults of all kinds, with witnesses: nobody who is honest is accused, and nobody who comes back has forgotten."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.properties.test_fault_seeds import trial
from tests.reference.failing import first_failure
from tests.reference.witnessed_hosts import WitnessedHosts, witnessed_trial
from tests.sampling import examples

from gossamer.faults import trials


@pytest.mark.parametrize(
    ("name", "seeds"), [("gossip", 200), ("fedbuff", 200), ("d_psgd", 120), ("masked", 60), ("graph_federated", 80)]
)
def test_no_seed_accuses_an_honest_party(name: str, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[WitnessedHosts] = []
    witnessed, kind = witnessed_trial(trial(name), seen)
    monkeypatch.setattr(trials, "LinkedHosts", kind)
    failure = first_failure(witnessed, range(examples(seeds)))
    assert failure is None, str(failure)
    assert sum(hosts.bytes_of_notes for hosts in seen) > 0
    # Members of masked sums send one message a round, so theirs hardly overtake each other.
    assert name == "masked" or any(hosts.verdicts for hosts in seen), "some notes come late"
