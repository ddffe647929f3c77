"""Federations whose parties find the scale of a table together, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli.federation.local_federation import POLICY, TABLE, LocalFederation
from gossamer.deployment.founding.invitations import read_signed
from gossamer.deployment.founding.scale_papers import write_release
from gossamer.deployment.party.agreement import Agreed, Terms
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import accept
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.scaling import agreed_ranges, combined, release_scale
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.experiment.spec import Experiment
from gossamer.keys.identity import Identity

NODES, DELTA = 3, 1e-5
A, B = "node-0", "node-1"


def spec_of(path: Path, **more: Any) -> Experiment:
    """Of three owners with columns of very different magnitudes, written as a file."""
    generator = np.random.default_rng(5)
    sizes, weights = generator.uniform(1e4, 5e4, 240), generator.uniform(0.01, 0.03, 240)
    rows = (
        f"{a:.6g},{b:.6g},{'ab'[i % 2]},o{i % NODES},{int(a > 3e4)}" for i, (a, b) in enumerate(zip(sizes, weights))
    )
    path.write_text("size,weight,kind,owner,good\n" + "\n".join(rows) + "\n")
    dataset = {
        "name": "things",
        "path": path,
        "target": "good",
        "owner": "owner",
        "labels": [0, 1],
        "columns": {"size": "number", "kind": ["a", "b"], "weight": "number"},
        "scale": {"name": "private", "share": 0.5},
    }
    given = {
        "dataset": dataset,
        "partition": "natural",
        "algorithm": {"name": "gossip", "nodes": NODES, "batch_size": 20, "updates_per_node": 10},
        "objective": "logistic",
        "budget": {"epsilon": 3.0, "delta": DELTA},
    }
    return Experiment.model_validate(given | more)


WITHOUT_NOISE: dict[str, Any] = {"privacy": {"mechanism": "none"}, "budget": None}


@dataclass
class Parties:
    """A founded federation, none of whose processes run."""

    made: LocalFederation

    def place(self, name: str) -> Path:
        return self.made.folder / name

    def options(self, name: str, **more: Any) -> PartyOptions:
        place = self.place(name)
        given = {"organiser": self.made.organiser, "data": place / TABLE, "policy": place / POLICY, "quiet": True}
        return PartyOptions(place / "invitation.yaml", **given | more)

    @property
    def agreed(self) -> Agreed:
        return Agreed.on(Terms.of(read_signed(self.made.folder / "federation.yaml")))

    def key(self, name: str) -> Identity:
        return Identity.load(self.place(name) / "identity.key")

    @property
    def organiser(self) -> Identity:
        return Identity.load(self.made.folder / "organiser.key")

    def release(self) -> dict[str, bytes]:
        """Release of each party."""
        return {name: release_scale(self.options(name)).read_bytes() for name in self.made.prepared.names}

    def signed(self, name: str, values: list[float], key: str = "") -> bytes:
        """A release that a party could have signed, whatever its data say."""
        return write_release(self.key(key or name), self.agreed.terms.invitation, name, np.array(values)).encode()

    def hand_round(self) -> bytes:
        """All release, and get what that comes to."""
        text, _ = combined(self.agreed, self.release(), self.organiser)
        for name in self.made.members:
            (self.place(name) / "scale.yaml").write_text(text)
        return text.encode()

    @contextmanager
    def held(self, name: str, *, scaled: bool) -> Iterator[DataHeld]:
        """What a party holds before its node calls the broker; or before the scale is found."""
        options = self.options(name)
        invited, folder = accept(options), StateFolder(options.state)
        folder.take()
        try:
            ranges = agreed_ranges(options, invited, folder) if scaled else {}
            with closing(DataHeld(options, invited, folder, ranges)) as held:
                yield held
        finally:
            folder.give_back()

    def starts(self, name: str) -> None:
        """All that a node does before it calls the broker."""
        with self.held(name, scaled=True):
            pass


def founded(tmp_path: Path, **more: Any) -> Parties:
    return Parties(LocalFederation.found(spec_of(tmp_path / "t.csv", **more), tmp_path / "f", "mqtt://127.0.0.1:1"))
