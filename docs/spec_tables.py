"""Writes the tables of settings in the documentation from the settings themselves.

    python docs/spec_tables.py

Tables stand between ``<!-- settings: PLACE -->`` and ``<!-- end -->``, where PLACE is a place in a spec such as
``links`` or ``algorithm.topology``, or one kind of what it may hold, such as ``algorithm: gossip``. The tests fail
while a page says something else than this program.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gossamer.algorithms.table import OWN
from gossamer.experiment.specs.spec import Experiment
from gossamer.section import Section

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(r"<!-- settings: ([\w.]+)(?:: (\w+))? -->\n.*?<!-- end -->", re.DOTALL)
PAGES = tuple(page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8")))
"""All that have such a table."""
PLACES = {
    found[1]: f"docs/spec/{page.name}"
    for page in sorted((DOCS / "spec").glob("*.md"))
    for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
}
"""The page that describes each section of a spec, by its place."""
SCHEMA = Experiment.model_json_schema()


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema``, or what it refers to."""
    reference = schema.get("$ref")
    return SCHEMA["$defs"][reference.rpartition("/")[2]] if reference else schema


def members(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives a value may be one of, those of alternatives included, without null."""
    found = resolved(schema)
    alternatives = found.get("oneOf") or found.get("anyOf")
    if alternatives is None:
        return [] if found.get("type") == "null" else [found]
    return [member for item in alternatives for member in members(item)]


def named(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """What a mapping of free names holds; nothing of a section, whose keys are fixed."""
    return members(schema["additionalProperties"]) if isinstance(schema.get("additionalProperties"), dict) else []


def kinds_in(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The kinds of settings that a value may be, or that a mapping of free names holds."""
    items = [item for member in members(schema) for item in (named(member) or [member])]
    return [item for item in items if "properties" in item]


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    """The items of a list, or of one that may be left out; nothing of what is no list alone."""
    lists = [member for member in members(schema) if member.get("type") == "array" and "items" in member]
    return resolved(lists[0]["items"]) if len(members(schema)) == len(lists) == 1 else {}


def sections(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every place that holds settings, with the kinds of settings it may hold."""
    for kind in kinds_in(schema):
        for key, value in kind["properties"].items():
            place = f"{path}.{key}" if path else key
            inside = listed(value) or value
            kinds = kinds_in(inside)
            if kinds:
                yield place, kinds
                yield from sections(inside, place)


def all_sections() -> dict[str, list[dict[str, Any]]]:
    """Every place, with the kinds of all algorithms; of those that are called the same the first."""
    found: dict[str, dict[Any, dict[str, Any]]] = {}
    for place, kinds in sections(SCHEMA):
        for kind in kinds:
            found.setdefault(place, {}).setdefault(tag(kind) or (kind["title"], *names(kind)), kind)
    return {place: list(kinds.values()) for place, kinds in found.items()}


def tag(kind: dict[str, Any]) -> tuple[str, str] | None:
    """The key and value that tell a kind of settings from its alternatives."""
    return next(((key, value["const"]) for key, value in kind["properties"].items() if "const" in value), None)


def names(kind: dict[str, Any]) -> list[str]:
    """What a kind of settings is called; several algorithms may have one."""
    named = kind["properties"].get("name", {})
    return [named["const"]] if "const" in named else list(named.get("enum", []))


SECTIONS = all_sections()


def values(schema: dict[str, Any], place: str) -> str:
    """What a key may be set to."""
    if listed(schema) and place in SECTIONS:
        return f"[list of sections]({anchor(place)})"
    linked = {True: f"[section]({anchor(place)})", False: f"[mapping of sections]({anchor(place)})"}
    found = (
        linked["properties" in item] if "properties" in item or kinds_in(item) else one_value(item)
        for item in members(schema)
    )
    return " or ".join(dict.fromkeys(found))


def anchor(place: str) -> str:
    """Place of a section in the pages on the spec, from the repository's folder; `written` makes it relative."""
    return f"{PLACES.get(place, '')}#{place.replace('.', '')}"


def one_value(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{item}`" for item in schema["enum"])
    if schema["type"] == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        many = f", exactly {least}" if least == most else f", {least} or more" if least > 1 else ""
        items = members(schema["items"]) if "items" in schema else schema["prefixItems"]
        return "list of " + " or ".join(dict.fromkeys(one_value(item) for item in items)) + many
    if schema["type"] == "object":
        return f"mapping of names to {one_value(named(schema)[0])}"
    names = {"boolean": "`true`, `false`", "string": "path" if schema.get("format") == "path" else "text"}
    even = "even " if schema.get("multipleOf") == 2 else ""
    return names.get(schema["type"]) or f"{even}{schema['type']}{bounds(schema)}"


def bounds(schema: dict[str, Any]) -> str:
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if schema["type"] == "integer" and above is not None:
        least, above = above + 1, None
    if most is None and below is None:
        return f" ≥ {least}" if least is not None else f" > {above}" if above is not None else ""
    start = f"[{least:g}" if least is not None else f"({above:g}"
    end = f"{most:g}]" if most is not None else f"{below:g})"
    return f" in {start}, {end}"


def default(key: str, value: dict[str, Any], kind: dict[str, Any]) -> str:
    if key in kind.get("required", []):
        return "required"
    found = value["default"]
    if isinstance(found, dict):
        found = next(iter(found.values())) if len(found) == 1 else found
    if found is None:
        return "-"
    text = yaml.safe_dump(found, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    return f"`{text}`"


def meanings(kind: dict[str, Any]) -> dict[str, str]:
    """What the settings' docstring says of each key, and those of an algorithm's that it shares with others."""
    shared = {}
    for base in bases(kind):
        shared.update(listed_in(inspect.getdoc(base) or ""))
    return shared | listed_in(kind.get("description", ""))


def bases(kind: dict[str, Any]) -> list[type]:
    """Sections that an algorithm's settings are built on."""
    name = next(iter(names(kind)), "")
    own = OWN[name].Settings if name in OWN and "nodes" in kind["properties"] else None
    return (
        [] if own is None else [base for base in own.__mro__[1:] if issubclass(base, Section) and base is not Section]
    )


def listed_in(text: str) -> dict[str, str]:
    """What a docstring says of each attribute."""
    _, _, listed = text.partition("Attributes\n----------\n")
    listed = re.split(r"\n\n\w+\n-+\n", listed)[0]
    found = {}
    for entry in re.split(r"\n(?=\S)", listed):
        keys, _, text = entry.partition("\n")
        for key in keys.partition(" : ")[0].split(", "):
            found[key] = plain(text)
    return found


def summary(kind: dict[str, Any]) -> str:
    """The docstring before its first numpydoc heading."""
    return plain(re.split(r"\n\n\w+\n-+\n", kind.get("description", ""))[0])


def plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def table(kind: dict[str, Any], place: str) -> str:
    """One kind of settings, a key a line; empty if it has none beside its tag."""
    known, marked = meanings(kind), tag(kind)
    rows = [
        [f"`{key}`", values(value, f"{place}.{key}"), default(key, value, kind), known.get(key, "")]
        for key, value in kind["properties"].items()
        if marked is None or key != marked[0]
    ]
    columns = 4 if any(row[3] for row in rows) else 3
    lines = [["key", "value", "default", "meaning"], ["---"] * 4, *rows]
    return "\n".join(f"| {' | '.join(line[:columns])} |" for line in lines) if rows else ""


def block(place: str) -> str:
    """Everything that ``place`` may hold."""
    kinds = SECTIONS[place]
    if len(kinds) == 1:
        return f"{summary(kinds[0])}\n\n{table(kinds[0], place)}\n"
    parts = []
    for kind in kinds:
        key, name = tag(kind) or ("name", ", ".join(kind["properties"]["name"]["enum"]))
        parts.append(f"**`{key}: {name}`** {summary(kind)}\n")
        if rows := table(kind, place):
            parts.append(f"{rows}\n")
    return "\n".join(parts)


def one_kind(place: str, name: str) -> str:
    """The keys of the settings called ``name``, for a page elsewhere."""
    (kind,) = (kind for kind in SECTIONS[place] if name in names(kind))
    return table(kind, place) + "\n"


def written(page: Path) -> str:
    """What ``page`` says with its tables as they should be."""

    def relative(found: re.Match[str]) -> str:
        path = os.path.relpath(DOCS.parent / found[1], page.parent)
        return f"]({'' if path == page.name else path}#"

    def fill(found: re.Match[str]) -> str:
        text = one_kind(found[1], found[2]) if found[2] else block(found[1])
        text = re.sub(r"\]\((docs/spec/\w+\.md)#", relative, text)
        return f"{found[0].splitlines()[0]}\n\n{text}\n<!-- end -->"

    return BLOCK.sub(fill, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page), encoding="utf-8")
