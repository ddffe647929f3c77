"""Runs and releases, written into the file of a ledger so that only a process which knows its format can.

The format of a file is compared when it is opened. A process of an older version that had it open before it was brought
up to date goes on, and would check what it enters by that version's rules: against all of delta, say, where half of it
is for another filter. So a run, and a release that no plan has paid for, are written in two steps, as no older version
did, and triggers refuse those that are written in one. Releases of a plan reveal nothing that was not entered with it;
of these a process of any version may write the rest.
"""

from __future__ import annotations

from gossamer.runtimes.storage.file import File

_REASON = "a newer version of gossamer keeps it now; start the node again with that one"
_REFUSED = f"BEGIN SELECT RAISE(ABORT, '{_REASON}'); END"
TRIGGERS = (
    f"CREATE TRIGGER runs_in_two_steps BEFORE INSERT ON run WHEN NEW.divergence >= 0 {_REFUSED}",
    "CREATE TRIGGER releases_in_two_steps BEFORE INSERT ON charge WHEN NEW.divergence > 0 AND NEW.releases > 0 "
    f"{_REFUSED}",
)
_BEGUN = -1.0  # no divergence; within its transaction


def write_run(file: File, data_set: str, run: str, plan: bytes, divergence: float) -> None:
    """Enter a run that is new; inside a transaction."""
    file.execute("INSERT INTO run VALUES (?, ?, ?, ?)", data_set, run, plan, _BEGUN)
    file.execute("UPDATE run SET divergence = ? WHERE data_set = ? AND name = ?", divergence, data_set, run)


def write_release(file: File, data_set: str, run: str, kind: bytes, divergence: float) -> None:
    """Count one release more; inside a transaction."""
    first = "INSERT INTO charge VALUES (?, ?, ?, ?, 0) ON CONFLICT (data_set, run, kind) DO NOTHING"
    file.execute(first, data_set, run, kind, divergence)
    more = "UPDATE charge SET releases = releases + 1 WHERE data_set = ? AND run = ? AND kind = ?"
    file.execute(more, data_set, run, kind)
