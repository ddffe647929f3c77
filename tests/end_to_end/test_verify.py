"""Runs whose guarantees a second implementation checks by their receipts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.verify.gossamer_verify import Unreadable, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOT_VERIFIED = {"digits-fedavg-masked": "discrete noise of members", "visits-persons": "persons with several examples"}
"""Examples whose guarantees the second implementation knows nothing of, and why."""
SHORT = {"hospitals-stopping": ()}
"""What is overridden, so that the test is quick; by default that runs look at models."""

pytestmark = [pytest.mark.usefixtures("called_here")]


def ran(name: str, folder: Path, *settings: str) -> dict[str, Any]:
    """What the second implementation says of an example."""
    experiment = gs.read_spec(EXAMPLES / f"{name}.yaml", [*SHORT.get(name, ("evaluation=false",)), *settings])
    result = gs.run(experiment, folder)
    found = verify(folder)
    privacy = result.summary["privacy"]
    released = sum(node["releases"] for node in privacy["nodes"].values())
    assert name in ("digits-fedavg", "digits-fedbuff", "digits-graph") or found["releases"] == released
    return found


@pytest.mark.usefixtures("quiet")
def test_the_guarantee_of_hospitals_follows(tmp_path: Path) -> None:
    found = ran("hospitals", tmp_path / "results")
    (entry,) = found["guarantees"]
    assert found["follows"]
    assert entry["verdict"] == "follows"
    nodes = json.loads((tmp_path / "results" / "summary.json").read_text())["privacy"]["nodes"]
    for plan in entry["plans"]:
        for name in plan["parties"]:
            assert plan["epsilon"] == pytest.approx(nodes[name]["epsilon"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.yaml") if path.stem != "own-module"))
def test_guarantees_of_examples_follow(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    found = ran(name, tmp_path / "results")
    if name in NOT_VERIFIED:
        assert {entry["verdict"].partition(":")[0] for entry in found["guarantees"]} == {"not verified"}
        assert not found["follows"]
    else:
        assert found["follows"]
        assert found["guarantees"][0]["verdict"] == "follows"


@pytest.mark.usefixtures("quiet")
def test_receipts_are_the_same_wherever_data_lie(tmp_path: Path) -> None:
    """So that whoever makes a run again, elsewhere, gets the head that was published."""
    found = []
    for place in (tmp_path / "here", tmp_path / "elsewhere"):
        (place / "hospitals").mkdir(parents=True)
        for name in ("hospitals.yaml", "hospitals/hospitals.csv", "hospitals/elsewhere.csv"):
            shutil.copy(EXAMPLES / name, place / name)
        settings = ("--set", "algorithm.updates_per_node=5", "--set", "evaluation=false")
        out = place / "results"
        assert main(["run", str(place / "hospitals.yaml"), "--out", str(out), "--reproducible", *settings]) == 0
        found.append((out / "receipts.jsonl").read_bytes())
    assert found[0] == found[1]


@pytest.mark.usefixtures("quiet")
def test_an_altered_folder_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A receipt that is left out, a guarantee that promises more, and receipts of another run of the same spec."""
    folder, other = tmp_path / "results", tmp_path / "other"
    for place in (folder, other):
        ran("hospitals", place, "algorithm.updates_per_node=5")
    receipts, card = folder / "receipts.jsonl", folder / "guarantee.json"
    whole, said = receipts.read_bytes(), json.loads(card.read_text())
    lines = whole.splitlines(keepends=True)
    receipts.write_bytes(b"".join(lines[:-3] + lines[-2:]))
    assert main(["verify", str(folder)]) == 2
    receipts.write_bytes((other / "receipts.jsonl").read_bytes())
    assert main(["verify", str(folder)]) == 1
    assert "the guarantee is about other receipts" in capsys.readouterr().out
    receipts.write_bytes(whole)
    assert main(["verify", str(folder)]) == 0
    said["guarantees"][0]["epsilon"] *= 0.9
    card.write_text(json.dumps(said))
    assert main(["verify", str(folder)]) == 1


@pytest.mark.usefixtures("quiet")
def test_a_guarantee_names_its_software_and_what_a_registry_asks_for(tmp_path: Path) -> None:
    ran("hospitals", tmp_path / "results", "algorithm.updates_per_node=2")
    said = json.loads((tmp_path / "results" / "guarantee.json").read_text())
    assert said["software"] == {"name": "gossamer", "version": gs.__version__, "source": said["software"]["source"]}
    assert said["receipts"]["releases"] == 10
    loss = said["registry"]["privacy_loss"]
    assert loss["privacy_unit"] == "example of a node's shard"
    assert loss["privacy_parameters"] == {"epsilon": said["guarantees"][0]["epsilon"], "delta": 1e-4}


@pytest.mark.usefixtures("quiet")
def test_noise_that_can_be_drawn_again_promises_nothing(tmp_path: Path) -> None:
    """What it would promise is checked all the same."""
    found = ran("hospitals", tmp_path / "results", "privacy.noise_secret=reproducible", "algorithm.updates_per_node=3")
    (entry,) = found["guarantees"]
    assert entry["verdict"] == "follows, if the noise were secret"
    assert found["follows"]


@pytest.mark.usefixtures("quiet")
def test_a_run_that_is_interrupted_leaves_a_whole_chain(tmp_path: Path) -> None:
    """Its guarantee is that of the plan. At the moment before, as if killed, the end is missing, and that is said."""
    folder, seen = tmp_path / "results", []

    def measure(prepared: Any, model: Any) -> dict[str, float]:
        seen.append(1)
        if len(seen) == 3:
            (tmp_path / "receipts.jsonl").write_bytes((folder / "receipts.jsonl").read_bytes())
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        gs.run(gs.read_spec(EXAMPLES / "hospitals.yaml"), folder, measure=measure)
    found = verify(folder)
    assert found["follows"]
    assert 0 < found["releases"] < 500
    with pytest.raises(Unreadable, match="the chain has no end"):
        verify(tmp_path / "receipts.jsonl")
