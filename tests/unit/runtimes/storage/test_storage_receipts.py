"""Receipts in the file of a ledger: as many as charges, whenever the process is killed, and never torn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.witnessed_hosts import identity
from tests.sampling import examples
from tests.unit.verify.chains import KINDS, RELEASES, Gradient

from gossamer.errors import BudgetSpent
from gossamer.privacy.accounting.filters import EitherFilter
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.protocol.witnesses import Known, Seen, following
from gossamer.runtimes.storage.file import WrongStore
from gossamer.runtimes.storage.ledger import LedgerFile, stored_ledger
from gossamer.runtimes.storage.receipts import StoredReceipts
from gossamer.runtimes.storage.store import WitnessFile
from gossamer.sides.ledger import Ledger, Receipt, StoredLedger
from gossamer.sides.plan import Curator, Samples, SidePlan, Trust
from gossamer.sides.receipts import PURPOSE, link
from gossamer.verify import gossamer_verify as second

PLAN = Samples(dict.fromkeys(KINDS, RELEASES))
BUDGET = EitherFilter(1e6, 1e-5, NeighboringRelation.REPLACE_ONE, 16.0)
KEY = identity("a").public_key.raw.hex()
OWNERS = ("x", "y", "z")


def opened(file: LedgerFile, plan: SidePlan = PLAN) -> tuple[Ledger, StoredReceipts]:
    ledger = stored_ledger(file, "a", "wards", "run/a", BUDGET, plan, Trust.SCOPE)
    receipts = file.receipts("run", "a")
    receipts.begin({"a": plan}, KEY)
    return ledger, receipts


def release(ledger: Ledger, receipts: StoredReceipts, number: int = 0, **changed: Any) -> None:
    receipt = Receipt(KINDS[number % 2], clip=1.0)._replace(**changed)
    with receipts.together():
        ledger.charge(receipt)
        receipts.add("a", Gradient(), receipt)


def read(folder: Path, receipts: StoredReceipts) -> dict[str, Any]:
    text, head, signature = receipts.ended(lambda state: identity("a").sign(PURPOSE, state))
    (path := folder / "receipts.jsonl").write_text(text, encoding="utf-8")
    found = second.read(path)
    end = found["end"]
    assert found["signer"] == identity("a").public_key.fingerprint
    assert (end["head"], end["releases"]) == (head.head, head.releases)
    assert head.head == receipts.heads[-1].hex()
    assert identity("a").public_key.signed(bytes.fromhex(signature), PURPOSE, receipts.heads[-1])
    return found


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LedgerFile]:
    with closing(LedgerFile(tmp_path / "a.ledger")) as found:
        yield found


def test_a_chain_goes_on_in_the_next_process_and_is_verified(tmp_path: Path, file: LedgerFile) -> None:
    for life in range(4):
        ledger, receipts = opened(file)
        assert len(receipts.links) == ledger.releases == 3 * life
        for number in range(3):
            release(ledger, receipts, number)
    found = read(tmp_path, receipts)
    assert found["end"]["releases"] == 12
    assert found["laws"] == [kind.describe() for kind in KINDS]
    state = receipts.heads[0]
    for line, head in zip(receipts.rows()[1:], receipts.heads[1:], strict=True):
        state = following(state, link(line))
        assert state == head
    release(*opened(file))  # a run that ended goes on, and ends again
    assert read(tmp_path, opened(file)[1])["end"]["releases"] == 13


def test_no_two_receipts_are_alike(tmp_path: Path) -> None:
    """Whoever makes the same release a second time, from an older copy of the ledger, has another chain."""
    heads = set()
    for number in range(3):
        with closing(LedgerFile(tmp_path / f"{number}.ledger")) as file:
            ledger, receipts = opened(file)
            plan = receipts.heads[0]
            release(ledger, receipts)
            heads.add(receipts.heads[1])
            nonces = re.findall('"nonce": "([0-9a-f]{16})"', receipts.rows()[1])
            assert len(nonces) == 1
            assert (len(receipts.heads), plan) == (2, receipts.heads[0])
    assert len(heads) == 3


def test_what_is_refused_has_no_receipt(tmp_path: Path, file: LedgerFile) -> None:
    ledger, receipts = opened(file)
    for _ in range(RELEASES):
        release(ledger, receipts)
    with pytest.raises(BudgetSpent):
        release(ledger, receipts)
    assert len(receipts.links) == len(receipts.rows()) - 1 == ledger.releases == RELEASES
    release(ledger, receipts, 1)  # the other kind
    assert read(tmp_path, receipts)["end"]["releases"] == RELEASES + 1


def test_a_curator_charges_all_or_none_of_those_in_a_sum(tmp_path: Path, file: LedgerFile) -> None:
    plan = Curator({KINDS[0]: 4}, 3, OWNERS, 1.0, "a")
    ledger, receipts = opened(file, plan)
    release(ledger, receipts, owners=OWNERS)
    release(ledger, receipts, owners=("x", "z"))
    with suppress(RuntimeError), receipts.together():
        ledger.charge(Receipt(KINDS[0], ("x", "y")))
        raise RuntimeError("killed")
    ledger, receipts = opened(file, plan)
    assert ledger.releases == 5
    release(ledger, receipts, owners=("y",))
    assert read(tmp_path, receipts)["end"]["releases"] == 3
    assert opened(file, plan)[0].releases == 6


def test_a_ledger_that_was_charged_without_receipts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with closing(LedgerFile(path)) as file:
        ledger, receipts = opened(file)
        release(ledger, receipts)
        ledger.charge(Receipt(KINDS[0]))
    with pytest.raises(WrongStore, match=r"a\.ledger is damaged \(it has 2 releases of run/a, and receipts of 1\)"):
        LedgerFile(path)


def test_who_has_countersigned_is_written_with_the_next_receipt(file: LedgerFile) -> None:
    ledger, receipts = opened(file)
    release(ledger, receipts)
    receipts.witnessed("b", Seen(1, receipts.heads[1]), b"\x01" * 64)
    assert file.witnessed("run/a") == ("run/a", 1, [])
    release(ledger, receipts)
    receipts.witnessed("c", Seen(2, receipts.heads[2]), b"\x02" * 64)
    receipts.ended(lambda state: bytes(64))
    found = file.witnessed("run/a")
    assert found is not None
    assert [one[:4] for one in found.countersigned] == [
        ("b", 1, receipts.heads[1].hex(), "01" * 64),
        ("c", 2, receipts.heads[2].hex(), "02" * 64),
    ]
    assert file.witnessed("run/b") is None


def test_a_smaller_countersignature_replaces_no_larger_one(tmp_path: Path, file: LedgerFile) -> None:
    """Neither before the two are written down nor afterwards, in whatever process."""
    ledger, receipts = opened(file)
    for _ in range(3):
        release(ledger, receipts)
    for releases in (2, 3, 1):
        receipts.witnessed("b", Seen(releases, receipts.heads[releases]), bytes([releases]) * 64)
    release(ledger, receipts)
    ledger, receipts = opened(file)
    receipts.witnessed("b", Seen(2, receipts.heads[2]), b"\x02" * 64)
    release(ledger, receipts)
    found = file.witnessed("run/a")
    assert found is not None
    assert [one[:4] for one in found.countersigned] == [("b", 3, receipts.heads[3].hex(), "03" * 64)]


KILLED = """
import sys
from tests.unit.runtimes.storage.test_storage_receipts import LedgerFile, Path, opened, release
ledger, receipts = opened(LedgerFile(Path(sys.argv[1])))
print("begun", flush=True)
number = 0
while True:
    release(ledger, receipts, number)
    number += 1
    print(ledger.releases, flush=True)
