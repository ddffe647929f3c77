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
from tests.unit.architecture_report import circles, modules_imported, package
from tests.unit.architecture_rules import ROOMS, RULES, TABLE, found

import gossamer.errors

ROOT = Path(gossamer.errors.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

# A room is a folder with code, or a file right under the package; the table of algorithms is one, too. Lowest first: a
# room imports from itself and from those named for it, which all stand above it in this list, so there are no circles.
BASE = "arrays errors extras files machine_code mistakes randomness section threads vectors"
PRIVACY = "privacy privacy/masking privacy/accounting privacy/exact privacy/streams privacy/observers"
RELEASED = f"{BASE} protocol topology {PRIVACY} sides"
CLIENTS = "algorithms/clients"
"""Common to algorithms with clients and a server."""
_SETTINGS = "version strict_yaml"
MODELS = "objectives objectives/linear objectives/networks objectives/device"
RUNS = f"{RELEASED} {_SETTINGS} keys data {MODELS} algorithms {TABLE}"
SPECS = f"{RUNS} report notebooks trained runtimes attacks objectives/models"
EXPERIMENT = "experiment/specs experiment/preparation experiment/results experiment/runs experiment/audits"
DEPLOYED = f"{RUNS} trained runtimes runtimes/mqtt runtimes/object_store runtimes/storage {EXPERIMENT}"
PARTIES = "deployment/founding deployment/owner deployment/peers deployment/party"
_ALONE = ("arrays", "errors", "interrupts", "version", "threads", "notebooks")
MAY_IMPORT = {
    **dict.fromkeys(_ALONE, ""),
    "machine_code": "errors interrupts version",
    "processes": "errors threads",
    **dict.fromkeys(("vector_loops", "normals"), "machine_code"),
    "files": "errors",
    "extras": "errors version",
    "philox": "arrays machine_code normals",
    "randomness": "normals philox threads",
    "strict_yaml": "errors files",
    "vectors": "arrays vector_loops",
    "protocol": "errors vectors",
    "mistakes": "errors strict_yaml",
    "keys": "errors extras files mistakes protocol strict_yaml",
    "section": "errors mistakes",
    "topology": f"{BASE}",
    "data": f"{BASE} strict_yaml",
    "objectives/chains": "files machine_code",
    "objectives": f"{BASE} data",
    "objectives/linear": f"{BASE} data objectives",
    "objectives/networks": f"{BASE} data objectives objectives/linear objectives/chains",
    "objectives/device": f"{BASE} normals data {MODELS}",
    "objectives/models": f"{BASE} data {MODELS}",
    "trained": f"{BASE} version data {MODELS} objectives/models",
    "privacy": f"{BASE} notebooks protocol",
    "privacy/masking": f"{BASE} protocol keys",
    "privacy/exact": f"{BASE} privacy privacy/masking",
    "privacy/accounting": f"{BASE} privacy privacy/exact",
    "privacy/streams": f"{BASE} privacy privacy/accounting privacy/exact",
    "privacy/observers": BASE,
    "sides": f"{BASE} philox protocol keys data {MODELS} {PRIVACY}",
    "attacks": f"{BASE} data {MODELS} {PRIVACY}",
    "algorithms": f"{RELEASED} vector_loops",
    CLIENTS: f"{RELEASED} algorithms",
    **dict.fromkeys((f"algorithms/{room}" for room in ROOMS), f"{RELEASED} philox algorithms {CLIENTS}"),
    TABLE: f"errors section algorithms {' '.join(f'algorithms/{room}' for room in ROOMS)}",
    "runtimes": f"{RELEASED} philox algorithms",
    "runtimes/mqtt": "errors extras protocol keys",
    "runtimes/object_store": "errors extras files protocol",
    "runtimes/storage": f"{BASE} protocol {PRIVACY} sides",
    "verify": "",
    "report": "arrays errors extras files version privacy objectives",
    "experiment": "",
    "experiment/specs": SPECS,
    "experiment/preparation": f"{SPECS} experiment/specs",
    "experiment/results": f"{SPECS} experiment/specs experiment/preparation",
    "experiment/runs": f"{SPECS} experiment/specs experiment/preparation experiment/results",
    "experiment/audits": f"{SPECS} {EXPERIMENT} processes",
    "studies": f"{RUNS} runtimes {EXPERIMENT} processes report",
    "faults": f"{RUNS} runtimes runtimes/storage {EXPERIMENT}",
    "deployment": "",
    "deployment/channel": "errors protocol keys",
    "deployment/peers": "errors version protocol keys deployment/channel",
    "deployment/founding": DEPLOYED,
    "deployment/owner": f"{DEPLOYED} deployment/founding",
    "deployment/party": f"{DEPLOYED} {PARTIES}",
    "deployment/overview": f"{DEPLOYED} {PARTIES}",
    "loops": f"{DEPLOYED} deployment/owner",
    "flower": f"{RUNS} {CLIENTS} experiment/specs",
    "cli": f"{RUNS} {EXPERIMENT} interrupts deployment/party report studies",
    "cli/audit": f"{DEPLOYED} {PARTIES} cli report verify",
    "cli/data": f"{DEPLOYED} {PARTIES} cli",
    "cli/federation": f"{DEPLOYED} {PARTIES} deployment/overview flower cli interrupts report",
    "cli/runs": f"{DEPLOYED} {PARTIES} faults flower cli processes report studies",
    "testing": f"{DEPLOYED} faults",
    "__main__": "cli interrupts",
    "__init__": f"{RUNS} trained runtimes {EXPERIMENT} deployment/party loops studies",
}
BUILT_ON = {("algorithms/mapa", "algorithms/edge_cloud"): "MAPA is its nodes and messages with a schedule of stages"}
"""Algorithms that are built on another one."""
# Which files may import which heavy package, at any depth.
HOMES = {
    "torch": r"objectives/(networks|device|models)/\w+\.py|attacks/\w+\.py|trained/torch_export\.py",
    "onnx": r"trained/torch_export\.py",
    "sklearn": r"trained/sklearn_export\.py",
    "altair": r"report/\w+\.py",
    "vl_convert": r"report/\w+\.py",
    "jinja2": r"report/\w+\.py",
    **dict.fromkeys(("tensorboard", "mlflow", "wandb", "trackio"), r"experiment/runs/trackers\.py"),
    "matplotlib": r"report/\w+\.py",
    "PIL": r"data/picture_files\.py|report/\w+\.py",
    "pyarrow": r"data/table_files\.py",
    "ray": r"runtimes/ray\w*\.py",
    "flwr": r"flower/worker\.py",
    "paho": r"runtimes/mqtt/transport\.py",
    "fsspec": r"runtimes/object_store/transport\.py",
    "amqtt": r"runtimes/mqtt/broker_embedded\.py",
    "cryptography": r"(privacy/masking/\w+|keys/identity|deployment/channel/\w+|runtimes/mqtt/certificates|"
    r"verify/gossamer_verify)\.py",
}
# Whoever else made such a vector could send what no ledger knows of, or what nobody has confined.
LABELLERS = {
    "sides/secure_unit.py",  # the sum that masks were taken off, for a unit alone
    "sides/client.py",  # after the charge and the noise; what is raw, for its trust scope alone
    "sides/pool.py",  # blanks, which hold nothing
    "sides/samples.py",  # after the charge and the noise
    "sides/servers.py",  # after the charge and the noise
    "sides/window.py",  # after the noise, of tickets that were charged
    "privacy/masking/sums.py",  # after the masks were added
    "vectors.py",
    "protocol/encoding.py",  # what a peer labelled
    "runtimes/population.py",  # what its loop has released, after the charge and the noise
    "testing/contracts.py",  # stands in for a data side while it tests algorithms
}


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), file)


