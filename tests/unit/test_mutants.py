"""The table of bugs that tests have to find: each has its place in the source, and its tests are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.run_mutants import ROOT, Mutant, mutants

import gossamer.errors

SOURCE = Path(gossamer.errors.__file__).parent


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_it_has_one_place_in_the_source_and_changes_it(mutant: Mutant) -> None:
    path = mutant.place(SOURCE)
    changed = path.read_text(encoding="utf-8").replace(mutant.find, mutant.replace)
    assert changed != path.read_text(encoding="utf-8")
    compile(changed, str(path), "exec")
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_a_text_that_is_nowhere_or_twice_is_seen() -> None:
    mutant = mutants()[0]
    for text in ("this text is in no file of the source", "import"):
        with pytest.raises(LookupError, match="expected its text once"):
            replace(mutant, find=text).place(SOURCE)


def test_there_are_forty() -> None:
    assert len(mutants()) >= 40
    assert len({mutant.name for mutant in mutants()}) == len(mutants())
