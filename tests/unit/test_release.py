"""What a release is made with: pins with hashes, an audit that does not take silence for safety, one wheel."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

from gossamer import version

ROOT = Path(__file__).resolve().parents[2]
HASHED = ROOT / "release" / "constraints-hashed.txt"


def loaded(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, ROOT / "release" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


AUDIT = loaded("audit")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: Path) -> dict[str, str]:
    """The packages that a file pins, and their versions."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {normal(name): version for name, version in found}


def required(requirement: Requirement, done: set[tuple[str, str]]) -> Iterator[str]:
    """Names of the packages that are installed for a requirement."""
    try:
        found = distribution(requirement.name)
    except PackageNotFoundError:
        return  # for another system, or not here
    yield normal(requirement.name)
    for extra in {"", *requirement.extras}:
        if (key := (normal(requirement.name), extra)) in done:
            continue
        done.add(key)
        for line in found.requires or ():
            further = Requirement(line)
            if further.marker is None or further.marker.evaluate({"extra": extra}):
                yield from required(further, done)


def test_everything_that_development_installs_is_pinned() -> None:
    installed = set(required(Requirement("gossamer-fl[dev]"), set())) - {"gossamer-fl"}
    assert len(installed) > 100
    assert installed - pins(ROOT / "constraints.txt").keys() == set()


def test_no_safetensors_that_permutes_arrays_is_installed_or_pinned() -> None:
    """findings/safetensors-numpy-order.sh: 0.8.0 writes arrays in another order than C's as if they were in it."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    allowed = next(Requirement(line) for line in needed if line.startswith("safetensors"))
    pinned = pins(ROOT / "constraints.txt")["safetensors"]
    assert "0.8.0" not in allowed.specifier
    assert pinned in allowed.specifier


def test_every_pin_but_torch_has_hashes() -> None:
    """torch is another build on each kind of machine."""
    expected = {name: version for name, version in pins(ROOT / "constraints.txt").items() if name != "torch"}
    assert pins(HASHED) == expected, "run: make constraints-hashed"
    assert len(expected) > 100


@pytest.mark.parametrize("file", ["constraints-hashed.txt", "tools.txt"])
def test_every_pin_of_a_file_has_a_sha256_and_no_index_is_named(file: str) -> None:
    lines = (ROOT / "release" / file).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    said = [line for line in lines if line and not line.startswith("#")]
    assert said
    for line in said:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==\S+(\s+;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line


def test_the_hash_of_the_source_counts_all_text_that_a_wheel_has_beside_code() -> None:
    """Else two sources that say different things, such as in the spec that ``gossamer new`` writes, had one hash."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    endings = {Path(pattern).suffix for pattern in tools["setuptools"]["package-data"]["gossamer"]}
    assert endings - {*version._READ} == {".typed", ".pyi", ".npz"}


def test_a_wheel_has_every_file_that_stands_beside_code() -> None:
    """Words that a module reads when it is imported are such files: no installed library starts without."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    package = ROOT / "src" / "gossamer"
    packed = {file for pattern in tools["setuptools"]["package-data"]["gossamer"] for file in package.glob(pattern)}
    kinds = {file.suffix for file in packed}
    assert {file for file in package.rglob("*.*") if file.is_file() and file.suffix in kinds} == packed


def test_the_tools_are_those_that_are_asked_for() -> None:
    asked = re.findall(r"^([a-z-]+)>=(\d+)", (ROOT / "release" / "tools.in").read_text(encoding="utf-8"), re.MULTILINE)
    tools = pins(ROOT / "release" / "tools.txt")
    assert {name for name, _ in asked} <= set(tools)
    assert all(int(tools[name].split(".")[0]) >= int(least) for name, least in asked)
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert f"setuptools>={dict(asked)['setuptools']}" in requires


def test_a_bill_of_materials_names_no_folder_of_the_machine_it_was_made_on() -> None:
    place = {"type": "distribution", "url": "file:///home/somebody/gossamer"}
    site = {"type": "website", "url": "https://example.org"}
    found = {"components": [{"name": "gossamer", "externalReferences": [place, site]}], "metadata": {"tools": [site]}}
    assert loaded("sbom").without_places(found) == {
        "components": [{"name": "gossamer", "externalReferences": [site]}],
        "metadata": {"tools": [site]},
    }


CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
FLAWED = {"name": "pillow", "version": "9.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["9.1"]}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("packages", "line", "status"),
    [
        ([CLEAN], "1 packages looked up, 0 known vulnerabilities", 0),
        ([CLEAN, FLAWED], "pillow 9.0: PYSEC-1, mended in 9.1", 1),
        ([CLEAN, UNKNOWN], "not looked up: torch", 0),
        ([UNKNOWN, FLAWED], "pillow 9.0: PYSEC-1, mended in 9.1", 1),
        ([UNKNOWN], "audit skipped: none of 1 packages could be looked up, as without a network", 3),
    ],
)
def test_an_audit_says_what_was_looked_up(packages: list[Any], line: str, status: int) -> None:
    found = AUDIT.read({"dependencies": packages}, "")
    assert line in found.lines
    assert found.status == status


def test_an_audit_without_an_answer_is_skipped_with_the_reason() -> None:
    found = AUDIT.read(None, "WARNING\nERROR: Connection refused\n")
    assert found.status == 3
    assert found.lines == [
        "audit skipped: pip-audit gave no answer, perhaps without a network: ERROR: Connection refused"
    ]


@pytest.mark.parametrize(("more", "status"), [([], 3), (["--may-skip"], 0)])
def test_an_audit_that_was_skipped_is_no_success_unless_it_may_be(more: list[str], status: int, tmp_path: Path) -> None:
    """Where there is no pip-audit at all, there is no answer of it."""
    script = [sys.executable, "-I", str(ROOT / "release" / "audit.py"), str(tmp_path / "no pins"), *more]
    found = subprocess.run(script, capture_output=True, text=True, check=False)
    assert found.stdout.startswith("audit skipped: pip-audit gave no answer")
    assert found.returncode == status


@pytest.mark.slow
def test_two_builds_of_the_wheel_have_one_hash(tmp_path: Path) -> None:
    """In two folders, from the last commit's files; the script stops where they differ."""
    if subprocess.run(("git", "-C", str(ROOT), "rev-parse", "HEAD"), capture_output=True).returncode:
        pytest.skip("needs the repository, which a copy of the sources is not")
    wheel, digest = loaded("wheel").built_twice(tmp_path)
    assert wheel.exists()
    assert re.fullmatch("[0-9a-f]{64}", digest)


def test_builds_that_differ_stop_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded("wheel")
    builds = iter((b"one", b"other"))

    def build(folder: Path, epoch: str) -> Path:
        (folder / "w.whl").write_bytes(next(builds))
        return folder / "w.whl"

    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(module, "git", lambda *_: b"0")
    with pytest.raises(SystemExit, match=r"two builds of w\.whl differ"):
        module.built_twice(tmp_path)