@cache
def imported(file: str) -> tuple[str, ...]:
    """The absolute name of every import in a file, inside functions too."""
    return tuple(_imported(file))


def _imported(file: str) -> Iterator[str]:
    package = ["gossamer", *Path(file).parts[:-1]]
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from gossamer import x` and `from . import x` import x.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def rooms_imported() -> dict[str, set[str]]:
    """What each room imports, for the sake of types too."""
    found: dict[str, set[str]] = {}
    for file, others in modules_imported(types=True).items():
        found.setdefault(package(file), set()).update(package(other) for other in others)
    return {room: others - {room} for room, others in found.items()}


def labels_made(source: ast.Module) -> list[str]:
    """Calls of Released, Masked or Confined, or of what gives labels without asking, by whatever path they are
    reached."""
    calls = [node.func for node in ast.walk(source) if isinstance(node, ast.Call)]
    names = [func.id if isinstance(func, ast.Name) else getattr(func, "attr", "") for func in calls]
    return [name for name in names if name in ("Released", "Masked", "Confined", "labelled")]


def reaching_raw(module: ast.Module) -> list[str]:
    """By which names a file asks a pool for raw answers, or a side for the rule that computes them."""
    attributes = [node for node in ast.walk(module) if isinstance(node, ast.Attribute)]
    called = {id(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    return sorted(
        {node.attr for node in attributes if node.attr == "rule" or (node.attr == "raw" and id(node) in called)}
    )


def test_every_room_has_its_place() -> None:
    assert set(MAY_IMPORT) == set(rooms_imported())


def test_imports_point_one_way() -> None:
    above = list(MAY_IMPORT)
    for room in MAY_IMPORT:
        allowed = set(MAY_IMPORT[room].split()) | {other for one, other in BUILT_ON if one == room}
        assert (room, rooms_imported()[room] - allowed - {room}) == (room, set())
        upward = {other for other in allowed if above.index(other) > above.index(room)}
        assert (room, upward - {"algorithms/edge_cloud"}) == (room, set())


@pytest.mark.parametrize("types", [False, True])
def test_there_are_no_circles(types: bool) -> None:
    assert circles(modules_imported(types=types)) == []
    assert circles(rooms_imported()) == []


KNOWN = {
    ("imports of an algorithm", "algorithms/mapa/box.py"): "MAPA is edge-cloud learning with a schedule of stages",
    ("the kind of a plan, side or task by its class", "deployment/party/data_side.py"): "queries that a node asks",
    (
        "the kind of a plan, side or task by its class",
        "deployment/party/release_deadline.py",
    ): "a pool without deadlines",
    ("its name as a literal", "runtimes/ray_shards.py"): "Ray's own word for this machine",
}
"""Places that know an algorithm or a kind though they are not about it, and why."""


def test_few_know_an_algorithm_or_a_kind() -> None:
    """About 150 places did when there were layers. At most 8 may."""
    places = [(rule, place) for rule in RULES for place in found(RULES[rule])]
    assert [(rule, place) for rule, place in places if (rule, place.file) not in KNOWN] == []
    assert {(rule, place.file) for rule, place in places} == set(KNOWN)
    assert len(places) <= 8


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
    asking = {file: reaching_raw(tree(file)) for file in FILES if package(file) != "sides"}
    assert {file: found for file, found in asking.items() if found} == {}


def test_the_checks_can_fail() -> None:
    """On sources that break the rules, each helper sees it."""
    assert labels_made(ast.parse("import gossamer.vectors as v\nv.Released(x)")) == ["Released"]
    assert labels_made(ast.parse("def f() -> Released:\n    return Masked(1)")) == ["Masked"]
    assert labels_made(ast.parse("import gossamer.vectors as v\nv.labelled(v.Released, x)")) == ["labelled"]
    assert labels_made(ast.parse("x: Released = y\nisinstance(x, Released)")) == []
    assert reaching_raw(ast.parse("pool.raw([ticket])\nside.rule.shard")) == ["raw", "rule"]
    assert reaching_raw(ast.parse("key.raw")) == []
    assert reaching_raw(tree("sides/pool.py")) == ["raw"]
    assert {"errors", "vectors"} == rooms_imported()["protocol"]
