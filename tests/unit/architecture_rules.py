"""Rules that find, in the syntax of a file, what ties it to things that should be known in one place only.

Nothing is asserted of them yet; `architecture_report` prints the numbers. There are two groups:

- **an algorithm**, outside its own files and the table of algorithms: imports of it, its name as a literal, `getattr`
  and `hasattr` on an algorithm, its settings or module, and `isinstance` or ``type: ignore`` on its settings;
- **the kind of a plan, a side or a task**, outside the making of data sides: `isinstance`, `match`, or a comparison.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gossamer.algorithms import table
from gossamer.algorithms.table import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "gossamer"

ROOMS = tuple(sorted(path.parent.name for path in (SOURCE / "algorithms").glob("*/box.py")))
"""The packages of algorithms."""
NAMES = (*ROOMS, *(name for name in ALGORITHMS if name not in ROOMS))
"""What algorithms and their packages are called."""
TABLE = "algorithms/table.py"
MAKING = re.compile(r"sides/\w+\.py")
"""Where data sides are made, and what they are made of."""
KINDS = frozenset(
    (
        *("Plan", "Plan", "UnitCharges", "AgentCharges", "UnitTerms"),
        *("Gradient", "Round", "Release", "LocalUpdate", "MaskingStep"),
        *("DataSide", "DataSides", "UnitSide", "UnitSides", "AgentSide", "MemberRule"),
        *("DeployedSide", "DeployedUnitSide", "FilledSide", "LoneAgent", "NoData"),
        *("UnitLedger", "AgentLedger"),
        *("Samples", "Stream", "ClientUpdate", "MaskedMember", "Curator", "Nothing"),
        *("Account", "Charges"),
        *("Pool", "Filled", "Side"),
    )
)
"""Classes of plans, sides and tasks."""
KIND_FACTS = re.compile(r"(^|\.)(in_units|masking\.name|round_update)$|masking'\]\['name'\]$")
"""What else tells the kind of a run's sides: read, or compared with something."""
SETTINGS_CLASSES = frozenset(
    name
    for name, value in vars(table).items()
    if value in [algorithm.Settings for algorithm in table.ALGORITHMS.values()]
) | {"Settings"}
_UNITS = re.compile(r"\b(prepared|world)\.units$")
_ALGORITHM = re.compile(r"(^|\.|_)(algorithm|algorithms|settings|module)$|^ALGORITHMS\[")


class Place(NamedTuple):
    """Where something was found."""

    file: str
    line: int
    what: str


Rule = Callable[[str, ast.Module], Iterator[Place]]
"""(file below the package, its syntax) -> what was found."""


def owner(file: str) -> str | None:
    """The algorithm in whose package a file is, if any."""
    parts = Path(file).parts
    return parts[1] if parts[0] == "algorithms" and len(parts) > 2 else None


