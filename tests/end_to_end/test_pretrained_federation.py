"""Federations whose parties start from a file: all from one, and from no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli import main
from gossamer.deployment.party.agreement import PartyOptions, accept, experiment_of
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.keys.invitations import read_signed

pytestmark = pytest.mark.usefixtures("called_here")

ARRAYS = {"weight": np.full((10, 64), 0.25, np.float32), "bias": np.arange(10, dtype=np.float32)}
SPEC = """
dataset: digits
objective: {pretrained: model.safetensors}
algorithm: {name: audp, batch_size: 20, updates_per_node: 4}
privacy: {noise_multiplier: 1}
"""


@pytest.fixture(autouse=True)
def _files(called_here: None) -> None:
    Path("organiser").mkdir()
    Path("organiser/spec.yaml").write_text(SPEC)
    Path("organiser/model.safetensors").write_bytes(save(ARRAYS))


def founded(*more: str) -> int:
    return main(
        [
            *("federation", "new", "f", "--spec", "organiser/spec.yaml", "--nodes", "a,b"),
            *("--examples", "a=300,b=200", "--broker", "mqtts://broker.example.org:8883", *more),
        ]
    )


def server(**changes: Any) -> PartyOptions:
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    return PartyOptions(**{"invitation": Path("f/server/invitation.yaml"), "organiser": organiser, **changes})


def test_the_invitation_binds_the_file_and_each_party_has_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert founded() == 0
    assert "start.safetensors goes to every party, beside the invitation" in " ".join(capsys.readouterr().err.split())
    assert Path("f/start.safetensors").read_bytes() == save(ARRAYS)
    assert "model.safetensors" not in read_signed("f/federation.yaml").spec
    Path("f/server/start.safetensors").write_bytes(save(ARRAYS))
    Path("elsewhere").write_bytes(save(ARRAYS))
    for options in (server(), server(pretrained=Path("elsewhere"))):
        node = accept(options).agreed.nodes()["server"]
        assert node.state.x.values.tolist() == [*ARRAYS["weight"].ravel(), *ARRAYS["bias"]]
    assert main(["federation", "show", "f/server/invitation.yaml"]) == 0
    assert main(["federation", "show", "f/a/invitation.yaml", "--pretrained", "elsewhere"]) == 0
    assert main(["federation", "add", "f", "--node", "d", "--examples", "d=300"]) == 0
    assert main(["federation", "renew", "f"]) == 0
    assert "sha256" in read_signed("f/d/invitation.yaml").spec


def test_another_file_is_refused_before_anything_is_joined() -> None:
    assert founded() == 0
    with pytest.raises(SpecError, match=r"cannot be read .*a party: --pretrained FILE") as raised:
        accept(server())
    assert "\n" not in str(raised.value)
    Path("f/server/start.safetensors").write_bytes(save({**ARRAYS, "bias": np.ones(10, np.float32)}))
    with pytest.raises(SpecError, match=r"expected SHA-256 \w+, found \w+; give the file that was agreed on"):
        accept(server())
    # Whoever changed the spec of an invitation would break its signature, and one that names a path is refused.
    invitation = read_signed("f/server/invitation.yaml")
    spec = read_text(invitation.spec, ["objective.pretrained.path=/etc/hostname"])
    assert spec.objective.pretrained is not None
    with pytest.raises(SpecError, match=r"objective\.pretrained\.path: this file is on one machine"):
        experiment_of(replace(invitation, spec=write_spec(spec)))


def test_a_file_where_none_was_agreed_on_is_refused() -> None:
    Path("organiser/spec.yaml").write_text(SPEC.replace("objective: {pretrained: model.safetensors}", ""))
    assert founded() == 0
    assert not Path("f/start.safetensors").exists()
    with pytest.raises(CallerError, match="start from a model that is drawn; leave out --pretrained"):
        accept(server(pretrained=Path("organiser/model.safetensors")))


@pytest.mark.parametrize("content", [None, save({"weight": ARRAYS["weight"]})])
def test_an_organiser_is_told_at_once(content: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("organiser/model.safetensors").unlink()
    if content is not None:
        Path("organiser/model.safetensors").write_bytes(content)
    assert founded() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gossamer: error: objective.pretrained: ")
    assert ("expected 'bias' [10]" if content else "cannot be read") in line
    assert not Path("f").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
def test_a_deployed_run_starts_there(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="needs the extra broker")
    from tests.reference.deployments import QUICK, experiment

    from gossamer.algorithms.clients.nodes import NewestAtClip
    from gossamer.cli.federation.local_federation import LocalFederation
    from gossamer.protocol.effects import Send
    from gossamer.protocol.trace import read_steps
    from gossamer.runtimes.mqtt.broker import EmbeddedBroker

    text = SPEC.replace("model.safetensors", str(tmp_path / "organiser" / "model.safetensors"))
    with EmbeddedBroker() as broker:
        spec = experiment(text.replace("name: audp", "name: audp, nodes: 2, optimizer: adam"))
        federation = LocalFederation.found(spec, tmp_path / "up", broker.url)
        trace = tmp_path / "trace.bin"
        more = {"server": ("--trace", str(trace)), "node-0": (), "node-1": ()}
        found = federation.run(lambda line: None, more={name: (*QUICK, *own) for name, own in more.items()})
    assert not found.failed
    with trace.open("rb") as file:
        sent = [effect.message for step in read_steps(file) for effect in step.effects if isinstance(effect, Send)]
    first = next(message for message in sent if isinstance(message, NewestAtClip))
    assert first.version == 0
    assert first.model.values.tolist() == [*ARRAYS["weight"].ravel(), *ARRAYS["bias"]]
    server = federation.nodes()["server"]
    assert server.state.memory.steps == server.state.t == 8
