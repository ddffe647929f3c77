"""Everything issued again: for parties that join, and before it expires."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from cryptography import x509
from tests.reference.reissued import reissue

from gossamer.cli import main
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.founding import draft_again, found
from gossamer.deployment.founding.runs import give_order
from gossamer.deployment.party.agreement import experiment_of
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.specs.spec_file import read_text
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import Invitation, InvitationError, read_signed
from gossamer.keys.orders import REMOVE
from gossamer.keys.private_files import IdentityError
from gossamer.runtimes.mqtt.broker import access_list

BROKER = "mqtts://broker.example.org:8883"
SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
GRAPH = """
dataset: digits
algorithm: {name: graph_federated, units: 2, agents: [1, 2], rounds: 3, batch_size: 5}
privacy: {standard_deviation: 1, clip: 1}
"""
PARTIES = {"b": 300, "a": 200}
IDENTITIES = {name: Identity.of_seed(bytes([number]) * 32) for number, name in enumerate(["a", "d"])}


def public(*names: str) -> dict[str, PublicKey]:
    return {name: IDENTITIES[name].public_key for name in names}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found(tmp_path / "f", spec=SPEC, parties=PARTIES, broker=BROKER, keys=public("a"))
    return tmp_path / "f"


def record(folder: Path) -> Invitation:
    return read_signed(folder / papers.RECORD)


def test_a_broker_that_is_outgrown_has_room_for_those_who_join(folder: Path) -> None:
    reissue(folder, {f"d{i}": 77 for i in range(6)})
    members = len(record(folder).members)
    assert members == 9
    config = (folder / "broker" / "mosquitto.conf").read_text()
    assert f"max_connections {2 * members + 64}\n" in config


def test_a_party_joins(folder: Path) -> None:
    before, config = record(folder), (folder / "broker" / "mosquitto.conf").read_bytes()
    again = reissue(folder, {"d": 77}, keys=public("d"))
    assert again.made == ()
    for name in ("a", "b", "d", "server"):
        invitation = read_signed(folder / name / "invitation.yaml", before.organiser.fingerprint)
        assert invitation.invited == name
        assert (invitation.run, invitation.broker) == (before.run, before.broker)
        assert invitation.issued > before.issued
        assert [(m.name, m.examples) for m in invitation.members] == [
            ("b", 300),
            ("a", 200),
            ("d", 77),
            ("server", None),
        ]
        assert {m.name: m.key for m in invitation.members} == {
            **{m.name: m.key for m in before.members},
            **public("d"),
        }
        expected = read_text(before.spec).model_dump()
        expected["algorithm"]["nodes"] = 3
        assert read_text(invitation.spec).model_dump() == expected
        experiment_of(invitation)
    assert (folder / "broker" / "acl").read_text() == access_list(before.run, ["b", "a", "d", "server", "overview"])
    assert read_signed(folder / "d" / "invitation.yaml").overview == before.overview
    assert mode(folder / "broker" / "acl") == 0o600
    assert (folder / "broker" / "mosquitto.conf").read_bytes() == config
    assert not (folder / "d" / "identity.key").exists()
    own = x509.load_pem_x509_certificate((folder / "d" / "tls.crt").read_bytes())
    own.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / "authority.crt").read_bytes()))


def test_a_key_is_made_for_who_has_none(folder: Path) -> None:
    again = reissue(folder, {"d": 77})
    assert again.made == ("d",)
    key = Identity.load(folder / "d" / "identity.key").public_key
    assert next(m for m in record(folder).members if m.name == "d").key == key


def test_renewal_keeps_everything_but_the_times(folder: Path) -> None:
    before = record(folder)
    keys = {path: path.read_bytes() for path in folder.rglob("*.key")}
    reissue(folder, {}, valid=timedelta(days=400))
    after = record(folder)
    assert (after.run, after.members, after.spec) == (before.run, before.members, before.spec)
    assert after.issued > before.issued
    assert after.expires - after.issued == timedelta(days=400)
    assert {path: path.read_bytes() for path in folder.rglob("*.key")} == keys
    for place in ("a/tls.crt", "b/tls.crt", "server/tls.crt", "broker/broker.crt"):
        certificate = x509.load_pem_x509_certificate((folder / place).read_bytes())
        assert certificate.not_valid_after_utc == after.expires
    for _ in range(2):  # within a second, too
        reissue(folder, {})
    assert record(folder).issued >= after.issued + timedelta(seconds=2)


def test_a_draft_writes_nothing(folder: Path) -> None:
    before = files(folder)
    draft_again(folder, {"d": 77})
    assert files(folder) == before


def test_folders_that_were_handed_over_come_back_without_their_keys(folder: Path) -> None:
    for name in ("b", "broker"):
        for path in (folder / name).iterdir():
            path.unlink()
        (folder / name).rmdir()
    again = reissue(folder, {})
    assert again.made == ()
    assert {path.name for path in (folder / "b").iterdir()} == {"invitation.yaml", "tls.crt", "ca.crt"}
    # A broker whose key is elsewhere gets a new one, which goes with its new certificate.
    assert {path.name for path in (folder / "broker").iterdir()} == {"acl", "ca.crt", "broker.crt", "broker.key"}


BROKERS_USER, NODES_USER, ORGANISER = 1883, 10001, 4711
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def given_away(folder: Path) -> None:
    """Have a federation's folders as deploy/README.md says, the broker's and one party's belong to their users."""
    for place, user in (("broker", BROKERS_USER), ("a", NODES_USER)):
        for path in [folder / place, *(folder / place).iterdir()]:
            os.chown(path, user, user)


