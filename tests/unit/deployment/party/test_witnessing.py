"""Whether a party has witnesses, and what it does with a ledger that has forgotten what they saw."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.properties.test_witnesses_properties import Chain
from tests.reference.linked_peers import RUN, identity, member

from gossamer.deployment.party.store import MEMORY, OlderLedger, check_receipts, witnesses_of
from gossamer.protocol.witnesses import PURPOSE, Note, Seen, Witnesses, countersigned


def opened(folder: Path, chain: Chain | None, stack: ExitStack, *, secret: bool = False) -> Witnesses | None:
    """Witnesses of party a, as its process opens them."""
    plan = SimpleNamespace(hides_schedule=secret)
    invitation = SimpleNamespace(run=RUN, me=member("a"), members=[member("a"), member("b")])
    agreed = SimpleNamespace(plan=plan, invitation=invitation)
    invited: Any = SimpleNamespace(identity=identity("a"), agreed=agreed, state_key=None)
    return witnesses_of(
        invited, cast(Any, SimpleNamespace(path=folder)), cast(Any, SimpleNamespace(receipts=chain)), stack
    )


def seen_by_b(chain: Chain, releases: int) -> Note:
    seen = Seen(releases, chain.heads[releases])
    return Note(0, b"", b"", *seen, identity("b").sign(PURPOSE, countersigned(RUN, "a", seen)))


class Own(Chain):
    def witnessed(self, witness: str, seen: Seen, signature: bytes) -> None:
        self.countersigned[witness] = seen


def test_a_run_whose_numbers_of_releases_are_secret_has_no_witnesses(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert opened(tmp_path, Own().grow(3), stack, secret=True) is None
    assert not (tmp_path / MEMORY).exists()
    check_receipts(None, "a")


def test_a_ledger_older_than_what_the_party_holds_is_refused_whatever_peers_say(tmp_path: Path) -> None:
    chain = Own()
    chain.grow(5)
    with ExitStack() as stack:
        found = opened(tmp_path, chain, stack)
        assert found is not None
        assert found.take("b", seen_by_b(chain, 4)) is None
        check_receipts(found, "a")
    for back, refused in ((5, False), (4, False), (3, True)):
        older = Own(chain.heads[: back + 1], chain.links[:back])
        with ExitStack() as stack:
            found = opened(tmp_path, older, stack)
            if not refused:
                check_receipts(found, "a")
                continue
            with pytest.raises(OlderLedger, match=r"a: this is not the newest ledger: b has .* receipt 4 .* it has 3"):
                check_receipts(found, "a")
            assert OlderLedger.exit_code == 2


def test_a_ledger_and_a_state_that_were_both_put_back_are_refused_by_what_a_peer_says(tmp_path: Path) -> None:
    """Nothing overrules it: a guarantee is a promise to those whose data they are."""
    chain = Own()
    older = Own(list(chain.grow(5).heads[:4]), chain.links[:3])
    with ExitStack() as stack:
        found = opened(tmp_path, older, stack)
        assert found is not None
        check_receipts(found, "a")
        assert found.take("b", seen_by_b(chain, 5), told=True) is not None
        with pytest.raises(OlderLedger, match="nothing was charged") as refused:
            check_receipts(found, "a")
    line = str(refused.value)
    assert "b has countersigned receipt 5 " in line
    assert "and it has 3" in line
    assert "Put the newest ledger back" in line
    assert "\n" not in line
    with ExitStack() as stack:
        found = opened(tmp_path, older, stack)
        with pytest.raises(OlderLedger):  # that was kept, so it is refused where the peer is away, too
            check_receipts(found, "a")
    with ExitStack() as stack:
        check_receipts(opened(tmp_path, chain, stack), "a")
