"""The page on results: it names every figure that runs of the examples leave, and every reason to finish."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.algorithms.graph_federated.nodes import REASONS
from gossamer.experiment.specs.spec_file import parse_spec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("digits-*.yaml"))
PAGE = (ROOT / "docs" / "how-to" / "results.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))
"""All that stands on the page as code."""
OWN = PAGE.partition("\n## Figures of an algorithm's own\n")[2].partition("\n## ")[0]
SMALL = {"nodes": 6, "clients_per_round": 3, "rounds": 2, "updates_per_node": 2, "buffer": 2, "units": 2, "agents": 3}
"""The most of each setting here."""
OWN_NOISE = {"noise_by": "client", "trusted": None}
MASKS = {"name": "secure", "honest": 0.9}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedbuff, noise of clients' own": ("digits-fedbuff", {"algorithm": OWN_NOISE}),
    "fedbuff, masked": ("digits-fedbuff", {"algorithm": {**OWN_NOISE, "masking": MASKS, "buffer": 4}}),
    "fedavg, quantile": ("digits-fedavg", {"privacy": {"clip": {"policy": "quantile", "count_share": 0.05}}}),
    "personal models": ("digits-fedavg", {"personalisation": {"steps": 1}}),
    "reproducible": ("digits-fedavg", {"privacy": {"noise_secret": "reproducible"}}),
    "no noise": ("digits-fedavg", {"privacy": {"mechanism": "none", "clip": None}, "budget": None}),
}
"""Of an example, in which other figures are."""


def small(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with few nodes and updates."""
    found = dict(content)
    most = {key: value for key, value in SMALL.items() if isinstance(content["algorithm"].get(key), int)}
    fewer = {key: min(value, content["algorithm"][key]) for key, value in most.items()}
    found["algorithm"] = {**content["algorithm"], **fewer}
    if "rounds" not in content["algorithm"]:
        found["stop"] = {"updates": 12}
    for key, value in changes.items():
        found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys of nested data, each with those above it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield (*path, key)
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path)


def words(text: str) -> set[str]:
    """The keys that a text names, alone or as parts of longer ones."""
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", code)}


CASES = [(path.stem, {}) for path in EXAMPLES] + list(VARIANTS.values())


@pytest.mark.some(4)
@pytest.mark.parametrize(("example", "changes"), CASES, ids=[path.stem for path in EXAMPLES] + list(VARIANTS))
@pytest.mark.filterwarnings("ignore")
def test_every_figure_of_a_run_stands_on_the_page(example: str, changes: dict[str, Any], tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text(encoding="utf-8"))
    gs.run(parse_spec(small(content, changes)), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    own = summary.get(summary["algorithm"], {})
    for path in leaves(summary):
        if not _of_its_own(path):
            assert path[-1].removeprefix("worst_node_") in words(PAGE), path
    assert {path[-1] for path in leaves(own) if not _of_its_own(path)} <= words(OWN)
    assert {*summary["finished"].values()} <= NAMED


def _of_its_own(path: tuple[str, ...]) -> bool:
    """Whether a key is the name of a party, of a class, or of a parameter of a theorem."""
    return path[-2:-1] in (("parameters",), ("by_class",)) or bool(re.fullmatch(r"(node|server)-\d+", path[-1]))


def test_every_reason_to_finish_stands_on_the_page() -> None:
    found = set(REASONS)
    for path in (ROOT / "src" / "gossamer" / "algorithms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"halt", "finish", "leave", "end"}:
                texts = [part for word in node.args for part in ast.walk(word) if isinstance(part, ast.Constant)]
                found |= {part.value for part in texts if isinstance(part.value, str)}
    assert {"rounds", "quota", "too few clients left"} <= found
    assert found - NAMED == set()
