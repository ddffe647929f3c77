"""Figures that tests have again: those of the same plan, and of no other."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import pytest
from tests import kept_figures, machine_code

from gossamer.privacy.accounting import accountants
from gossamer.privacy.mechanisms import FixedSize, Gaussian, L2Laplace, NeighboringRelation, Poisson, ReleaseKind

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE

KINDS = [
    ReleaseKind(mechanism, sampling, slots)
    for mechanism in (Gaussian(1.0, 1.0), Gaussian(1.0, 1.5), Gaussian(0.5, 1.0), L2Laplace(1.0, 1.0, ADD))
    for sampling in (Poisson(0.5), Poisson(0.25), FixedSize(4, 2))
    for slots in (1, 2)
]


def test_another_plan_has_another_name() -> None:
    plans = [frozenset({(kind, count)}) for kind in KINDS for count in (1, 2)]
    names = [
        kept_figures.written((plan, delta, relation))
        for plan in plans
        for delta in (0.1, 0.2)
        for relation in (ADD, REPLACE)
    ]
    assert None not in names
    assert len({*names}) == 4 * len(plans)


def test_the_order_of_a_set_is_no_matter_and_strange_values_have_no_name() -> None:
    first, second = (kept_figures.written(frozenset(one)) for one in (KINDS[:4], KINDS[3::-1]))
    assert first == second
    assert kept_figures.written((KINDS[0], object())) is None
    assert kept_figures.written([1]) is None


def test_a_figure_is_computed_once_and_by_tests_of_figures_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_figures, "home", lambda: tmp_path)
    asked = []

    @lru_cache(maxsize=0)
    def _epsilon(*arguments: object) -> object:
        asked.append(arguments)
        return accountants.Accounted(float(len(asked)), "slow")

    arguments = (((frozenset({(KINDS[0], 3)}), 1),), 1e-5, ADD)
    assert [kept_figures.kept(_epsilon)(*arguments).epsilon for _ in range(3)] == [1, 1, 1]
    assert kept_figures.kept(_epsilon)(*arguments[:1], 1e-6, ADD).epsilon == 2
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/unit/privacy/test_x.py::test_y (call)")
    assert kept_figures.kept(_epsilon)(*arguments).epsilon == 3


def test_a_folder_that_another_run_has_deleted_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the newest states of the sources are kept, whoever is still at work with an older one."""
    monkeypatch.setattr(kept_figures, "home", lambda: tmp_path / "gone")
    found = kept_figures.kept(lru_cache(maxsize=0)(lambda *arguments: arguments))
    assert [found(1.0), found(1.0)] == [(1.0,), (1.0,)]


def test_a_folder_that_two_runs_delete_stops_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(9):
        (tmp_path / "some" / str(number)).mkdir(parents=True)
    there = [*(tmp_path / "some").iterdir(), tmp_path / "some" / "gone"]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(there))
    assert machine_code.kept_for("some", []).is_dir()


def test_two_threads_may_want_one_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_figures, "home", lambda: tmp_path)
    together = threading.Barrier(2, timeout=60)
    write = Path.write_bytes

    @lru_cache(maxsize=0)
    def computed(*arguments: object) -> object:
        together.wait()
        return arguments

    def written(path: Path, data: bytes) -> int:
        length = write(path, data)
        together.wait()
        return length

    monkeypatch.setattr(Path, "write_bytes", written)
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(kept_figures.kept(computed), (1.0, 1.0))] == [(1.0,), (1.0,)]
    assert len([*tmp_path.iterdir()]) == 1


def test_tests_that_have_kept_figures_do_not_change_how_they_are_computed() -> None:
    """What such a test computed would be kept for others."""
    root = Path(kept_figures.__file__).parents[1]
    changing = re.compile(
        r"setattr\(\s*[\"']?(gossamer\.privacy\.(accounting|pairs)|accountants|composition|group_pairs|pairs|pld|renyi)\b"
    )
    files = {path.relative_to(root).as_posix(): path for path in (root / "tests").rglob("*.py")}
    assert [
        name
        for name, path in files.items()
        if not name.startswith((*kept_figures.ANEW, "tests/conftest.py")) and changing.search(path.read_text())
    ] == []
