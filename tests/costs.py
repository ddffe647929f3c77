"""What a test costs: `make test` runs what takes little of a processor, `make test-long` the rest.

``costs.tsv`` has the cases of tests that took over ``DEAR`` processor seconds when they were last measured
(``make test-costs``). A case that is not in it, because it is new or has another name, counts as cheap.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("costs.tsv")
DEAR = 0.2  # processor seconds
# The cheapest case of a test that has dear ones alone counts as short, too, unless it takes more than this.
MOST = 0.5


def known() -> dict[str, float]:
    """Processor seconds of each dear case."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {case: float(seconds) for seconds, case in rows}


def short(cases: Iterable[str], costs: Mapping[str, float]) -> set[str]:
    """Cases that do not take long.

    Parameters
    ----------
    cases : iterable of str
        Names of all cases, as pytest says them.
    costs : mapping of str to float
        Processor seconds of those that are dear.

    Returns
    -------
    set of str
        All others, and the cheapest of each test that has none, if it takes ``MOST`` seconds at most.
    """
    tests: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        tests[case.partition("[")[0]].append(case)
    chosen: set[str] = set()
    for of_test in tests.values():
        cheap = [case for case in of_test if costs.get(case, 0.0) <= DEAR]
        cheapest = min(of_test, key=lambda case: costs.get(case, 0.0))
        chosen.update(cheap or [case for case in [cheapest] if costs[case] <= MOST])
    return chosen


class Meter:
    """A plugin that measures every case and writes the table at the end, also where several workers run them."""

    def __init__(self) -> None:
        self.costs: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what was spent when a test begins."""
        item.stash[BEGUN] = spent()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Give what it has spent to the report of its end."""
        if call.when == "teardown":
            item.user_properties.append(("processor seconds", spent() - item.stash[BEGUN]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take it from there, in the process that hears of all."""
        if report.when == "teardown":
            self.costs[report.nodeid] = float(str(dict(report.user_properties)["processor seconds"]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the dear ones; what did not run now keeps its row."""
        if not hasattr(session.config, "workerinput"):
            dear = sorted((case, cost) for case, cost in {**known(), **self.costs}.items() if cost >= DEAR)
            TABLE.write_text("".join(f"{cost:.2f}\t{case}\n" for case, cost in dear), encoding="utf-8")


BEGUN = pytest.StashKey[float]()


def spent() -> float:
    """Processor seconds of this process, and of those that it started and that ended."""
    return sum(os.times()[:4])
