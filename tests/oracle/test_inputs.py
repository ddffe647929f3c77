"""What runs depend on, as text; the same on every machine."""

from __future__ import annotations

import difflib

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")
pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("amqtt", reason="needs the extra broker")

from tests.oracle.inputs import TEXT, rounded, text


def test_runs_depend_on_what_they_did() -> None:
    """A new version number, or a new setting with a default, changes all noise: then all is recorded anew, at the
    commit before (`--replace`), with that change alone."""
    before, found = TEXT.read_text(encoding="utf-8").splitlines(), text().splitlines()
    assert list(difflib.unified_diff(before, found, "recorded", "found", lineterm="", n=0)) == []


def test_numbers_are_rounded_wherever_they_are() -> None:
    assert rounded({"a": [0.123456, (1, 2.00001)], "b": "0.123456"}) == {"a": [0.1235, [1, 2.0]], "b": "0.123456"}
