"""A newer invitation to a run: what may change, and what is handed over."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.deployment.founding.founding import Founded, draft
from gossamer.deployment.party import party as party_module
from gossamer.deployment.party.agreement import Agreed, Invited, PartyOptions, check_newer
from gossamer.deployment.party.data import shard_settings
from gossamer.deployment.party.loop import InvitationWatch
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.party.store import RECORD, fitting, open_host
from gossamer.errors import CallerError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Invitation, invite, parse_signed
from gossamer.protocol.effects import Request
from gossamer.protocol.session import Transmit
from gossamer.runtimes.storage.store import SqliteStore

ORGANISER = Identity.of_seed(bytes(32))
IDENTITY = Identity.of_seed(bytes(31) + b"1")


def founded(algorithm: dict[str, Any], parties: int = 3) -> Founded:
    prepared = prepare(parse_spec({"dataset": "digits", "privacy": "none", "algorithm": algorithm}))
    text = write_spec(prepared.experiment.model_copy(update={"dataset": shard_settings(prepared.dataset)}))
    return draft(spec=text, parties=prepared.shard_sizes, broker="mqtt://127.0.0.1:1", organiser=ORGANISER)


def again(before: Invitation, **changes: Any) -> bytes:
    """The same for the same party, a minute later, with what is changed."""
    new = replace(before, issued=before.issued + timedelta(minutes=1), **changes)
    signer = changes.pop("signer", ORGANISER)
    texts = invite(signer, new.broker, new.members, new.spec, new.expires, new.issued, new.run, new.wheel_sha256)
    return texts[before.invited].encode()


@dataclass
class Party:
    """One party and its folder."""

    folder: StateFolder

    def open(self, text: bytes) -> Any:
        """Its node by an invitation; closed again."""
        invitation = parse_signed(text)
        agreed = Agreed.by(invitation)
        store = SqliteStore(self.folder.path / "store.sqlite", invitation.run, invitation.me.name)
        try:
            host = open_host(Invited(ORGANISER, agreed, None, None), self.folder, store, None)
            return host, host.start(host.now + 1.0)
        finally:
            store.close()


@pytest.fixture
def party(tmp_path: Path) -> Any:
    folder = StateFolder(tmp_path)
    folder.take()
    yield Party(folder)
    folder.give_back()


GOSSIP = {"name": "gossip", "nodes": 3, "topology": "complete", "updates_per_node": 9}


def first(algorithm: dict[str, Any] = GOSSIP) -> Invitation:
    return founded(algorithm).invitation


def text_of(invitation: Invitation) -> bytes:
    return again(replace(invitation, issued=invitation.issued - timedelta(minutes=1)))


class TestHandover:
    def test_the_node_goes_on_with_what_it_had(self, party: Party) -> None:
        old = first()
        before, _ = party.open(text_of(old))
        after, outcomes = party.open(again(old))
        assert after.begun
        assert after.node.state.task == before.node.state.task + 1, "it asks again, as after any restart"
        np.testing.assert_array_equal(after.node.state.w.values, before.node.state.w.values)
        assert any(isinstance(outcome, Request) for outcome in outcomes)
        assert (party.folder.path / RECORD).read_bytes() == again(old)

    def test_what_was_not_acknowledged_is_sent_again(self, party: Party) -> None:
        old = first()
        _, outcomes = party.open(text_of(old))
        sent = {outcome.to for outcome in outcomes if isinstance(outcome, Transmit)}
        after, _ = party.open(again(old))
        assert {to for to, link in after.session.links.items() if link.outbox} >= sent != set()

    def test_somebody_joins(self, party: Party) -> None:
        old = first()
        party.open(text_of(old))
        more = founded({**GOSSIP, "nodes": 4}).invitation
        joined = again(old, spec=more.spec, members=(*old.members, more.members[-1]))
        host, _ = party.open(joined)
        assert set(host.node.asks) == {"node-1", "node-2", "node-3"}


class TestRefused:
    @pytest.mark.parametrize(
        "change",
        [
            lambda m: replace(m, key=Identity.generate().public_key),
            lambda m: replace(m, examples=m.examples + 1),
            lambda m: replace(m, name="somebody"),
        ],
        ids=["another key", "other examples", "left"],
    )
    def test_a_member_that_is_not_what_it_was(self, party: Party, change: Callable[[Any], Any]) -> None:
        old = first()
        party.open(text_of(old))
        members = (*old.members[:-1], change(old.members[-1]))
        with pytest.raises(CallerError, match="node-2 left, or got another key, role, unit or number of examples"):
            party.open(again(old, members=members))
        assert (party.folder.path / RECORD).read_bytes() == text_of(old)

    def test_a_server_with_another_key(self, party: Party) -> None:
        old = first({"name": "asgd", "nodes": 3, "updates_per_node": 9})
        party.open(text_of(old))
        stranger = replace(old.members[-1], key=Identity.generate().public_key)
        with pytest.raises(CallerError, match="server left, or got another key"):
            party.open(again(old, members=(*old.members[:-1], stranger)))

    def test_an_older_one(self, party: Party) -> None:
        old = first()
        party.open(again(old))
        with pytest.raises(CallerError, match="and this one is older; take the newest"):
            party.open(text_of(old))

    def test_another_spec(self, party: Party) -> None:
        old = first()
        party.open(text_of(old))
        with pytest.raises(CallerError, match="the spec of a run never changes, but for its parties"):
            party.open(again(old, spec=old.spec.replace("updates_per_node: 9", "updates_per_node: 90")))

    def test_somebody_joins_what_cannot_grow(self, party: Party) -> None:
        settings = {"name": "allreduce", "nodes": 3, "updates_per_node": 9}
        old = first(settings)
        party.open(text_of(old))
        more = founded({**settings, "nodes": 4}).invitation
        with pytest.raises(CallerError, match="nobody can join a run of allreduce that has begun"):
            party.open(again(old, spec=more.spec, members=(*old.members, more.members[-1])))


class TestStarting:
    """A node that is started with an invitation that it cannot go on by goes on by the one before."""

    def fitting(self, tmp_path: Path, party: Party, old: bytes, new: bytes) -> tuple[bytes, str]:
        (tmp_path / "party").mkdir()
        for name, text in (("invitation.yaml", new), ("identity.key", IDENTITY.pem)):
            (tmp_path / "party" / name).write_bytes(text)
        (tmp_path / "party" / "identity.key").chmod(0o600)
        party.folder.write(RECORD, old)
        options = PartyOptions(tmp_path / "party" / "invitation.yaml", organiser=ORGANISER.public_key.fingerprint)
        invited = Invited(IDENTITY, Agreed.by(parse_signed(new)), None, None)
        found = fitting(options, invited, party.folder)
        return found.agreed.invitation.written, (party.folder.path / "node.log").read_text()

    def server(self, **more: Any) -> Invitation:
        """Of a server, which needs no data; of the identity here."""
        spec = {"name": "audp", "nodes": 3, "updates_per_node": 9, "batch_size": 20}
        prepared = prepare(parse_spec({"dataset": "digits", "algorithm": spec, **more}))
        text = write_spec(prepared.experiment.model_copy(update={"dataset": shard_settings(prepared.dataset)}))
        keys = {"server": IDENTITY.public_key}
        sizes = prepared.shard_sizes
        found = draft(spec=text, parties=sizes, broker="mqtt://127.0.0.1:1", organiser=ORGANISER, keys=keys).invitation
        return replace(found, invited="server")

    def joined(self, old: Invitation, examples: int) -> bytes:
        newcomer = replace(old.members[0], name="node-3", key=Identity.generate().public_key, examples=examples)
        spec = old.spec.replace("nodes: 3", "nodes: 4")
        return again(old, spec=spec, members=(*old.members[:-1], newcomer, old.members[-1]))

    def test_somebody_joins_and_nothing_else_changes(self, tmp_path: Path, party: Party) -> None:
        old = self.server(privacy={"noise_multiplier": 1.0})
        new = self.joined(old, 100)
        assert self.fitting(tmp_path, party, text_of(old), new) == (new, "")

    def test_what_others_would_release_changes(self) -> None:
        """A budget is met for the party with fewest examples, so one with fewer changes the noise of all."""
        old = self.server(budget={"epsilon": 8, "delta": 1e-4})
        earlier, later = (Agreed.by(parse_signed(t)) for t in (text_of(old), self.joined(old, 60)))
        with pytest.raises(CallerError, match="node-0 would release something else than was planned"):
            check_newer(earlier, later, earlier.names)
        same = Agreed.by(parse_signed(self.joined(old, 600)))
        check_newer(earlier, same, earlier.names)

    @pytest.mark.parametrize("privacy", ["none", {"noise_multiplier": 1.0}])
    def test_what_others_would_release_changes_where_updates_are_shared(self, privacy: Any) -> None:
        """Each party makes fewer of them, with noise or without."""
        algorithm = {"name": "audp", "nodes": 3, "batch_size": 20}
        old = self.server(privacy=privacy, algorithm=algorithm, stop={"updates": 30})
        earlier, later = (Agreed.by(parse_signed(t)) for t in (text_of(old), self.joined(old, 100)))
        with pytest.raises(CallerError, match="node-0 would release something else than was planned"):
            check_newer(earlier, later, earlier.names)

    def test_it_goes_on_by_the_old_one(self, tmp_path: Path, party: Party) -> None:
        old = self.server(privacy={"noise_multiplier": 1.0})
        stranger = replace(old.members[0], key=Identity.generate().public_key)
        new = again(old, members=(stranger, *old.members[1:]))
        found, said = self.fitting(tmp_path, party, text_of(old), new)
        assert found == text_of(old)
        assert "does not accept the newer invitation, and goes on by the old one: who is in a run stays" in said

    def expired(self, old: Invitation) -> bytes:
        """The same, long ago."""
        return text_of(replace(old, issued=old.issued - timedelta(days=9), expires=old.issued - timedelta(days=1)))

    def test_the_one_before_has_expired(self, tmp_path: Path, party: Party) -> None:
        """Which is why it was issued again."""
        old = self.server(privacy={"noise_multiplier": 1.0})
        new = text_of(old)
        assert self.fitting(tmp_path, party, self.expired(old), new) == (new, "")

    def test_nothing_is_left_to_go_on_by(self, tmp_path: Path, party: Party) -> None:
        old = self.server(privacy={"noise_multiplier": 1.0})
        stranger = replace(old.members[0], key=Identity.generate().public_key)
        new = again(old, members=(stranger, *old.members[1:]))
        with pytest.raises(CallerError, match=f"^{re.escape(str(party.folder.path / RECORD))}: it expired at"):
            self.fitting(tmp_path, party, self.expired(old), new)

    def test_another_run_is_not_its_to_choose(self, tmp_path: Path, party: Party) -> None:
        old, other = (self.server(privacy={"noise_multiplier": 1.0}) for _ in range(2))
        assert self.fitting(tmp_path, party, text_of(old), text_of(other)) == (text_of(other), "")


class TestRunning:
    """A node that runs is told of a newer invitation, and reads it again after its process has let go of the store."""

    def run(self, folder: Path, monkeypatch: pytest.MonkeyPatch, old: bytes, new: bytes) -> tuple[bytes, str]:
        """Text by which it goes on, and what it says of that."""
        (folder / "identity.key").write_bytes(IDENTITY.pem)
        (folder / "identity.key").chmod(0o600)
        (folder / "invitation.yaml").write_bytes(old)
        ran: list[bytes] = []

        def take_part(options: PartyOptions, invited: Invited, state: StateFolder) -> str:
            ran.append(invited.agreed.invitation.written)
            state.kept = True
            state.write(RECORD, invited.agreed.invitation.written)
            options.invitation.write_bytes(new)
            return "renewed" if len(ran) == 1 else "finished"

        monkeypatch.setattr(party_module, "_take_part", take_part)
        fingerprint = ORGANISER.public_key.fingerprint
        party_module.run_party(PartyOptions(folder / "invitation.yaml", organiser=fingerprint, quiet=True))
        assert len(ran) == 2
        log = folder / "state" / "node.log"
        return ran[1], log.read_text() if log.exists() else ""

    def server(self) -> Invitation:
        return TestStarting().server(privacy={"noise_multiplier": 1.0})

    def test_it_goes_on_by_the_newer_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old = self.server()
        assert self.run(tmp_path, monkeypatch, text_of(old), again(old))[0] == again(old)

    @pytest.mark.parametrize(("here", "said"), [(None, "from no such file"), ("0" * 64, "from that with sha256 00")])
    def test_another_wheel_than_the_organisers_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str | None, said: str
    ) -> None:
        monkeypatch.setattr(party_module, "installed_wheel", lambda: here)
        old = replace(self.server(), wheel_sha256="a" * 64)
        log = self.run(tmp_path, monkeypatch, again(old), again(old))[1]
        assert f"all are to install the wheel with sha256 {'a' * 64}, and this installation is {said}" in log

    def test_the_organisers_wheel_is_no_news(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(party_module, "installed_wheel", lambda: "a" * 64)
        old = replace(self.server(), wheel_sha256="a" * 64)
        assert "wheel" not in self.run(tmp_path, monkeypatch, again(old), again(old))[1]

    def test_another_run_does_not_end_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old, other = text_of(self.server()), text_of(self.server())
        found, said = self.run(tmp_path, monkeypatch, old, other)
        assert found == old
        assert "goes on by the old one: the invitation is to another run" in said


class TestLooking:
    def look(self, path: Path, old: Invitation, content: bytes) -> tuple[bool, list[str]]:
        said: list[str] = []
        path.write_bytes(text_of(old))
        newer = InvitationWatch(path, old, said.append)
        assert not newer.look(10.0)
        path.write_bytes(content)
        os.utime(path, (1, 1))
        return newer.look(20.0), said

    def test_a_newer_one_is_seen(self, tmp_path: Path) -> None:
        old = first()
        assert self.look(tmp_path / "invitation.yaml", old, again(old)) == (True, [])

    def test_the_same_one_is_no_news(self, tmp_path: Path) -> None:
        old = first()
        assert self.look(tmp_path / "invitation.yaml", old, text_of(old)) == (False, [])

    @pytest.mark.parametrize("content", [b"", b"nonsense"])
    def test_what_is_no_invitation_changes_nothing(self, tmp_path: Path, content: bytes) -> None:
        found, said = self.look(tmp_path / "invitation.yaml", first(), content)
        assert not found
        assert len(said) == 1
        assert "goes on by the old one" in said[0]
