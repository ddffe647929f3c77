"""Files of papers and state are on disk before they count: the content, then the name, then whoever goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.reissued import reissue

from gossamer.deployment.founding.founding import found
from gossamer.deployment.founding.layout import make_identity
from gossamer.deployment.party.state_folder import StateFolder

SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
BROKER = "mqtts://broker.example.org:8883"
WRITTEN_ALL_THE_TIME = {"status.json", "node.log", "lock"}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Files and folders that were synchronised, and names that were given, in order."""
    seen: list[tuple[str, Path]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        seen.append(("synced", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def noted_replace(beside: Path, path: Path) -> None:
        assert ("synced", Path(beside)) in seen or path.name in WRITTEN_ALL_THE_TIME, f"{path} was named too early"
        seen.append(("named", Path(path)))
        replace(beside, path)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    return seen


def identity(folder: Path) -> None:
    make_identity("a", folder / "deep" / "a")


def federation(folder: Path) -> None:
    found(folder / "f", spec=SPEC, parties={"a": 300, "b": 200}, broker=BROKER)


def renewed(folder: Path) -> None:
    federation(folder)
    reissue(folder / "f", {"c": 200})


def state(folder: Path) -> None:
    own = StateFolder(folder / "a" / "state")
    own.take()
    own.write("invitation.yaml", b"text")
    assert own.instance
    own.publish({"state": "running"})
    own.give_back()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("write", [identity, federation, renewed, state])
def test_what_is_written_is_on_disk(
    write: Callable[[Path], None], tmp_path: Path, events: list[tuple[str, Path]]
) -> None:
    write(tmp_path)
    made = [path for path in tmp_path.rglob("*") if path.name not in WRITTEN_ALL_THE_TIME]
    assert made
    for path in made:
        own = [at for at, (_, where) in enumerate(events) if where == path]
        assert own or path.is_dir(), f"{path} itself is not on disk"
        assert ("synced", path.parent) in events[max(own) if path.is_file() else 0 :], f"{path} has no name on disk"
