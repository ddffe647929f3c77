"""A node whose disk fills: a small file system of its own, which gets larger later, as an administrator makes room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import LONG, charges, experiment, parties, until

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

pytestmark = pytest.mark.slow

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 32, updates_per_node: 150}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]
SCRIPT = """
state=$1; shift
mount -t tmpfs -o size="$SMALL" none "$state" || exit 77
"$@" 2>first; echo $? >codes
ls -A "$state" >left
mount -o remount,size=64m none "$state"
"$@" 2>second; echo $? >>codes
cp -r "$state" kept
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def own_disks() -> None:
    if shutil.which("unshare") is None or subprocess.run([*MOUNT, "true"], capture_output=True).returncode:
        pytest.skip("nobody may mount a file system of their own here")


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["0", "64k", "1m"])
def test_a_disk_fills_and_is_made_larger(size: str, tmp_path: Path, broker: EmbeddedBroker) -> None:
    """At its start, when it makes its store, and in the middle of its run; each time it goes on when there is room."""
    federation = LocalFederation.found(experiment(SPEC), tmp_path / "f", broker.url)
    slow, other = federation.members
    state = federation.folder / slow / "state"
    with parties(federation, ("--gone-after", "60", "--wait", "60")) as there:
        there.start(other)
        state.mkdir(mode=0o700)
        node = [sys.executable, "-m", "gossamer", *federation.command(slow, "--gone-after", "60", "--wait", "60")]
        done = subprocess.run(
            [*MOUNT, "sh", "-c", SCRIPT, "sh", str(state), *node],
            cwd=tmp_path,
            env={**os.environ, "SMALL": "4k" if size == "0" else size},
            timeout=LONG,
            check=False,
        )
        if done.returncode == 77:
            pytest.skip("no file system in memory may be mounted here")
        first = (tmp_path / "first").read_text()
        assert (tmp_path / "codes").read_text().split() == ["2", "0"], first + (tmp_path / "second").read_text()
        assert len(first.splitlines()) == 1
        assert str(state) in first
        assert "make room" in first.lower()
        assert not [name for name in (tmp_path / "left").read_text().split() if name.endswith(".new")]
        if size != "1m":
            assert (tmp_path / "left").read_text() == ""
        shutil.rmtree(state)
        (tmp_path / "kept").rename(state)
        there.finish(other)
        assert charges(there, slow) == 150  # as planned; what was lost with the process is one of these
        if size != "1m":
            assert there.status(slow)["updates"] == 150


READ_ONLY = """
state=$1; shift
mount -t tmpfs none "$state" || exit 77
"$@" 2>first & node=$!
until [ -e now ]; do sleep 0.1; done
mount --bind "$state" "$state" && mount -o remount,bind,ro "$state" || { kill $node; exit 77; }
wait $node; echo $? >codes
"$PYTHON" -m gossamer status "$state" >said; echo $? >>codes
"$@" 2>again; echo $? >>codes
umount "$state"
"$@" 2>last; echo $? >>codes
cp -r "$state" kept
"""


def test_a_disk_may_only_be_read_from_now_on(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """As after an error of the disk: the node ends and says so, its status too, and mounted again it goes on."""
    federation = LocalFederation.found(experiment(SPEC.replace("150", "600")), tmp_path / "f", broker.url)
    slow, other = federation.members
    state = federation.folder / slow / "state"
    with parties(federation, ("--gone-after", "60", "--wait", "60")) as there:
        there.start(other)
        state.mkdir(mode=0o700)
        node = [sys.executable, "-m", "gossamer", *federation.command(slow, "--gone-after", "60", "--wait", "60")]
        done = subprocess.Popen(
            [*MOUNT, "sh", "-c", READ_ONLY, "sh", str(state), *node],
            cwd=tmp_path,
            env={**os.environ, "PYTHON": sys.executable},
        )
        until(lambda: there.updates(other) > 3, "updates")
        (tmp_path / "now").touch()
        if done.wait(LONG) == 77:
            pytest.skip("no file system in memory may be mounted here")
        first, said, again = ((tmp_path / name).read_text() for name in ("first", "said", "again"))
        assert (tmp_path / "codes").read_text().split() == ["2", "2", "2", "0"], first + again
        assert "Read-only file system; have its disk mounted for writing" in first
        assert said.startswith(f"CRITICAL: {slow} ended, since its disk may only be read; have it mounted for writing")
        assert f"{state}: cannot be a state folder: Read-only file system; have its disk mounted for writing" in again
        shutil.rmtree(state)
        (tmp_path / "kept").rename(state)
        there.finish(other)
        assert charges(there, slow) == 600