"""


def test_a_process_that_is_killed_has_a_receipt_of_each_charge(tmp_path: Path) -> None:
    """By the operating system, in the midst of it; at most one more is charged than was heard of."""
    path, heard = tmp_path / "a.ledger", 0
    for life in range(examples(12)):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process, process.stdout as said:
            assert said.readline() == "begun\n"
            for _ in range(1 + life % 2):
                heard = int(said.readline() or heard)
            os.kill(process.pid, signal.SIGKILL)
            heard = max([heard, *(int(line) for line in said.read().split())])
        with closing(LedgerFile(path)) as file:
            ledger, receipts = opened(file)
            assert isinstance(ledger, StoredLedger)
            assert heard <= ledger.releases <= heard + 1
            assert read(tmp_path, receipts)["end"]["releases"] == ledger.releases
        if ledger.releases > RELEASES:
            break


def test_a_witness_remembers(tmp_path: Path) -> None:
    path = tmp_path / "witness.sqlite"
    with closing(WitnessFile(path, "run", "a")) as memory:
        assert memory.kept() == {}
        memory.keep({"b": Known(Seen(3, bytes(32))), "c": Known(told=Seen(5, b"\x01" * 32))})
        memory.keep({"b": Known(Seen(4, b"\x02" * 32), Seen(1, bytes(32)), Seen(7, b"\x03" * 32))})
    with closing(WitnessFile(path, "run", "a")) as memory:
        assert memory.kept() == {
            "b": Known(Seen(4, b"\x02" * 32), Seen(1, bytes(32)), Seen(7, b"\x03" * 32)),
            "c": Known(None, Seen(5, b"\x01" * 32)),
        }


def test_evidence_only_grows_on_disk(tmp_path: Path) -> None:
    with closing(WitnessFile(tmp_path / "witness.sqlite", "run", "a")) as memory:
        for releases in (2, 4, 3, 4):
            head = bytes([releases]) * 32
            memory.keep({"b": Known(told=Seen(releases, head), evidence=Seen(releases, head))})
        assert memory.kept() == {"b": Known(None, Seen(4, b"\x04" * 32), Seen(4, b"\x04" * 32))}
        memory.keep({"b": Known(told=Seen(1, bytes(32)), evidence=Seen(4, b"\x05" * 32))})
        assert memory.kept() == {"b": Known(None, Seen(1, bytes(32)), Seen(4, b"\x04" * 32))}


def test_a_transaction_inside_of_another_is_part_of_it(file: LedgerFile) -> None:
    ledger, receipts = opened(file)
    with suppress(RuntimeError), file.transaction():
        release(ledger, receipts)
        raise RuntimeError("killed")
    ledger, receipts = opened(file)
    assert ledger.releases == len(receipts.rows()) - 1 == 0
    release(ledger, receipts)
    assert opened(file)[0].releases == 1
