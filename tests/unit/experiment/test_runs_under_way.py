"""A folder whose run is under way is left alone by all others, and the run ends with the bytes that it has alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli.main import main
from gossamer.errors import CallerError
from gossamer.experiment.audits.canary_audit import audit_membership, audit_run
from gossamer.experiment.results.results_folder import CHECKPOINT, unpack
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.files import UnderWay
from gossamer.studies.runs import each_seed
from gossamer.studies.sweep import sweep

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 20, "updates_per_node": 6},
    "privacy": {"noise_multiplier": 2.0},
    "evaluation": {"every_updates": 3},
}
SECRET = gs.NoiseSecret(bytes(range(16)))


class Meanwhile(RunProgress):
    """Has something tried once, when so many updates were made."""

    def __init__(self, tried: Callable[[], None]) -> None:
        self.tried = tried
        self.done = False

    def updated(self, updates: int) -> None:
        if updates >= 10 and not self.done:
            self.done = True
            self.tried()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    gs.run(SPEC, folder, secret=SECRET)
    return folder


def _again(out: Path, whole: Path) -> None:
    gs.repeat_run(whole, out, overwrite=True)


def _study_run(out: Path, whole: Path) -> None:
    (one,) = each_seed("x", gs.parse_spec(SPEC), 1, out.parent, 0)
    outcome = one()
    assert one.folder == out
    raise UnderWay(outcome.error)


OTHERS: dict[str, Callable[[Path, Path], object]] = {
    "resumed": lambda out, whole: gs.resume_run(out),
    "overwritten": lambda out, whole: gs.run(SPEC, out, overwrite=True),
    "repeated": _again,
    "audited": lambda out, whole: audit_run(gs.parse_spec(SPEC), out, canaries=9, guesses=4, overwrite=True),
    "attacked": lambda out, whole: audit_membership(out),
    "of another machine": lambda out, whole: unpack({"spec.yaml": b""}, out),
    "of a sweep": _study_run,
}


@pytest.mark.some(7)
@pytest.mark.parametrize("there", [False, True], ids=["new", "overwritten"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_run_under_way_is_left_alone(name: str, there: bool, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "x-seed0"
    if there:
        gs.run(SPEC, out)

    def tried() -> None:
        (out / ".summary.json.new").touch()  # being written
        before = files(out)
        assert CHECKPOINT in before
        with pytest.raises(UnderWay, match=r"x-seed0: a run is still under way there.*; wait for it, or end it$"):
            OTHERS[name](out, whole)
        assert files(out) == before
        (out / ".summary.json.new").unlink()

    other = Meanwhile(tried)
    gs.run(SPEC, out, secret=SECRET, checkpoint=0, overwrite=there, progress=other)
    assert other.done
    assert files(out) == files(whole)
    gs.run(SPEC, out, overwrite=True)  # now it can be had


def test_a_run_that_is_resumed_is_left_alone(whole: Path, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def tried() -> None:
        before = files(tmp_path)
        with pytest.raises(UnderWay):
            gs.resume_run(tmp_path)
        assert files(tmp_path) == before

    with pytest.raises(KeyboardInterrupt):
        gs.run(SPEC, tmp_path, secret=SECRET, checkpoint=0, progress=Meanwhile(interrupt))
    other = Meanwhile(tried)
    gs.resume_run(tmp_path, checkpoint=0, progress=other)
    assert other.done
    assert files(tmp_path) == files(whole)


def test_a_run_that_failed_lets_go_of_its_folder(tmp_path: Path) -> None:
    """The error, and with it all that the run was made of, is kept by somebody."""

    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError) as caught:
        gs.run(SPEC, tmp_path, progress=Meanwhile(fail))
    gs.run(SPEC, tmp_path, overwrite=True)
    assert caught.value.__traceback__ is not None


def test_the_command_says_so_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"

    def tried() -> None:
        spec = tmp_path / "spec.yaml"
        spec.write_text((out / "spec.yaml").read_text())
        for command in (
            ["run", "--resume", str(out)],
            ["run", str(spec), "--out", str(out), "--overwrite"],
            ["report", str(out)],
            ["report", str(out), "--figures"],
        ):
            capsys.readouterr()
            assert main(command) == 2
            said = capsys.readouterr()
            (line,) = said.err.splitlines()
            assert line.startswith(f"gossamer: error: {out}: a run is still under way there")
            assert said.out == ""

    other = Meanwhile(tried)
    gs.run(SPEC, out, progress=other)
    assert other.done
    assert not (out / "report.html").exists()
    assert main(["report", str(out)]) == 0


def test_a_report_of_a_run_under_way_goes_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It reads the run's folder, and writes into another one."""
    out, page = tmp_path / "out", tmp_path / "page"
    page.mkdir()
    other = Meanwhile(lambda: check(main(["report", str(out), "--out", str(page)])))

    def check(code: int) -> None:
        assert code == 0
        assert (page / "report.html").exists()

    gs.run(SPEC, out, progress=other)
    assert other.done


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    caught = list[CallerError]()

    def again(line: str) -> None:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
        with pytest.raises(UnderWay, match=f"{tmp_path}: a run is still under way there") as found:
            sweep(SPEC, out=tmp_path, seeds=2)
        caught.append(found.value)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before

    found = sweep(SPEC, out=tmp_path, seeds=2, tell=lambda line: again(line) if line.startswith("1 of 2") else None)
    assert len(caught) == 1
    (score,) = found.scores.values()
    assert len(score.statuses) == 2
