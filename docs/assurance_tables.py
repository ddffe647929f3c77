"""Writes the tables of the assurance pack from its data: claims, threats, and what was read of NIST's guide.

    python docs/assurance_tables.py

Tables stand between ``<!-- assurance: NAME -->`` and ``<!-- end -->``. The tests fail while a page says something else
than this program, while a claim has no test or names one that does not exist, and while an answer names no claim.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PACK = DOCS / "assurance"
BLOCK = re.compile(r"<!-- assurance: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
STRIDE = (
    "Spoofing",
    "Tampering",
    "Repudiation",
    "Information disclosure",
    "Denial of service",
    "Elevation of privilege",
)
LINDDUN = (
    "Linking",
    "Identifying",
    "Non-repudiation",
    "Detecting",
    "Data disclosure",
    "Unawareness",
    "Non-compliance",
)
METHODS = {"stride": STRIDE, "linddun": LINDDUN}


def data(name: str) -> Any:
    """Read one file of the pack."""
    return yaml.safe_load((PACK / f"{name}.yaml").read_text(encoding="utf-8"))


# What is wrong with them


@cache
def tests_of(file: Path) -> frozenset[str]:
    """Names of the tests that a file defines, those of classes as ``Class::test``, without importing it."""
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def wrong_claims(claims: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Claims without a test, with one that does not exist, or without a page, a line each."""
    seen = set()
    for claim in claims:
        name = claim["id"]
        if name in seen:
            yield f"{name}: there are two claims of this id"
        seen.add(name)
        if unknown := set(claim) - {"id", "part", "claim", "page", "tests", "limits"}:
            yield f"{name}: unknown keys {sorted(unknown)}"
        if not claim.get("tests"):
            yield f"{name}: no test fails if it stops being true"
        for test in claim.get("tests") or ():
            file, _, which = test.partition("::")
            if which not in tests_of(ROOT / file):
                yield f"{name}: no test is called {test}"
        if not (PACK / claim.get("page", "none").partition("#")[0]).is_file():
            yield f"{name}: no page is called {claim.get('page')}"


def wrong_answers(answers: Iterable[tuple[str, dict[str, Any]]], known: Iterable[str]) -> Iterator[str]:
    """Answers, by what they answer, that name no claim and do not say what is open, a line each."""
    ids = set(known)
    for what, answer in answers:
        if unknown := set(answer.get("claims", ())) - ids:
            yield f"{what}: no claim is called {sorted(unknown)}"
        if not answer.get("claims") and not answer.get("open"):
            yield f"{what}: neither answered by a claim nor said to be open"


# Tables


def cell(text: str) -> str:
    """Text on one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def rows(*lines: Iterable[str]) -> str:
    """A table whose first line is its header."""
    head, *rest = [[cell(text) for text in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rest)) + "\n"


def linked(claims: Iterable[str]) -> str:
    """Links to claims, each to the heading that it stands under."""
    parts = {claim["id"]: claim["part"].lower().replace(" ", "-") for claim in data("claims")}
    return ", ".join(f"[{name}](claims.md#{parts[name]})" for name in claims)


@cache
def finding() -> frozenset[str]:
    """Tests that find a planted bug of `tests/mutants.toml`."""
    planted = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    return frozenset(test.partition("[")[0] for bug in planted for test in bug["tests"])


def linked_test(test: str) -> str:
    """Link to the file of a test, called as the test is; a star where it finds a planted bug."""
    file, _, which = test.partition("::")
    return f"[`{which.replace('::', '.')}`](../../{file}){' *' if test in finding() else ''}"


def claims_table() -> str:
    """All claims, a heading for each part."""
    claims, text = data("claims"), []
    for part in dict.fromkeys(claim["part"] for claim in claims):
        mine = [claim for claim in claims if claim["part"] == part]
        lines = [
            (
                f"`{claim['id']}`",
                f"{claim['claim']} ([page]({claim['page']}))",
                claim.get("limits", ""),
                "<br>".join(map(linked_test, claim["tests"])),
            )
            for claim in mine
        ]
        text.append(f"## {part}\n\n{rows(('id', 'claim', 'what it does not say', 'tests that fail'), *lines)}")
    return "\n".join(text)


def answered(answer: dict[str, Any]) -> str:
    """Claims and what is open, in a cell."""
    named = linked(answer.get("claims", ()))
    return ". ".join(part for part in (named, answer.get("open", "").rstrip(".")) if part) + "."


def threats_table(method: str) -> str:
    """All threats of a method, a heading for each element or flow."""
    return "\n".join(
        f"### {one['of']}\n\n{one['what'][0].upper()}{one['what'][1:]}.\n\n"
        + rows(("", "threat", "answer"), *((t["kind"], t["threat"], answered(t)) for t in one["threats"]))
        for one in data("threats")[method]
    )


def nist_table(part: str, *head: str) -> str:
    """Blocks or hazards, each with its source and its answer."""
    lines = (
        (*(one[name] for name in head), f"{one['source']}, {one['where']}", one["answer"], answered(one))
        for one in data("nist")[part]
    )
    return rows((*head, "source", "answer", "claims, and what is open"), *lines)


def nist_sources() -> str:
    """Sources, and what could not be read."""
    found = data("nist")
    return rows(("source", "what it is"), *found["sources"].items()) + f"\n{' '.join(found['unread'].split())}\n"


TABLES: dict[str, Callable[[], str]] = {
    "claims": claims_table,
    "stride": lambda: threats_table("stride"),
    "linddun": lambda: threats_table("linddun"),
    "nist_sources": nist_sources,
    "nist_blocks": lambda: nist_table("blocks", "name", "level"),
    "nist_hazards": lambda: nist_table("hazards", "name"),
}


def pages() -> tuple[Path, ...]:
    """All pages that have such a table."""
    return tuple(page for page in sorted(PACK.glob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8")))


def written(page: str) -> str:
    """``page`` with its tables as they should be."""
    return BLOCK.sub(lambda found: f"<!-- assurance: {found[1]} -->\n\n{TABLES[found[1]]()}\n<!-- end -->", page)


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
