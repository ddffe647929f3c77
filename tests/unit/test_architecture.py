"""Imports point one way, heavy packages stay in their corner, and few may give a vector its label."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gossamer.errors

ROOT = Path(gossamer.errors.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

# A part is a file or folder right under gossamer/. What each of these may import of the other parts.
MAY_IMPORT = {
    "arrays": set(),
    "errors": set(),
    "version": set(),
    "section": set(),
    "numbers": {"errors"},
    "randomness": set(),
    "files": {"errors"},
    "vectors": {"arrays"},
    "protocol": {"errors", "vectors"},
    "topology": {"arrays", "errors", "randomness", "section"},
}
ABOVE = {"experiment", "deployment", "cli", "report", "contracts", "testing"}
MUST_NOT_IMPORT = {
    "algorithms": {"runtimes", "data", "objectives", *ABOVE},
    "data": {"runtimes", "algorithms", "protocol", "privacy", "objectives", "sides", *ABOVE},
    "objectives": {"runtimes", "algorithms", "protocol", "privacy", "sides", *ABOVE},
    "privacy": {"runtimes", "algorithms", "sides", *ABOVE},
    "sides": {"runtimes", "algorithms", *ABOVE},
    "federation": {"runtimes", "algorithms", "data", "objectives", "privacy", "sides", *ABOVE},
    "runtimes": ABOVE,
}
# Which files may import which heavy package, at any depth.
HOMES = {
    "torch": r"objectives/(torch_\w+|models/\w+)\.py|privacy/attacks/\w+\.py",
    "matplotlib": r"report/\w+\.py",
    "PIL": r"data/images\.py|report/\w+\.py",
    "ray": r"runtimes/ray\w*\.py",
    "paho": r"runtimes/mqtt\w*\.py",
    "amqtt": r"runtimes/broker_embedded\.py",
    "cryptography": r"privacy/masking/\w+\.py|federation/(identity|session_keys)\.py|runtimes/certificates\.py",
}
# Whoever else made such a vector could send what no ledger knows of, or what nobody has confined.
LABELLERS = {
    "privacy/secure_unit.py",  # the sum that masks were taken off, for a unit alone
    "privacy/unit_side.py",  # what agents show their server
    "sides/client.py",  # after the charge and the noise; what is raw, for its trust scope alone
    "sides/curator.py",  # after the charge and the noise
    "sides/null.py",  # blanks, which hold nothing
    "sides/samples.py",  # after the charge and the noise
    "sides/stream.py",  # after the charge and the noise
    "privacy/masking/agent.py",  # after the masks were added
    "vectors.py",
    "protocol/encoding.py",  # what a peer labelled
    "testing/contracts.py",  # stands in for a data side while it tests algorithms
}


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), file)


def imported(file: str) -> Iterator[str]:
    """The absolute name of every import in a file, inside functions too."""
    package = ["gossamer", *Path(file).parts[:-1]]
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from gossamer import x` and `from . import x` import x.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part_of(file: str) -> str:
    return Path(file).parts[0].removesuffix(".py")


def parts_imported(file: str) -> set[str]:
    names = (name.split(".") for name in imported(file))
    return {name[1] if len(name) > 1 else "" for name in names if name[0] == "gossamer"} - {part_of(file)}


def labels_made(source: ast.Module) -> list[str]:
    """Calls of Released, Masked or Confined, by whatever path they are reached."""
    calls = [node.func for node in ast.walk(source) if isinstance(node, ast.Call)]
    names = [func.id if isinstance(func, ast.Name) else getattr(func, "attr", "") for func in calls]
    return [name for name in names if name in ("Released", "Masked", "Confined")]


def reaching_raw(module: ast.Module) -> list[str]:
    """By which names a file asks a pool for raw answers, or a side for the rule that computes them."""
    attributes = [node for node in ast.walk(module) if isinstance(node, ast.Attribute)]
    called = {id(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    return sorted(
        {node.attr for node in attributes if node.attr == "rule" or (node.attr == "raw" and id(node) in called)}
    )


def test_the_tables_name_parts_that_exist() -> None:
    parts = {part_of(file) for file in FILES}
    assert set(MAY_IMPORT) <= parts
    assert set(MUST_NOT_IMPORT) <= parts
    assert {"runtimes", "data", "objectives", "experiment"} <= parts


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_lower_parts_import_only_what_is_below(part: str) -> None:
    found = {file: parts_imported(file) - MAY_IMPORT[part] for file in FILES if part_of(file) == part}
    assert found
    assert {file: extra for file, extra in found.items() if extra} == {}


@pytest.mark.parametrize("part", MUST_NOT_IMPORT)
def test_imports_point_one_way(part: str) -> None:
    banned = MUST_NOT_IMPORT[part] | {""}
    found = {file: parts_imported(file) & banned for file in FILES if part_of(file) == part}
    assert {file: extra for file, extra in found.items() if extra} == {}


@pytest.mark.parametrize("package", HOMES)
def test_heavy_packages_are_imported_only_by_the_modules_about_them(package: str) -> None:
    importers = {file for file in FILES if package in {name.split(".")[0] for name in imported(file)}}
    assert {file for file in importers if not re.fullmatch(HOMES[package], file)} == set()


def test_importing_gossamer_loads_no_heavy_package() -> None:
    program = "import gossamer, sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gossamer" in done.stdout.split()
    assert set(done.stdout.split()) & set(HOMES) == set()


def test_few_may_label_a_vector() -> None:
    labelling = {file for file in FILES if labels_made(tree(file))}
    assert labelling - LABELLERS == set()


def test_what_is_raw_is_asked_for_by_data_sides_alone() -> None:
    """Whatever leaves the machine of data sides otherwise has its charge and its noise."""
    asking = {file: reaching_raw(tree(file)) for file in FILES if part_of(file) != "sides"}
    assert {file: found for file, found in asking.items() if found} == {}


def test_the_checks_can_fail() -> None:
    """On sources that break the rules, each helper sees it."""
    assert labels_made(ast.parse("import gossamer.vectors as v\nv.Released(x)")) == ["Released"]
    assert labels_made(ast.parse("def f() -> Released:\n    return Masked(1)")) == ["Masked"]
    assert labels_made(ast.parse("x: Released = y\nisinstance(x, Released)")) == []
    assert reaching_raw(ast.parse("pool.raw([ticket])\nside.rule.shard")) == ["raw", "rule"]
    assert reaching_raw(ast.parse("key.raw")) == []
    assert reaching_raw(tree("sides/pool.py")) == ["raw", "rule"]
    assert parts_imported("protocol/session.py") == {"errors"}
    assert "vectors" in parts_imported("protocol/encoding.py")