@as_root
def test_what_was_given_away_is_written_for_its_users(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given_away(folder)
    key = (folder / "broker" / "broker.key").read_bytes()
    for command in (("renew",), ("add", "--node", "d", "--examples", "d=300")):
        assert main(["federation", command[0], str(folder), *command[1:]]) == 0, capsys.readouterr().err
    for place, user in (("broker", BROKERS_USER), ("a", NODES_USER), ("b", 0), ("d", 0)):
        assert {path.stat().st_uid for path in (folder / place).iterdir()} == {user}
    assert mode(folder / "broker" / "acl") == 0o600
    assert (folder / "broker" / "broker.key").read_bytes() == key


@as_root
def test_what_was_given_away_has_to_be_taken_back_first(capsys: pytest.CaptureFixture[str]) -> None:
    """By an organiser who is not root: nothing is half written, and what the line names is what helps."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # so that another user comes through
        folder = Path(name) / "f"
        found(folder, spec=SPEC, parties=PARTIES, broker=BROKER, keys=public("a"))
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, ORGANISER, ORGANISER)
        given_away(folder)
        before = files(folder)
        try:
            os.seteuid(ORGANISER)
            assert main(["federation", "renew", str(folder)]) == 2
        finally:
            os.seteuid(0)
        assert files(folder) == before
        said = capsys.readouterr().err
        assert f"{folder / 'a'}: belongs to user {NODES_USER}, and nothing was written" in said
        remedy = said.partition("(sudo ")[2].partition(")")[0]
        subprocess.run(shlex.split(remedy), check=True)
        try:
            os.seteuid(ORGANISER)
            assert main(["federation", "renew", str(folder)]) == 0
        finally:
            os.seteuid(0)


def test_an_organiser_whose_key_lies_elsewhere(tmp_path: Path) -> None:
    found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER, organiser=IDENTITIES["d"])
    with pytest.raises(CallerError, match=r"there is no organiser.key; name the folder"):
        reissue(tmp_path, {})
    with pytest.raises(CallerError, match="expected the key of this federation's organiser, with fingerprint"):
        reissue(tmp_path, {}, organiser=IDENTITIES["a"])
    assert reissue(tmp_path, {}, organiser=IDENTITIES["d"]).organiser == IDENTITIES["d"].public_key


def test_without_tls_only_invitations_are_issued_again(tmp_path: Path) -> None:
    found(tmp_path, spec=SPEC, parties=PARTIES, broker="mqtt://localhost:1883")
    before = files(tmp_path)
    reissue(tmp_path, {})
    assert files(tmp_path).keys() == before.keys()


@pytest.mark.parametrize(
    ("parties", "line"),
    [
        ({"a": 10}, "a is the name of another party as well"),
        ({"server": 10}, "server is the name of a server or a file here as well"),
        ({"B": 10}, "is the name of another party as well"),
        ({"broker": 10}, "broker is the name of a server or a file here"),
        ({"x y": 10}, "name to match"),
        ({"d": 0}, "d: expected 1 to"),
    ],
)
def test_who_cannot_join(folder: Path, parties: dict[str, int], line: str) -> None:
    before = files(folder)
    with pytest.raises(CallerError, match=line):
        reissue(folder, parties)
    assert files(folder) == before


def test_keys_of_those_who_do_not_join(folder: Path) -> None:
    with pytest.raises(SpecError, match="keys: a is not in this federation"):
        reissue(folder, {"d": 10}, keys=public("a", "d"))


def test_units_have_a_fixed_size(tmp_path: Path) -> None:
    found(tmp_path, spec=GRAPH, parties={"x": 9, "y": 9, "z": 9}, broker=BROKER)
    with pytest.raises(SpecError, match="graph_federated has units of a fixed size"):
        reissue(tmp_path, {"d": 9})
    reissue(tmp_path, {})


def test_what_add_needs_is_checked(folder: Path) -> None:
    (folder / "authority.key").chmod(0o640)
    with pytest.raises(IdentityError, match=r"authority.key: others may use this key \(mode 0640"):
        reissue(folder, {})
    (folder / "authority.key").chmod(0o600)
    text = (folder / papers.RECORD).read_text()
    (folder / papers.RECORD).write_text(text.replace("examples: '300'", "examples: '400'"))
    with pytest.raises(InvitationError, match=r"federation.yaml: it was changed after"):
        reissue(folder, {})
    (folder / papers.RECORD).write_text(text)
    (folder / "authority.crt").unlink()
    with pytest.raises(CallerError, match=r"authority.crt: cannot read the authority's certificate"):
        reissue(folder, {})


def test_a_key_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 123456)
    with pytest.raises(IdentityError, match="belongs to user"):
        reissue(folder, {})


def test_nobody_is_removed_without_whom_another_would_go_on_alone(tmp_path: Path) -> None:
    spec = SPEC.replace("audp", "gossip, topology: ring")
    found(folder := tmp_path / "f", spec=spec, parties=dict.fromkeys("abcd", 200), broker=BROKER)
    give_order(folder, f"{REMOVE}a")
    with pytest.raises(CallerError, match="c cannot be removed, since b would have nobody left to exchange messages"):
        give_order(folder, f"{REMOVE}c")
    give_order(folder, f"{REMOVE}b")
    assert (
        access_list(read_signed(folder / "federation.yaml").run, ["c", "d", "overview"])
        == (folder / "broker" / "acl").read_text()
    )


def test_a_party_that_was_removed_is_in_no_access_list_again(tmp_path: Path) -> None:
    """Neither after the order nor after papers that are issued later; the others keep their rules."""
    parties = {**PARTIES, "c": 200}
    found(folder := tmp_path / "f", spec=SPEC, parties=parties, broker=BROKER)
    run, acl = read_signed(folder / "federation.yaml").run, folder / "broker" / "acl"
    left = access_list(run, ["b", "a", "server", "overview"])
    give_order(folder, f"{REMOVE}c")
    assert acl.read_text() == left
    draft_again(folder, {}).write(folder)
    assert acl.read_text() == left
    with pytest.raises(CallerError, match="a cannot be removed, since it would leave one party with data"):
        give_order(folder, f"{REMOVE}a")
    assert acl.read_text() == left