def imports(file: str, tree: ast.Module, *, types: bool = False) -> Iterator[tuple[int, str]]:
    """The line and absolute name of every import, inside functions too; with ``types``, those of types alone too."""
    package = ["gossamer", *Path(file).parts[:-1]]
    for node in walked(tree) if types else _running(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes, found once for all rules."""
    return tuple(ast.walk(tree))


@cache
def _running(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes but those under ``if TYPE_CHECKING:``."""
    found, todo = [], [tree]
    while todo:
        found.append(node := todo.pop())
        children = list(ast.iter_child_nodes(node))
        todo += [child for child in reversed(children) if not _for_types(child)]
    return tuple(found)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# An algorithm, outside its own files


def imports_of_algorithms(file: str, tree: ast.Module) -> Iterator[Place]:
    """A statement that imports from an algorithm's own module."""
    seen = set()
    for line, name in imports(file, tree):
        parts = name.split(".")
        if parts[:2] != ["gossamer", "algorithms"] or len(parts) < 3:
            continue
        found = parts[2] if parts[2] in ROOMS else None
        if found is not None and found != owner(file) and (line, found) not in seen:
            seen.add((line, found))
            yield Place(file, line, f"imports {found}")


def literals_of_names(file: str, tree: ast.Module) -> Iterator[Place]:
    """A text that is an algorithm's name and nothing else."""
    if owner(file) is None:
        for node in walked(tree):
            if isinstance(node, ast.Constant) and node.value in NAMES:
                yield Place(file, node.lineno, repr(node.value))


def attributes_asked_for(file: str, tree: ast.Module) -> Iterator[Place]:
    """`getattr` or `hasattr` on an algorithm, its settings or module, with a name that mypy could have checked."""
    if owner(file) is None:
        for node in walked(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
                about, what = node.args[0], node.args[1]
                if isinstance(what, ast.Constant) and _ALGORITHM.search(ast.unparse(about)):
                    yield Place(file, node.lineno, ast.unparse(node))


def settings_by_class(file: str, tree: ast.Module) -> Iterator[Place]:
    """`isinstance` with a class of settings, or ``type: ignore`` where an algorithm's settings are taken for one."""
    if owner(file) is not None:
        return
    for node in walked(tree):
        if isinstance(node, ast.Call) and _classes(node) & SETTINGS_CLASSES:
            yield Place(file, node.lineno, ast.unparse(node))
    for number, line in enumerate(source(file).splitlines(), 1):
        if "type: ignore" in line and re.search(r"\.algorithm\b", line):
            yield Place(file, number, line.strip())


# The kind of a plan, a side or a task, outside the making of data sides


def kinds_by_class(file: str, tree: ast.Module) -> Iterator[Place]:
    """`isinstance`, `match` or ``type(...) is`` with a class of plans, sides or tasks."""
    if MAKING.fullmatch(file):
        return
    for node in walked(tree):
        if isinstance(node, ast.Call) and _classes(node) & KINDS:
            yield Place(file, node.lineno, ast.unparse(node))
        elif isinstance(node, ast.MatchClass) and _last(node.cls) in KINDS:
            yield Place(file, node.lineno, f"case {ast.unparse(node)}")
        elif isinstance(node, ast.Compare) and {_last(other) for other in node.comparators} & KINDS:
            yield Place(file, node.lineno, ast.unparse(node))


def kinds_by_facts(file: str, tree: ast.Module) -> Iterator[Place]:
    """A comparison with what tells the kind of sides, a reading of ``in_units``, or whether there are units."""
    if MAKING.fullmatch(file) or owner(file) is not None:
        return
    for node in walked(tree):
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            if any(KIND_FACTS.search(side) for side in sides):
                yield Place(file, node.lineno, ast.unparse(node))
        elif isinstance(node, ast.Attribute) and node.attr == "in_units":
            yield Place(file, node.lineno, ast.unparse(node))
        elif isinstance(node, ast.If | ast.IfExp) and _UNITS.search(ast.unparse(node.test)):
            yield Place(file, node.lineno, ast.unparse(node.test))


def _classes(call: ast.Call) -> set[str]:
    """The classes of an `isinstance`."""
    if getattr(call.func, "id", "") != "isinstance" or len(call.args) < 2:
        return set()
    return {_last(node) for node in ast.walk(call.args[1]) if isinstance(node, ast.Name | ast.Attribute)}


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


RULES: Mapping[str, Rule] = {
    "imports of an algorithm": imports_of_algorithms,
    "its name as a literal": literals_of_names,
    "getattr or hasattr on it, its settings or module": attributes_asked_for,
    "isinstance or type: ignore on its settings": settings_by_class,
    "the kind of a plan, side or task by its class": kinds_by_class,
    "the kind of a plan, side or task by a fact": kinds_by_facts,
}


@cache
def source(file: str) -> str:
    """Of a file below the package."""
    return (SOURCE / file).read_text(encoding="utf-8")


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax of every file of the package."""
    files = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return {file: ast.parse(source(file), file) for file in files}


def found(rule: Rule) -> list[Place]:
    """Everything that a rule finds."""
    return [place for file, tree in trees().items() if file != TABLE for place in rule(file, tree)]
