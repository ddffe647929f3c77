"""Writes an owner's ledger with a run of each kind; what it uses of Gossamer was there from the first format on.

    python tests/oracle/make_ledgers.py FOLDER          as the code that is installed writes it
    PYTHONPATH=OLD/src python ... FOLDER                as an older commit did; `git archive COMMIT src` gives OLD

Format 1 is that of the commits before 7d0be40, which added a second filter.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, NeighboringRelation
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import FixedSize, Poisson
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.correlated_noise import Factorisation
from gossamer.privacy.streams.noise_streams import CorrelatedNoise
from gossamer.privacy.streams.unit_ledger import StreamKind
from gossamer.runtimes.storage.contents import Content
from gossamer.runtimes.storage.ledger import LedgerFile

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
POISSON = ReleaseKind(Gaussian(1.0, 5.0), Poisson(0.125), 4)
FIXED = ReleaseKind(Gaussian(2.0, 8.0), FixedSize(64, 8), 4)
PURE = ReleaseKind(L2Laplace(1.0, 0.25, ADD), Poisson(0.125), 4)


def planned(file: LedgerFile) -> None:
    """A run with a plan of two kinds, one that is under way without a plan, and one that has not begun."""
    budget = RenyiFilter(4.0, 1e-5, ADD, 16.0)
    ledger = file.open("a", "wards", "first/a", budget, {POISSON: 12, PURE: 3})
    for kind in (POISSON, POISSON, PURE):
        ledger.charge(kind)
    open_ended = file.open("a", "wards", "second/a", budget)
    open_ended.charge(POISSON)
    file.open("a", "wards", "third/a", budget, {POISSON: 2})


def units(file: LedgerFile) -> None:
    """An agent's share, a server's stream, and a data set under the other relation."""
    budget = RenyiFilter(8.0, 1e-5, REPLACE, 8.0)
    agent = file.open_agent("node-0", "surgery", "first/node-0", budget, 0.25, AgentNoise(1000, 64.0, 4), 5, b"terms")
    agent.charge()
    agent.charge()
    noise = CorrelatedNoise(Factorisation("random_walk", 6), 0.5)
    stream = file.open_stream("server-0", "unit", "first", budget, StreamKind(noise, 6, 4), 0.0)
    stream.charge()
    file.open("b", "clinics", "first/b", budget, {FIXED: 7}).charge(FIXED)


def contents(file: LedgerFile) -> None:
    """What a data set consisted of, twice."""
    hashes = [bytes([number]) * 16 for number in range(6)]
    file.contents.accept("wards", Content(b"one", hashes[:4]), "2026-01-02T03:04:05+00:00")
    file.contents.accept("wards", Content(b"two", hashes[1:6]), "2026-02-03T04:05:06+00:00")


def write(path: Path) -> None:
    """A ledger of the format that this code writes."""
    file = LedgerFile(path)
    contents(file)
    planned(file)
    units(file)
    file.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]) / "owner.ledger")
