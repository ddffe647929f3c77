"""Which tests take long."""

from __future__ import annotations

import pytest
from tests.costs import DEAR, MOST, known, short

pytest_plugins = ["pytester"]

CASES = ["t.py::cheap", "t.py::some[a]", "t.py::some[b]", "t.py::dear[a]", "t.py::dear[b]", "t.py::long"]
COSTS = {"t.py::some[b]": 9.0, "t.py::dear[a]": MOST, "t.py::dear[b]": MOST + 1, "t.py::long": MOST + 1}


def test_dear_cases_are_long_but_for_the_cheapest_of_a_test() -> None:
    assert short(CASES, COSTS) == {"t.py::cheap", "t.py::some[a]", "t.py::dear[a]"}


def test_what_was_not_measured_is_short() -> None:
    assert short(CASES, {}) == {*CASES}


def test_the_table_has_what_is_dear_alone() -> None:
    assert min(known().values()) >= DEAR


def test_it_is_made_by_running_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of this process and of those that it starts counts, and waiting does not; tests that did not run stay."""
    table = pytester.path / "costs.tsv"
    table.write_text("9.00\ttest_a.py::test_waits\n9.00\ttest_b.py::test_elsewhere\n")
    monkeypatch.setattr("tests.costs.TABLE", table)
    pytester.makeconftest(
        "from tests.costs import Meter\ndef pytest_configure(config): config.pluginmanager.register(Meter())"
    )
    pytester.makepyfile(
        test_a="""
        import subprocess, sys, time
        WORK = "import time\\nwhile time.process_time() < 1: pass"
        def test_works():
            end = time.process_time() + 1
            while time.process_time() < end: pass
        def test_starts_work(): subprocess.run([sys.executable, "-c", WORK], check=True)
        def test_waits(): time.sleep(1)
        """
    )
    pytester.inline_run("-p", "no:unraisableexception", "-p", "no:cacheprovider").assertoutcome(passed=3)
    measured = {case.rpartition("::")[2]: seconds for case, seconds in known().items()}
    assert measured.keys() == {"test_works", "test_starts_work", "test_elsewhere"}
    assert min(measured.values()) > 0.9
