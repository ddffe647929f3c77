"""Data that are in a run once only: where the noise that counts is that of a sum with other parties in it.

A party's plan is charged for what its own data move a sum by. The same data at two parties of one run move the sum
twice as far, under the same noise: mu doubles, so the squared loss is four times as large, and two charges are only
twice. By noise that each adds to what it sends itself they do add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gossamer.errors import DataError
from gossamer.runtimes.storage.ledger import LedgerFile


@contextmanager
def once_in_a_run(file: LedgerFile, data_set: str, run: str, node: str) -> Iterator[None]:
    """Refuse ``data_set`` to ``node``, if examples of it are in ``run`` at another node; the plan is entered inside.

    Raises
    ------
    DataError
        If they are: before anything is entered, or after, where two processes entered theirs at the same time.
    """
    _check(file, data_set, run, node)
    yield
    _check(file, data_set, run, node)


def _check(file: LedgerFile, data_set: str, run: str, node: str) -> None:
    for name in (data_set, *file.contents.overlaps(data_set)):
        others = [spent.run for spent in file.runs(name) if spent.run.startswith(f"{run}/")]
        for other in others:
            if (name, other) != (data_set, f"{run}/{node}"):
                raise DataError(
                    f"{node}: examples of data set {data_set!r} are in this run already, at {other.partition('/')[2]}, "
                    "and what is charged holds for data at one party of a sum, whose noise parties share or a server "
                    "adds; take part with one of them, or with data that no other has"
                )
