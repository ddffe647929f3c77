"""A party that joins a federation while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, experiment, keep_history, parties, until
from tests.reference.reissued import reissue

from gossamer.cli import main
from gossamer.cli.federation.local_federation import DATA, POLICY, LocalFederation
from gossamer.protocol.node import Node
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

LATE = "late"
UPDATES = 1500
OPTIONS = f"batch_size: 32, updates_per_node: {UPDATES}"
SPECS = {
    "gossip": f"algorithm: {{name: gossip, nodes: 3, topology: ring, {OPTIONS}}}",
    "audp": f"algorithm: {{name: audp, nodes: 3, {OPTIONS}}}",
    "allreduce": f"algorithm: {{name: allreduce, nodes: 3, {OPTIONS}}}",
}
REST = "\ndataset: digits\nbudget: {epsilon: 30, delta: 1.0e-4}\nlinks: {retry_after: 0.5}\n"


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Parties]:
    """A federation in the midst of its run."""
    with EmbeddedBroker() as broker:
        federation = LocalFederation.found(experiment(SPECS[request.param] + REST), tmp_path / "f", broker.url)
        with parties(federation, ("--gone-after", "120", "--wait", "30")) as there:
            keep_history(there)
            there.start()
            for name in there.names:
                until(lambda name=name: there.updates(name) > 0 or name == "server", f"{name} to run")
            yield there


def invite(there: Parties, capsys: pytest.CaptureFixture[str]) -> int:
    """The organiser lets another party in; its exit code."""
    folder, examples = there.federation.folder, len(there.federation.prepared.shards[0])
    code = main(["federation", "add", str(folder), "--nodes", LATE, "--examples", f"{LATE}={examples}"])
    capsys.readouterr()
    return code


def join(there: Parties) -> None:
    """It has examples of its own, and starts."""
    folder = there.federation.folder
    with np.load(folder / there.names[0] / DATA) as data:
        arrays = {name: data[name].copy() for name in data.files}
    arrays["train_features"] = arrays["train_features"] * np.float32(0.9)
    np.savez(folder / LATE / DATA, **arrays)
    policy = (folder / there.names[0] / POLICY).read_text()
    (folder / LATE / POLICY).write_text(policy.replace(there.names[0], LATE))
    there.start(LATE, more=("--data", str(folder / LATE / DATA), "--policy", str(folder / LATE / POLICY)))


def nodes(there: Parties) -> dict[str, Node]:
    there.federation.members = (*there.names, LATE)
    return there.federation.nodes()


@pytest.mark.nightly
@pytest.mark.parametrize("there", ["gossip", "audp"], indirect=True)
def test_one_that_joins_takes_part(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """Those who run notice the newer invitation by themselves; one that was stopped does when it is started again."""
    stopped = there.names[1]
    assert main(["stop", str(there.folder(stopped).path)]) == 0
    there.join(stopped)
    assert invite(there, capsys) == 0
    join(there)
    there.start(stopped)
    everybody = (*there.names, LATE)
    until(lambda: there.updates(LATE) > 0, f"updates of the one that joined: {there.output(LATE)}")
    there.finish(*everybody, patience=400.0)
    for name in there.names:
        assert "goes on by a newer invitation" in there.log(name), there.log(name)
        assert "Traceback" not in there.output(name)
    near = "server" if "server" in there.names else there.names[0]
    assert there.status(near)["peers"][LATE]["finished"] == "quota"
    found = nodes(there)
    assert all(getattr(node.state, "updates", UPDATES) == UPDATES for node in found.values())
    if "server" in found:
        assert found["server"].state.t == 4 * UPDATES
    else:
        assert found[LATE].state.exchanges > 0
        models = np.array([node.state.w.values for node in found.values()])
        assert np.all(np.isfinite(models))


@pytest.mark.nightly
@pytest.mark.parametrize("there", ["gossip"], indirect=True)
def test_a_newer_invitation_that_cannot_be_accepted(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """To another run, or one that is cut off: those who run say so and go on."""
    name, folder = there.names[0], there.federation.folder
    file = folder / name / "invitation.yaml"
    file.write_bytes(file.read_bytes()[:300])
    until(lambda: "is no invitation any more" in there.log(name), "the damage to be noticed")
    there.finish(patience=400.0)


@pytest.mark.parametrize("there", ["allreduce"], indirect=True)
def test_an_algorithm_whose_nodes_are_counted(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody can join, and nothing is written; were it, those who run would say so and go on without."""
    folder = there.federation.folder
    invitation = folder / there.names[0] / "invitation.yaml"
    before = invitation.read_bytes()
    assert main(["federation", "add", str(folder), "--nodes", LATE, "--examples", f"{LATE}=300"]) == 2
    assert "nobody can join a run of allreduce that has begun" in capsys.readouterr().err
    assert invitation.read_bytes() == before
    assert not (folder / LATE).exists()

    reissue(folder, {LATE: 300})
    for name in there.names:
        until(lambda name=name: "does not accept the newer invitation" in there.log(name), f"{name} to say so")
        assert "nobody can join a run of allreduce that has begun" in there.log(name)
    there.finish(patience=400.0)
