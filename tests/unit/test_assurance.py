"""The assurance pack: every claim has tests, every threat and hazard an answer, and pages say what the data say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CHANNEL = ROOT / "tests" / "unit" / "deployment" / "channel"
REVIEWED = {
    "S": CHANNEL / "test_secure_channel.py",
    "R": CHANNEL / "test_handshake_review.py",
    "P": ROOT / "tests" / "properties" / "test_secure_channel_properties.py",
    "D": ROOT / "tests" / "unit" / "deployment" / "peers" / "test_peers.py",
}


def loaded() -> ModuleType:
    found = importlib.util.spec_from_file_location("assurance_tables", DOCS / "assurance_tables.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


PACK = loaded()
CLAIMS: list[dict[str, Any]] = PACK.data("claims")
THREATS: dict[str, list[dict[str, Any]]] = PACK.data("threats")
IDS = [claim["id"] for claim in CLAIMS]
GOOD = CLAIMS[0]


def threats() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{one['of']}, {t['kind']}", t) for method in THREATS.values() for one in method for t in one["threats"]]


def test_every_claim_has_a_test_that_exists() -> None:
    assert list(PACK.wrong_claims(CLAIMS)) == []
    assert len(CLAIMS) >= 60


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tests": []}, "no test fails if it stops being true"),
        ({"tests": None}, "no test fails if it stops being true"),
        ({"tests": ["tests/unit/test_assurance.py::test_of_nothing"]}, "no test is called"),
        ({"tests": ["tests/unit/test_nowhere.py::test_it"]}, "no test is called"),
        ({"tests": ["tests/unit/test_assurance.py"]}, "no test is called"),
        ({"tests": ["tests/unit/test_assurance.py::threats"]}, "no test is called"),
        ({"page": "nowhere.md"}, "no page is called nowhere.md"),
        ({"test": "misspelt"}, r"unknown keys \['test'\]"),
    ],
)
def test_a_claim_that_nothing_would_refute_is_found(change: dict[str, Any], complaint: str) -> None:
    (line,) = PACK.wrong_claims([{**GOOD, "id": "planted", **change}])
    assert re.match(f"planted: {complaint}", line)


def test_two_claims_of_one_name_are_found() -> None:
    assert list(PACK.wrong_claims([GOOD, GOOD])) == [f"{GOOD['id']}: there are two claims of this id"]


def test_tests_of_classes_are_found_by_their_class() -> None:
    names = PACK.tests_of(ROOT / "tests" / "unit" / "deployment" / "party" / "test_terms.py")
    assert "TestRefused::test_noise_that_somebody_could_draw_again" in names
    assert "test_noise_that_somebody_could_draw_again" not in names


def test_every_element_has_all_kinds_of_threats_and_each_an_answer() -> None:
    assert list(PACK.wrong_answers(threats(), IDS)) == []
    assert set(THREATS) == set(PACK.METHODS)
    for method, kinds in PACK.METHODS.items():
        for one in THREATS[method]:
            assert tuple(threat["kind"] for threat in one["threats"]) == kinds, one["of"]


def test_every_block_and_hazard_has_a_source_and_an_answer() -> None:
    found = PACK.data("nist")
    listed = [*found["blocks"], *found["hazards"]]
    assert list(PACK.wrong_answers(((one["name"], one) for one in listed), IDS)) == []
    assert {one["source"] for one in listed} <= set(found["sources"])
    assert all(one["where"] and one["answer"] for one in listed)
    assert found["unread"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({}, "here: neither answered by a claim nor said to be open"),
        ({"claims": ["no-such-claim"]}, "here: no claim is called ['no-such-claim']"),
    ],
)
def test_an_answer_that_is_none_is_found(answer: dict[str, Any], complaint: str) -> None:
    assert complaint in PACK.wrong_answers([("here", answer)], IDS)


@pytest.mark.parametrize("page", PACK.pages(), ids=lambda page: page.name)
def test_pages_say_what_the_data_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert PACK.written(text) == text, "run: python docs/assurance_tables.py"


def test_every_table_is_on_a_page() -> None:
    found = [name for page in PACK.pages() for name in PACK.BLOCK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(PACK.TABLES)


def test_the_review_of_the_handshake_names_tests_that_exist() -> None:
    text = (DOCS / "assurance" / "handshake.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| **")]
    assert len(lines) >= 20
    for line in lines:
        which, named = "", 0
        for word in re.findall(r"\b[SRPD]\b|`test_\w+`", line[-1]):
            if word in REVIEWED:
                which = word
            else:
                assert word.strip("`") in PACK.tests_of(REVIEWED[which]), f"{line[0]}: {word} of {which}"
                named += 1
        assert named, line[0]
