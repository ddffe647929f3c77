"""Docstrings start with a noun or a verb ("Return ...", "Rows of ...")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.unit.architecture_rules import Place, trees, walked

CLAUSE = re.compile(
    r"((After|At|By|For|From|In|On|To|Until|With) )?(what|how|who|whom|whose|where|when|which|why)\b|(Of|That)\b",
    re.IGNORECASE,
)
"""Starts of a clause, or of a phrase without the noun that it belongs to. "Whether ..." is right for booleans."""


def clauses(file: str, tree: ast.Module) -> Iterator[Place]:
    for node in walked(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and CLAUSE.match(text):
                yield Place(file, node.body[0].lineno, text.splitlines()[0])


def test_no_docstring_starts_with_a_clause() -> None:
    """Begin them with a noun or a verb, as in 'Rows of a shard'."""
    found = [place for file, tree in trees().items() for place in clauses(file, tree)]
    assert [f"src/gossamer/{place.file}:{place.line}: {place.what}" for place in found] == []


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
