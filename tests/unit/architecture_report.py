"""Numbers of the code's parts and ties, as they are.

python -m tests.unit.architecture_report             by rule and file
python -m tests.unit.architecture_report --lines     with each place
python -m tests.unit.architecture_report --tests     also how many tests there are, which takes a minute
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.unit.architecture_rules import ROOT, RULES, SOURCE, TABLE, found, imports, trees, walked

TESTS = ROOT / "tests"

# Import circles


@cache
def modules_imported(*, types: bool = False) -> dict[str, set[str]]:
    """The files that each file imports; with ``types``, for the sake of types alone too."""
    known = {_module(file): file for file in trees()}
    graph: dict[str, set[str]] = {}
    for file, tree in trees().items():
        names = {name for _, name in imports(file, tree, types=types)}
        places = {known.get(name) or known.get(name.rpartition(".")[0]) for name in names}
        graph[file] = {place for place in places if place is not None and place != file}
    return graph


def _module(file: str) -> str:
    parts = ["gossamer", *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages_imported() -> dict[str, set[str]]:
    """The packages that each package imports: folders with code, and single files right under the root."""
    graph: dict[str, set[str]] = {}
    for file, imported in modules_imported().items():
        graph.setdefault(package(file), set()).update(package(other) for other in imported)
    return {package: others - {package} for package, others in graph.items()}


def package(file: str) -> str:
    """The room of a file: its folder, or itself right under the root; the table of algorithms is one of its own."""
    if file == TABLE:
        return TABLE
    folder = Path(file).parent.as_posix()
    return Path(file).stem if folder == "." else folder


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Sets of more than one that all reach each other."""
    reach = {start: _reached(graph, start) for start in graph}
    groups = {frozenset(other for other in reach[one] if one in reach[other]) for one in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen, todo = set[str](), [start]
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


# Sizes


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def lines_of_code(text: str) -> int:
    """Lines that have code: no blank ones, no comments, no docstrings, of names neither."""
    documented = set[int]()
    for node in walked(_parsed(text)):
        alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if alone and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - documented)


@dataclass(frozen=True)
class Size:
    """Of some files."""

    files: int
    lines: int
    code: int

    @classmethod
    def of(cls, folder: Path) -> Size:
        """Of all Python files in a folder."""
        texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
        return cls(len(texts), sum(text.count("\n") for text in texts), sum(map(lines_of_code, texts)))


def asserts() -> int:
    """`assert` statements of all tests."""
    trees = [_parsed(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")]
    return sum(isinstance(node, ast.Assert) for tree in trees for node in walked(tree))


def tests_by_mark() -> dict[str, int]:
    """How many tests are collected, slow ones and others."""
    numbers = {}
    for name, mark in (("slow", "slow"), ("others", "not slow")):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", mark]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        numbers[name] = sum(map(int, re.findall(r"^tests/\S+\.py: (\d+)$", done.stdout, re.MULTILINE)))
    return numbers


def report(*, lines: bool = False, tests: bool = False) -> Iterator[str]:
    """All of it, in lines."""
    for name, rule in RULES.items():
        places = found(rule)
        by_file = Counter(place.file for place in places)
        yield f"{name}: {len(places)} in {len(by_file)} files"
        yield from (f"  {count:3} {file}" for file, count in by_file.most_common())
        if lines:
            yield from (f"      {place.file}:{place.line}: {place.what}" for place in places)
    graphs = {
        "packages": packages_imported(),
        "modules": modules_imported(),
        "modules, those for types alone too": modules_imported(types=True),
    }
    for what, graph in graphs.items():
        loops = circles(graph)
        yield f"circles of imports between {what}: {len(loops)}"
        yield from (f"  {', '.join(loop)}" for loop in loops)
    for name, folder in (("source", SOURCE), ("tests", TESTS)):
        size = Size.of(folder)
        yield f"{name}: {size.files} files, {size.lines:,} lines, {size.code:,} of code"
    yield f"assert statements: {asserts():,}"
    if tests:
        yield from (f"tests, {mark}: {count:,}" for mark, count in tests_by_mark().items())


if __name__ == "__main__":
    print("\n".join(report(lines="--lines" in sys.argv, tests="--tests" in sys.argv)))
