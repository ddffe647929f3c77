"""What older code left on disk opens, and is what it was: nodes in the middle of a run, and ledgers."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.oracle.called import ROOT
from tests.oracle.make_ledgers import ADD, POISSON
from tests.oracle.stores import FOLDER, LEDGERS, PARTIES, described, unpacked

from gossamer.privacy.accounting.filters import EitherFilter
from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.runtimes.storage.account import FORMAT
from gossamer.runtimes.storage.ledger import LedgerFile

KINDS = tuple(sorted({name.split("-")[1] for name in PARTIES}))
ALONE = [pytest.param(kind, marks=() if kind == "unit" else pytest.mark.slow) for kind in KINDS]


def expected(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", [*PARTIES, *LEDGERS])
def test_what_is_on_disk_opens_and_is_what_it_was(name: str) -> None:
    """Of a party its node with its session, what it does when it resumes, what was charged, and what its side kept."""
    assert described(name) == expected(name)


@pytest.mark.parametrize("kind", ALONE)
def test_a_process_of_one_run_knows_all_types_in_its_stores(kind: str) -> None:
    """One that runs a single algorithm; in this process all have been imported."""
    names = [name for name in PARTIES if name.split("-")[1] == kind]
    command = [sys.executable, "-W", "ignore", "-m", "tests.oracle.stores", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "".join(map(expected, names)), done.stderr


def test_there_is_one_of_each() -> None:
    assert set(KINDS) == {"gossip", "allreduce", "audp", "increasing", "unit", "masked"}
    assert [f"ledger-{version}" for version in range(1, FORMAT.version + 1)] == list(LEDGERS)


@pytest.mark.parametrize("name", LEDGERS)
def test_an_old_ledger_goes_on(name: str) -> None:
    """A run is found again with what it charged, and its budget is the one that it had; another one has to fit in."""
    budget = EitherFilter(4.0, 1e-5, ADD, 16.0)
    with unpacked(name) as folder, closing(LedgerFile(folder / "owner.ledger")) as file:
        assert file.kept_by("wards", budget) == RenyiFilter(4.0, 1e-5, ADD, 16.0)
        before = file.spent("wards")
        run = file.open("a", "wards", "third/a", budget, {POISSON: 2})
        assert run.releases == 0
        run.charge(POISSON)
        run.charge(POISSON)
        assert file.spent("wards") == before
        file.open("a", "wards", "fourth/a", budget, {POISSON: 1})
        assert file.spent("wards") > before
