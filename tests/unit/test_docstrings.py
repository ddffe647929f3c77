"""Docstrings start with a noun or a verb ("Return ...", "Rows of ..."), in ever more rooms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.unit.architecture_report import package
from tests.unit.architecture_rules import SOURCE, Place, trees, walked

CLAUSE = re.compile(
    r"((After|At|By|For|From|In|On|To|Until|With) )?(what|how|who|whom|whose|where|when|which|why)\b|(Of|That)\b",
    re.IGNORECASE,
)
"""Starts of a clause, or of a phrase without the noun that it belongs to. "Whether ..." is right for booleans."""
LEFT = {
    "data": 20,
    "deployment/channel": 10,
    "deployment/founding": 8,
    "deployment/owner": 22,
    "deployment/peers": 15,
    "experiment": 39,
    "objectives": 23,
    "objectives/models": 2,
    "privacy": 31,
    "privacy/accounting": 44,
    "privacy/exact": 9,
    "privacy/masking": 24,
    "privacy/streams": 23,
    "protocol": 19,
    "runtimes": 14,
    "runtimes/mqtt": 13,
    "section": 1,
    "topology": 5,
    "vectors": 3,
}
"""Docstrings by room that are still to be rewritten: numbers that only ever fall. A room that is not here has none."""


def clauses(file: str, tree: ast.Module) -> Iterator[Place]:
    for node in walked(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and CLAUSE.match(text):
                yield Place(file, node.body[0].lineno, text.splitlines()[0])


ROOMS = sorted({package(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py")})


@cache
def found() -> list[Place]:
    """All of them; whoever only collects tests reads no file."""
    return [place for file, tree in trees().items() for place in clauses(file, tree)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_more_docstrings_of_a_room_start_with_a_clause(room: str) -> None:
    there = [place for place in found() if package(place.file) == room]
    shown = "\n".join(f"src/gossamer/{place.file}:{place.line}: {place.what}" for place in there)
    assert len(there) <= LEFT.get(room, 0), f"begin them with a noun or a verb, as in 'Rows of a shard':\n{shown}"


def test_every_number_that_is_left_is_of_a_room() -> None:
    assert LEFT.keys() <= set(ROOMS)


@pytest.mark.parametrize(
    "text",
    [
        '"""What leaves."""',
        'class A:\n    """How rows are drawn."""',
        'class A:\n    def f(self):\n        """\n        Of a unit.\n        """',
        'async def f():\n    """When it ends; else None."""',
        'def f():\n    """On how many rows it is computed."""',
    ],
)
def test_a_clause_is_seen(text: str) -> None:
    assert len(list(clauses("x.py", ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Rows of a shard: what leaves, and how."""',
        'def f():\n    """Whether it ends."""',
        'def f():\n    """Offers of peers."""',
        'x = 1\n"""What is no docstring of these."""',
    ],
)
def test_nothing_else_is_seen(text: str) -> None:
    assert list(clauses("x.py", ast.parse(text))) == []
