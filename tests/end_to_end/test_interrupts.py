"""Ctrl-C at any moment: one line, the exit code 130, and nothing that is half-written."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.bad_inputs.interrupts import OWN, PRESSED, SPEC, Pressed

from gossamer.cli import main

PRESSING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv[0] = "gossamer"
from gossamer.__main__ import main
sys.exit(main())
"""
"""``gossamer``, in whose imports the key is pressed."""

PATIENCE = 120


def called(folder: Path, program: str, command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", program, *shlex.split(command)],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        **more,
    )


def prepare(folder: Path, made: str = "pass", used: str = "pass") -> None:
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "policy.yaml").write_text("data: {wards: {epsilon: 4, delta: 1.0e-5}}\n")
    (folder / "own.py").write_text(OWN.format(made=made, used=used))


_FEW = {"run spec.yaml --out out: import of numpy", "caught by everything"}


@pytest.mark.parametrize(
    "pressed",
    [pytest.param(one, id=one.id, marks=[] if one.id in _FEW else [pytest.mark.slow]) for one in PRESSED],
)
def test_a_key_that_is_pressed(pressed: Pressed, tmp_path: Path) -> None:
    if not pressed.module:
        pytest.importorskip("torch", reason="needs the extra torch")
    prepare(tmp_path, pressed.made, pressed.used)
    before = sorted(tmp_path.iterdir())
    found = called(tmp_path, PRESSING.format(module=pressed.module), pressed.command)
    assert found.returncode == 130, found.stderr
    assert found.stderr.splitlines()[-1] == "gossamer: interrupted"
    assert "Traceback" not in found.stderr
    assert "Error" not in found.stderr
    there = [path for path in sorted(tmp_path.iterdir()) if path.name not in ("__pycache__", "out")]
    assert there == before
    assert not list(tmp_path.rglob("*.new"))
    if pressed.module:
        assert (found.stdout, found.stderr) == ("", "gossamer: interrupted\n")
        assert not (tmp_path / "out").exists()


def test_a_key_that_is_pressed_before_there_is_anything(tmp_path: Path) -> None:
    """As the script begins: with the first import of the package."""
    module, _, function = project()["scripts"]["gossamer"].partition(":")
    program = PRESSING.format(module="gossamer").replace("gossamer.__main__ import main", f"{module} import {function}")
    assert module in program
    found = called(tmp_path, program, "datasets")
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "gossamer: interrupted\n")


def project() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]  # type: ignore[no-any-return]


FREEING = """
import os, signal, sys, time
from types import SimpleNamespace
import gossamer.cli.main
ours = sys.modules["gossamer.cli.main"]

def command(options):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

def was_heard():
    time.sleep(1.5)
    return True

ours.parser = lambda filled: SimpleNamespace(parse_args=lambda words: SimpleNamespace(command=command))
ours.was_heard = was_heard
sys.exit(ours.main([]))
"""
"""A command that takes longer to its end than an interrupt waits before it is raised again."""


def test_an_end_that_takes_long_after_a_key_was_pressed(tmp_path: Path) -> None:
    done = called(tmp_path, FREEING, "")
    assert (done.returncode, done.stderr) == (130, "gossamer: interrupted\n")


def test_an_end_that_takes_long_after_an_error_that_the_key_made(tmp_path: Path) -> None:
    presses = "    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
    refuses = """    from gossamer.errors import GossamerError
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        raise GossamerError("half of a file")
"""
    assert presses in FREEING
    done = called(tmp_path, FREEING.replace(presses, refuses), "")
    assert (done.returncode, done.stderr) == (130, "gossamer: interrupted\n")


def test_a_run_that_is_interrupted_leaves_results(tmp_path: Path) -> None:
    """After its first evaluation, which is a line that it says."""
    prepare(tmp_path)
    command = [sys.executable, "-m", "gossamer", "run", "spec.yaml", "--out", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, lines
    assert out == ""
    says = "out holds the results up to the last evaluation; gossamer run --resume out goes on"
    assert err.splitlines()[-2:] == [says, "gossamer: interrupted"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "interrupted"
    for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


# A full disk

SHORT = SPEC.replace("100000", "20")
GOSSAMER = "import sys; sys.argv[0] = 'gossamer'; from gossamer.__main__ import main; sys.exit(main())"


@pytest.mark.some(1)
@pytest.mark.parametrize("most", [0, 100, 2_000])
@pytest.mark.usefixtures("called_here")
def test_files_that_cannot_grow(tmp_path: Path, most: int) -> None:
    """As on a full disk, or one whose share is used up: the file is named, and nothing of it is left."""
    prepare(tmp_path)
    (tmp_path / "spec.yaml").write_text(SHORT)
    # So that machine code, of which there is none in a fresh clone, is there already.
    assert main(["run", "spec.yaml", "--out", "before"]) == 0

    def cramp() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    found = called(tmp_path, GOSSAMER, "run spec.yaml --out out", preexec_fn=cramp)
    assert found.returncode == 2, found.stderr
    line = found.stderr.splitlines()[-1]
    assert line.startswith("gossamer: error: out/")
    assert "File too large; files may not become as large here" in line
    assert "Traceback" not in found.stderr
    named = tmp_path / line.removeprefix("gossamer: error: ").partition(":")[0]
    assert not named.exists()
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("called_here")
def test_a_trace_for_which_there_is_no_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    prepare(tmp_path)
    (tmp_path / "spec.yaml").write_text(SHORT)
    assert main(["run", "spec.yaml", "--out", "out", "--trace", "/dev/full"]) == 2
    found = capsys.readouterr().err
    said = "gossamer: error: /dev/full: No space left on device; make room and start again"
    assert found.splitlines()[-1] == said
    assert "Traceback" not in found


@pytest.mark.some(1)
@pytest.mark.parametrize("command", ["datasets", "check spec.yaml --json"])
def test_output_for_which_there_is_no_room(tmp_path: Path, command: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    prepare(tmp_path)
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "gossamer", *shlex.split(command)],
            cwd=tmp_path,
            text=True,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert found.returncode == 2
    line = "gossamer: error: standard output: No space left on device; make room and start again"
    assert found.stderr.splitlines() == [line]
