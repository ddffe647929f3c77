"""The studies in experiments/adp2sgd: their specs are sound, and what is expected of them comes out."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "adp2sgd"
STUDIES = ("table-1", "figure-2", "figure-3", "figure-4")


@pytest.fixture
def study_runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of the studies, as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location("adp2sgd_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "adp2sgd_run", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("study", STUDIES)
def test_specs_are_sound(study_runner: ModuleType, study: str) -> None:
    for full in (False, True):
        places = [variant.name for variant in study_runner.variants(study, full=full)]
        assert len(places) == len(set(places)) > 0


@pytest.mark.parametrize("study", STUDIES)
def test_the_results_that_are_shown_are_as_expected(study_runner: ModuleType, study: str) -> None:
    """What the README's figures and tables were made from."""
    from checks import unmet

    expected = json.loads((FOLDER / study / "expected.json").read_text())
    records = json.loads((FOLDER / study / "results.json").read_text())
    assert expected
    assert unmet(expected, records) == []
    spoilt = [{**record, "curve": record["curve"][:1]} for record in records]  # nobody has learnt anything
    assert unmet(expected, spoilt)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_what_is_expected_comes_out(
    study_runner: ModuleType, study: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checks import unmet

    monkeypatch.setitem(os.environ, "GOSSAMER_DATA", str(shared_data))
    expected = json.loads((FOLDER / study / "expected.json").read_text())
    assert unmet(expected, study_runner.run_study(study)) == []
