"""Rules of specs with clients that are the same for all of their algorithms, and what is said of weak settings."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli import main
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.faults.trials import small_runs

NAMES = ("fedavg", "fedbuff", "fedasync")


def spec(name: str, privacy: Any = None, **algorithm: Any) -> dict[str, Any]:
    return {
        "dataset": "digits",
        "algorithm": {"name": name, "nodes": 6, **algorithm},
        "privacy": {"clip": 0.5, "noise_multiplier": 8.0, **(privacy or {})},
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("privacy", [{}, {"mechanism": "none", "noise_multiplier": None}])
def test_a_sampling_that_means_nothing_is_refused_where_somebody_said_it(name: str, privacy: Any) -> None:
    """Specs that Gossamer writes have every key, and are read again; so are those of small runs."""
    said = rf"privacy.sampling: {name} shuffles each client's examples, and takes them in turn, found poisson; leave"
    with pytest.raises(SpecError, match=said):
        parse_spec(spec(name, {**privacy, "sampling": "poisson"}))
    unsaid = parse_spec(spec(name, privacy))
    assert "sampling: poisson" in write_spec(unsaid)
    assert parse_spec(yaml.safe_load(write_spec(unsaid))) == unsaid
    small_runs(unsaid)


def test_a_sampling_of_noisy_steps_may_be_said() -> None:
    found = parse_spec(spec("fedavg", {"sampling": "poisson"}, privacy_unit="example"))
    assert found.privacy.sampling == "poisson"


@pytest.mark.parametrize(
    ("name", "algorithm", "rest"),
    [
        ("fedavg", {}, "leave it out, or take noise_by: server"),
        ("fedbuff", {}, "leave it out, or take noise_by: server"),
        ("fedavg", {"masking": "secure"}, "leave it out"),  # which a server that adds noise refuses
        ("fedasync", {}, "leave it out"),  # which has no server that could
    ],
)
def test_what_may_be_said_instead_of_removed_clients_can_be(name: str, algorithm: dict[str, Any], rest: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(spec(name, {"neighboring_relation": "add_or_remove_one"}, **algorithm))
    assert str(caught.value).endswith(f"found add_or_remove_one; {rest}")


def advice(**algorithm: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", RunWarning)
        plan_run(prepare(parse_spec(spec(**algorithm))))
    return [str(one.message) for one in found]


@pytest.mark.parametrize("name", NAMES)
def test_local_steps_that_swing_wider_and_wider_are_advised_against(name: str) -> None:
    """A step takes u to (1 - eta mu) u, and with momentum m the iteration is stable for eta mu < 2 (1 + m)."""
    algorithm = {"name": name, "local_learning_rate": 0.5}
    (line,) = advice(**algorithm, proximal=4.1)
    assert line == (
        f"{name}: local_learning_rate 0.5 times proximal 4.1 is 2.05, above 2, so local steps swing wider and wider "
        "around the model that they begin at; lower one of the two"
    )
    assert advice(**algorithm, proximal=4) == []
    assert advice(**algorithm, proximal=4.1, local_momentum=0.5) == []
    assert len(advice(**algorithm, proximal=6.1, local_momentum=0.5)) == 1
    assert advice(**algorithm, proximal=4.1, local_steps=1) == []  # starts where nothing pulls
    assert len(advice(**algorithm, proximal=4.1, local_epochs=1)) == 1


@pytest.mark.parametrize(
    ("clients", "honest", "said"), [(2, 0.9, True), (8, 0.9, True), (2, 1, False), (10, 0.9, False)]
)
def test_a_share_that_is_everybody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clients: int, honest: float, said: bool
) -> None:
    """0.9 of 2, or of 8, are all of them: then none may work together with the server."""
    masking = {"name": "secure", "honest": honest}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec("fedavg", nodes=clients, masking=masking, rounds=2)))
    assert main(["check", str(tmp_path / "spec.yaml"), "--json"]) == 0
    by_observer = json.loads(capsys.readouterr().out)["guarantees"]
    line = (
        f"masking.honest 0.9 of the {clients} clients of a round, rounded up, is all {clients}: where one of them "
        "works together with the server, no more is proved than by a client's own noise; take more clients in a round, "
        "or say a lower share"
    )
    assert (line in by_observer["server"]["remarks"]) is said
    assert line not in by_observer["all_others"]["remarks"]
