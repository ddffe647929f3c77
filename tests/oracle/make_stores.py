"""Writes what lies in `stores`: folders of parties in the middle of a run, and ledgers of owners.

    python -m tests.oracle.make_stores                  what is not there yet
    python -m tests.oracle.make_stores ledger-1 OLD     a ledger as an older commit writes it; see `make_ledgers`

What is there is never written anew: it is what older code left on disk.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.oracle import make_ledgers
from tests.oracle.deployed import Federation, federation
from tests.oracle.stores import FOLDER, described

from gossamer.faults.hosts import LinkedHosts
from gossamer.privacy.accounting.filters import EitherFilter
from gossamer.privacy.accounting.series import Series, SeriesPlan
from gossamer.runtimes.storage.account import FORMAT
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore

# Noise is given, not calibrated: so plans are the same to the last bit on every machine.
_LEVEL = {"clip": 1.0, "noise_multiplier": 2.0}
_NOISY = {"clip": 1.0, "standard_deviation": 0.5}
_UNITS = {
    "name": "graph_federated",
    "units": 2,
    "agents": 4,
    "local_steps": 2,
    "batch_size": 4,
    "step_size": 0.5,
    "rounds": 8,
    "topology": "line",
    "temporal": "random_walk",
}
_WORKERS = {"nodes": 3, "batch_size": 8, "updates_per_node": 12}
FEDERATIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "gossip": ({"algorithm": {"name": "gossip", "topology": "complete", **_WORKERS}, "privacy": _LEVEL}, ("node-1",)),
    "allreduce": ({"algorithm": {"name": "allreduce", **_WORKERS}, "privacy": _LEVEL}, ("node-1",)),
    "audp": ({"algorithm": {"name": "audp", **_WORKERS}, "privacy": _LEVEL}, ("node-1", "server")),
    "increasing": (
        {
            "algorithm": {
                "name": "increasing",
                "nodes": 3,
                "rounds": 8,
                "sizes": {"name": "power", "a": 3, "b": 12},
                "aggregators": [1],
            },
            "privacy": _LEVEL,
        },
        ("node-1", "server", "aggregator-1-0"),
    ),
    "unit": ({"algorithm": _UNITS, "privacy": _NOISY}, ("node-1", "server-0")),
    "masked": (
        {"algorithm": {**_UNITS, "masking": "secure"}, "privacy": {**_NOISY, "agent_noise": 4.0}},
        ("node-1", "server-0"),
    ),
}
"""Specs of federations, and the parties that are kept of each."""
_WORLD = {
    "dataset": {"name": "graph_regression", "synthetic": {"owners": 8, "examples": 40, "features": 3}},
    "partition": "natural",
    "seed": 5,
}


def stop(name: str, folder: Path, party: str) -> None:
    """A federation in the middle of its run, where a party has a snapshot, and a few inputs after it."""
    with federation({**_WORLD, **FEDERATIONS[name][0]}, folder) as found:
        hosts = found.hosts()
        while not (hosts.events >= 60 and _halfway(hosts, party)):
            hosts.step()
            assert not hosts.over, f"{name} is over before {party} is halfway"
        _store(found, hosts, party)


def _halfway(hosts: LinkedHosts, party: str) -> bool:
    journal = hosts.journals[party]
    return journal.base is not None and len(journal.entries) >= 3 and not journal.staged


def _store(found: Federation, hosts: LinkedHosts, party: str) -> None:
    """Write a party's journal as its process would have."""
    run, journal = found.invited[party].agreed.terms.invitation.run, hosts.journals[party]
    place = found.folders[party].path
    with closing(SqliteStore(place / "store.sqlite", run, party)) as store:
        store.snapshot([journal.base or b""])
        for entry in journal.entries:
            store.append([entry])
        store.commit()
    (place / "invitation.yaml").write_bytes(found.invited[party].text)


def pack(name: str, folder: Path) -> None:
    """Put a folder into `stores`; each SQLite file in one piece."""
    for path in folder.rglob("*"):
        if path.suffix in (".sqlite", ".ledger"):
            whole = path.with_name(f"{path.name}.whole")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(whole),))
            whole.replace(path)
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(("-wal", "-shm")) or path.name in ("lock", "node.log", "output.log"):
            path.unlink()
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(folder, arcname=".", filter=_nobodys)
    (FOLDER / f"{name}.txt").write_text(described(name), encoding="utf-8")


def _nobodys(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = item.mtime = 0
    item.uname = item.gname = ""
    return item


def series(file: LedgerFile) -> None:
    """A data set that is kept by two filters: a run in its series, and one that is in none."""
    aside = Series("weekly", 2.0, 1e-6, (SeriesPlan(10, 20, 0.125, 5.0),))
    budget = EitherFilter(4.0, 1e-5, make_ledgers.ADD, 16.0, (aside,))
    file.open("a", "trials", "first/a", budget, {make_ledgers.POISSON: 20}).charge(make_ledgers.POISSON)
    file.open("a", "trials", "second/a", budget, {make_ledgers.POISSON: 30}).charge(make_ledgers.POISSON)


def main() -> None:
    """Make what is not there."""
    with tempfile.TemporaryDirectory(prefix="oracle-") as temporary:
        place = Path(temporary)
        if len(sys.argv) == 3:
            script = Path(make_ledgers.__file__)
            environment = {**os.environ, "PYTHONPATH": f"{sys.argv[2]}/src"}
            subprocess.run([sys.executable, str(script), temporary], check=True, env=environment)
            pack(sys.argv[1], place)
            return
        for name, (_, keep) in FEDERATIONS.items():
            for party in keep:
                label = f"party-{name}-{party}"
                if not (FOLDER / f"{label}.tar.xz").exists():
                    stop(name, place / label, party)
                    pack(label, place / label / party)
        label = f"ledger-{FORMAT.version}"
        if not (FOLDER / f"{label}.tar.xz").exists():
            folder = place / "ledger"
            folder.mkdir()
            make_ledgers.write(folder / "owner.ledger")
            with closing(LedgerFile(folder / "owner.ledger")) as file:
                series(file)
            pack(label, folder)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
