"""Two parties and a server over a shared folder: real processes, and the files of a founded federation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="needs the extra store")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_founded_federation import EXAMPLES, SPEC, UPDATES, write_data
from tests.reference.deployments import QUICK
from tests.reference.party_processes import all_ended, started

from gossamer.cli import main
from gossamer.keys.invitations import read_signed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]


@pytest.fixture
def store(called_here: None) -> Path:
    """A folder, over which a federation is founded in the folder ``f``."""
    folder = Path("share").absolute()
    folder.mkdir()
    Path("spec.yaml").write_text(SPEC)
    examples = ",".join(f"{name}={count}" for name, count in EXAMPLES.items())
    new = ["federation", "new", "f", "--spec", "spec.yaml", "--nodes", ",".join(EXAMPLES), "--examples", examples]
    assert main([*new, "--broker", f"file://{folder}?poll=0.1"]) == 0
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for number, name in enumerate(EXAMPLES):
        write_data(Path("f", name, "train.csv"), EXAMPLES[name], number)
        policy = {"data": {"stays": {"epsilon": 5, "delta": 1e-4}}, "organisers": [organiser]}
        Path("f", name, "policy.yaml").write_text(json.dumps(policy))
    return folder


def node(name: str, *more: str) -> subprocess.Popen[str]:
    """A party's process."""
    more = (*QUICK, *more)
    if name == "server":
        organiser = read_signed("f/federation.yaml").organiser.fingerprint
        return started(["--invitation", "f/server/invitation.yaml", "--organiser", organiser, *more])
    files = {"invitation": "invitation.yaml", "policy": "policy.yaml", "data": "train.csv"}
    return started([*(word for option, file in files.items() for word in (f"--{option}", f"f/{name}/{file}")), *more])


def test_from_keys_to_models(store: Path) -> None:
    assert not list(Path("f").glob("**/*.crt")), "a store has no certificates"
    assert not Path("f/broker").exists()
    ended = all_ended(node, ["server", *EXAMPLES])
    assert {name: code for name, (code, _) in ended.items()} == dict.fromkeys(ended, 0), ended
    for name in EXAMPLES:
        found = json.loads(Path("f", name, "state", "summary.json").read_text())
        assert 0 < found["privacy"]["releases"] <= UPDATES
        assert found["privacy"]["epsilon"] <= 3.001
        assert Path("f", name, "state", "model.safetensors").exists()


def test_a_share_that_is_not_mounted(store: Path) -> None:
    (said,) = all_ended(lambda name: node(name, "--broker", f"file://{store}/elsewhere"), ["a"]).values()
    assert said[0] == 1
    assert f"there is no folder {store}/elsewhere; is the share mounted" in said[1]
    assert "nothing was charged" in said[1]
    assert not Path("f/a/state/store.sqlite").exists()
    (said,) = all_ended(lambda name: node(name, "--broker", "ftp://elsewhere"), ["a"]).values()
    assert said[0] == 2
    assert "expected a broker such as mqtts://" in said[1]
