"""A federation over a folder or a bucket does what it does over a broker; with a day of delay a run still ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fsspec", reason="needs the extra store")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.parity import test_deployed_parity as over_mqtt
from tests.reference.bucket_server import served
from tests.reference.deployed_runs import Run, deployed
from tests.reference.deployments import QUICK, experiment

import gossamer as gs

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")

SAMPLES = "nodes: 4, batch_size: 32, updates_per_node: 6"
SPECS = {
    "gossip": f"algorithm: {{name: gossip, topology: ring, {SAMPLES}}}\nbudget: {{epsilon: 8, delta: 1.0e-4}}",
    "audp": f"algorithm: {{name: audp, {SAMPLES}}}\nbudget: {{epsilon: 8, delta: 1.0e-4}}",
}


PATIENT = ("--gone-after", "120", "--wait", "60", "--connect-timeout", "60")
"""Options of parties that write seldom that they are there: a server of the tests' own is slow."""


@pytest.fixture(scope="module", params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An address."""
    if request.param == "folder":
        yield f"file://{tmp_path_factory.mktemp('share').resolve()}?poll=0.05"
        return
    with pytest.MonkeyPatch.context() as patch:
        yield from (f"{bucket}?poll=0.5" for bucket in served(patch))


@pytest.fixture(scope="module", params=sorted(SPECS))
def run(request: pytest.FixtureRequest, store: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("parity").resolve() / "f"
    return deployed(experiment(SPECS[request.param]), folder, store, PATIENT if store.startswith("s3:") else QUICK)


@pytest.mark.slow
def test_everybody_releases_what_the_simulated_node_does(run: Run) -> None:
    over_mqtt.test_everybody_finishes_and_releases_what_the_simulated_node_does(run, "gossip")


@pytest.mark.slow
def test_the_trace_replays_through_the_simulators_nodes(run: Run) -> None:
    """As that of a run over a broker does: what crossed the store is all that a node went by."""
    over_mqtt.test_a_trace_replays_through_the_simulators_nodes(run)


@pytest.mark.slow
def test_the_model_is_as_good_as_a_simulated_one(run: Run) -> None:
    spec = run.federation.prepared.experiment
    simulations = [gs.run(spec.model_copy(update={"seed": seed})).summary for seed in over_mqtt.SEEDS]
    over_mqtt.test_the_model_is_as_good_as_a_simulated_one(run, simulations)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_with_a_days_delay_it_finishes(name: str) -> None:
    day = 86_400.0
    delayed = f"{SPECS[name]}\nlinks: {{latency: {day}, retry_after: {2.5 * day}, silence: {30 * day}}}"
    slow, quick = (gs.run(experiment(spec)).summary for spec in (delayed, SPECS[name]))
    assert set(slow["finished"].values()) == set(quick["finished"].values())
    releases = [{node: one["releases"] for node, one in found["privacy"]["nodes"].items()} for found in (slow, quick)]
    assert releases[0] == releases[1]
    epsilons = [{node: one["epsilon"] for node, one in found["privacy"]["nodes"].items()} for found in (slow, quick)]
    assert epsilons[0] == epsilons[1]
