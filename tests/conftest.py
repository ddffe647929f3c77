"""Shared fixtures and the ``--slow`` switch."""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings
from tests import costs, kept_figures, machine_code, sampling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run statistical, parity and full-size tests")
    parser.addoption("--length", choices=["short", "long"], help="run what takes so long alone (tests/costs.py)")
    parser.addoption("--costs", action="store_true", help="measure how long each test takes, for --length")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--costs"):
        config.pluginmanager.register(costs.Meter())
    machine_code.share()  # before gossamer is imported, and with it its loops
    kept_figures.home()  # before tests have another cache
    sampling.decide(whole=config.getoption("--slow"))
    # How long an example takes is no matter of tests.
    settings.register_profile("gossamer", deadline=None, max_examples=sampling.examples(100))
    settings.load_profile("gossamer")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    kept = sampling.sampled(items)
    if (length := config.getoption("--length")) is not None:
        short = costs.short((item.nodeid for item in kept), costs.known())
        kept = [item for item in kept if (item.nodeid in short) == (length == "short") and "slow" not in item.keywords]
    left_out = {*items} - {*kept}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def _imported_from_the_end() -> None:
    """Import all tests, in every second worker, from the last to the first.

    In a fresh clone their assertions are rewritten, which takes longer than all else of collecting: so each of two
    workers finds the other half done.
    """
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579":
        root = Path(__file__).parents[1]
        for path in sorted(root.glob("tests/**/test_*.py"), reverse=True):
            with suppress(Exception, pytest.skip.Exception):  # said when it is collected
                import_module(".".join(path.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without looking for garbage, of which there is none; and never look at what was collected again.

    Tests make many objects and little garbage, so they look for it more rarely than usual.
    """
    gc.disable()
    try:
        if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            _imported_from_the_end()
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look for garbage one last time; plugins that do so several times then find nothing, which is quick."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _secrets_by_test() -> Iterator[None]:
    """Noise secrets that a test has again when it is run again, and no two of whose are the same.

    So what passes once passes always, as with a seed, and whoever compares two runs has to give them one secret.
    """
    from gossamer.experiment.preparation import prepare as drawing

    drawn: Counter[str] = Counter()

    def next_secret(size: int) -> bytes:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        drawn[test] += 1
        return hashlib.blake2b(f"{test} {drawn[test]}".encode(), digest_size=size).digest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "token_bytes", next_secret)
        yield


@pytest.fixture(scope="session", autouse=True)
def _figures_of_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Figures of plans that an earlier test, or run of tests, has had already; computed where costs are measured."""
    from gossamer.privacy.accounting import accountants

    anew = request.config.getoption("--slow") or request.config.getoption("--costs")
    with pytest.MonkeyPatch.context() as patch:
        for name in () if anew else ("_epsilon", "_delta", "_profile"):
            patch.setattr(accountants, name, kept_figures.kept(getattr(accountants, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_translations() -> Iterator[None]:
    """Words of parsers as they are: for each command argparse looks for files of translations, and there are none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse, "_", lambda message: message)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache_of_tests() -> Iterator[None]:
    """A cache for tests alone; machine code in it lasts from one run of them to the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(machine_code.home()))
        yield


@pytest.fixture
def real_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise secrets from the operating system, as they are outside of tests."""
    from gossamer.experiment.preparation import prepare as drawing

    monkeypatch.setattr(drawing, "token_bytes", secrets.token_bytes)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets beside the project; tests that need it skip where it is absent."""
    folder = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no datasets at {folder}")
    return folder
