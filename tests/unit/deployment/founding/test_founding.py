"""What lies in the folder of a federation, what it says, and what cannot be founded."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("cryptography", reason="needs the extra secure")

from cryptography import x509

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.federation_spec import ROLES, federation_spec
from gossamer.deployment.founding.founding import VALID, draft, found
from gossamer.deployment.founding.layout import is_loopback, make_identity, read_keys
from gossamer.deployment.party.agreement import Agreed
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.specs.spec_file import read_spec, read_text, write_spec
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import InvitationError, parse_invitation, parse_signed, read_signed
from gossamer.keys.private_files import IdentityError
from gossamer.runtimes.mqtt.broker import access_list

ROOT = Path(__file__).resolve().parents[4]
BROKER = "mqtts://broker.example.org:8883"
SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
GRAPH = """
dataset: digits
algorithm: {name: graph_federated, units: 2, agents: [1, 2], rounds: 3, batch_size: 5}
privacy: {standard_deviation: 1, clip: 1}
"""
PARTIES = {"b": 300, "a": 200}
IDENTITIES = {name: Identity.of_seed(bytes([number]) * 32) for number, name in enumerate(["a", "b", "server", "d"])}


def public(*names: str) -> dict[str, PublicKey]:
    return {name: IDENTITIES[name].public_key for name in names}


def drafted(**changes: Any) -> Any:
    return draft(**{"spec": SPEC, "parties": PARTIES, "broker": BROKER, **changes})


def refused(line: str, **changes: Any) -> None:
    with pytest.raises(CallerError, match=line) as caught:
        drafted(**changes)
    assert "\n" not in str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def relative(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# The folder


def test_every_file_is_where_the_module_says(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "federation"
    found(folder, spec=SPEC, parties=PARTIES, broker=BROKER)
    of_a_party = ["invitation.yaml", "identity.key", "tls.crt", "ca.crt"]
    assert relative(folder) == {
        *("organiser.key", "authority.key", "authority.crt", "federation.yaml"),
        *(f"broker/{name}" for name in ("mosquitto.conf", "acl", "ca.crt", "broker.crt", "broker.key")),
        *(f"{party}/{name}" for party in ("a", "b", "server") for name in of_a_party),
        *(f"overview/{name}" for name in ("federation.yaml", "identity.key", "tls.crt", "ca.crt")),
    }


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    found(folder, spec=SPEC, parties=PARTIES, broker=BROKER)
    assert mode(folder) == 0o700
    for party in ("a", "b", "server", "broker", "overview"):
        assert mode(folder / party) == 0o700
    keys = sorted(folder.rglob("*.key"))
    assert len(keys) == 7
    assert {mode(path) for path in [*keys, folder / "broker" / "acl"]} == {0o600}
    others = [path for path in folder.rglob("*") if path.is_file() and path not in keys and path.name != "acl"]
    assert {mode(path) & 0o133 for path in others} == {0}  # nobody else writes them
    private = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(private) == keys
    assert "PRIVATE" not in repr(drafted())


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(CallerError, match=f"{tmp_path}: exists and is not an empty folder"):
        found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER)
    with pytest.raises(CallerError, match="not an empty folder"):
        found(tmp_path / "mine", spec=SPEC, parties=PARTIES, broker=BROKER)
    assert relative(tmp_path) == {"mine"}
    empty = tmp_path / "empty"
    empty.mkdir()
    found(empty, spec=SPEC, parties=PARTIES, broker=BROKER)
    assert (empty / "organiser.key").exists()


def test_nothing_is_written_for_what_cannot_be_founded(tmp_path: Path) -> None:
    with pytest.raises(CallerError):
        found(tmp_path / "x", spec=SPEC, parties=PARTIES, broker="mqtt://broker.example.org:1883")
    assert not (tmp_path / "x").exists()


# What it says


def test_each_party_reads_its_own_invitation(tmp_path: Path) -> None:
    founded = found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER, valid=timedelta(days=3))
    now = datetime.now(UTC)
    for name in ("a", "b", "server"):
        identity = Identity.load(tmp_path / name / "identity.key")
        path = tmp_path / name / "invitation.yaml"
        invitation = parse_invitation(path.read_bytes(), identity, [founded.organiser.fingerprint], now)
        assert invitation.invited == name
        assert invitation.members == founded.invitation.members
        assert invitation.broker == BROKER
        assert abs(invitation.expires - now - timedelta(days=3)) < timedelta(minutes=5)
    assert timedelta(days=90) == VALID
    assert Identity.load(tmp_path / "organiser.key").public_key == founded.organiser
    assert founded.made == ("b", "a", "server")


def test_members_are_in_the_order_of_the_nodes() -> None:
    members = drafted().invitation.members
    assert [(m.name, m.role, m.unit, m.examples) for m in members] == [
        ("b", "edge", None, 300),
        ("a", "edge", None, 200),
        ("server", "server", None, None),
    ]


@pytest.mark.parametrize(
    ("spec", "roles"),
    [
        ("algorithm: gossip", {"x": "worker", "y": "worker"}),
        ("algorithm: allreduce", {"x": "worker", "y": "worker"}),
        ("algorithm: {name: mapa, gradient_sd: 1, smoothness: 1, loss_gap: 1}", {"x": "edge", "server": "server"}),
        (
            "algorithm: {name: increasing, aggregators: [1], rounds: 2}",
            {"x": "client", "aggregator-1-0": "aggregator", "server": "server"},
        ),
    ],
)
def test_roles(spec: str, roles: dict[str, str]) -> None:
    founded = drafted(spec=f"dataset: digits\nprivacy: none\n{spec}\n", parties={"x": 100, "y": 100})
    found_roles = {member.name: member.role for member in founded.invitation.members}
    assert roles.items() <= found_roles.items()
    assert set(found_roles.values()) <= ROLES  # so an owner's policy knows them


def test_agents_are_in_units() -> None:
    founded = drafted(spec=GRAPH, parties={"x": 9, "y": 9, "z": 9})
    assert [(m.name, m.role, m.unit, m.examples) for m in founded.invitation.members] == [
        ("x", "agent", "server-0", 9),
        ("y", "agent", "server-1", 9),
        ("z", "agent", "server-1", 9),
        ("server-0", "server", None, None),
        ("server-1", "server", None, None),
    ]


def test_parties_derive_their_terms_from_it() -> None:
    for founded in (drafted(), drafted(spec=GRAPH, parties={"x": 9, "y": 9, "z": 9})):
        agreed = Agreed.by(founded.invitation)
        assert agreed.names == tuple(m.name for m in founded.invitation.members if m.examples is not None)


def test_runs_differ_and_say_the_same_otherwise() -> None:
    one, other = drafted().invitation, drafted().invitation
    assert one.run != other.run
    assert one.spec == other.spec


def test_an_organiser_who_has_a_key(tmp_path: Path) -> None:
    organiser = IDENTITIES["d"]
    founded = found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER, organiser=organiser)
    assert founded.organiser == organiser.public_key
    assert not (tmp_path / "organiser.key").exists()


# Keys of one's own


def test_no_private_key_is_made_of_parties_that_have_one(tmp_path: Path) -> None:
    founded = found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER, keys=public("a", "server"))
    assert founded.made == ("b",)
    assert not (tmp_path / "a" / "identity.key").exists()
    assert {m.name: m.key for m in founded.invitation.members} == {
        **public("a", "server"),
        "b": Identity.load(tmp_path / "b" / "identity.key").public_key,
    }


def test_certificates_are_for_the_members_keys(tmp_path: Path) -> None:
    founded = found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER, keys=public("a"))
    authority = x509.load_pem_x509_certificate((tmp_path / "broker" / "ca.crt").read_bytes())
    for member in founded.invitation.members:
        certificate = x509.load_pem_x509_certificate((tmp_path / member.name / "tls.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert certificate.public_key().public_bytes_raw() == member.key.raw  # type: ignore[union-attr]
        assert certificate.subject.rfc4514_string() == f"CN={member.name}"
        assert certificate.not_valid_after_utc == founded.invitation.expires
        assert (tmp_path / member.name / "ca.crt").read_bytes() == (tmp_path / "authority.crt").read_bytes()


def test_an_identity_of_ones_own(tmp_path: Path) -> None:
    identity, path = make_identity("a", tmp_path / "a")
    assert Identity.load(tmp_path / "a" / "identity.key").public_key == identity.public_key
    assert mode(tmp_path / "a") == 0o700
    assert path == tmp_path / "a" / "a.pub"
    assert read_keys(tmp_path / "a") == {"a": identity.public_key}
    with pytest.raises(IdentityError, match="exists already"):
        make_identity("a", tmp_path / "a")
    with pytest.raises(InvitationError, match="name to match"):
        make_identity("../a", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_folders_without_public_keys(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"expected a folder with the parties' public keys"):
        read_keys(tmp_path / "none")
    with pytest.raises(CallerError, match=r"expected public keys, NAME.pub"):
        read_keys(tmp_path)
    for content in (IDENTITIES["a"].pem, b"\xff", b"x", b""):
        (tmp_path / "a.pub").write_bytes(content)
        with pytest.raises(CallerError, match=f"{tmp_path}/a.pub: expected a public key"):
            read_keys(tmp_path)
    (tmp_path / "a.pub").unlink()
    (tmp_path / "a.pub").mkdir()
    with pytest.raises(CallerError, match=f"{tmp_path}/a.pub: cannot read the public key: it is a folder"):
        read_keys(tmp_path)


# The broker


def test_the_broker_listens_where_the_parties_go(tmp_path: Path) -> None:
    for broker, listener in (
        (BROKER, "listener 8883"),
        ("mqtts://127.0.0.1:9999", "listener 9999 127.0.0.1"),
        ("mqtts://localhost:9999", "listener 9999 localhost"),
        ("mqtts://[::1]:9999", "listener 9999 ::1"),
        ("mqtts://10.0.0.1:9999", "listener 9999"),
    ):
        files = drafted(broker=broker).files
        lines = files["broker/mosquitto.conf"].decode().splitlines()
        assert listener in lines
        for line in (
            "allow_anonymous false",
            "require_certificate true",
            "use_identity_as_username true",
            "cafile ca.crt",
            "certfile broker.crt",
            "keyfile broker.key",
            "acl_file acl",
        ):
            assert line in lines, line
        assert all(line.startswith("#") for line in lines[: lines.index(listener)])


def test_the_access_list_has_all_members_and_who_watches_and_nobody_else() -> None:
    founded = drafted()
    names = ["b", "a", "server", "overview"]
    assert founded.files["broker/acl"].decode() == access_list(founded.invitation.run, names)


def test_who_watches_has_the_key_of_the_invitation_and_is_no_member(tmp_path: Path) -> None:
    founded = found(tmp_path, spec=SPEC, parties=PARTIES, broker=BROKER)
    key = Identity.load(tmp_path / "overview" / "identity.key").public_key
    for name in ("a", "b", "server"):
        invitation = read_signed(tmp_path / name / "invitation.yaml")
        assert invitation.overview == key
        assert [member.name for member in invitation.members] == ["b", "a", "server"]
    assert "overview" not in founded.made  # no party's key
    certificate = x509.load_pem_x509_certificate((tmp_path / "overview" / "tls.crt").read_bytes())
    assert certificate.public_key().public_bytes_raw() == key.raw  # type: ignore[union-attr]
    assert certificate.subject.rfc4514_string() == "CN=overview"


def test_the_brokers_certificate_is_for_its_host() -> None:
    founded = drafted()
    certificate = x509.load_pem_x509_certificate(founded.files["broker/broker.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.org"]
    assert certificate.not_valid_after_utc == founded.invitation.expires


def test_without_tls_there_are_no_certificates() -> None:
    """On this machine only: the broker knows nobody, so it cannot tell who may do what."""
    founded = drafted(broker="mqtt://127.0.0.1:1883")
    assert not [place for place in founded.files if place.endswith(".crt") or "authority" in place]
    config = founded.files["broker/mosquitto.conf"].decode().splitlines()
    assert "listener 1883 127.0.0.1" in config
    assert "allow_anonymous true" in config
    assert "broker/acl" not in founded.files


def test_another_machine_without_tls_needs_to_be_meant() -> None:
    for broker in ("mqtt://broker.example.org:1883", "mqtt://10.0.0.1:1883", "mqtt://localhost.example.org:1883"):
        refused("has no TLS, .* say mqtts://, or --insecure", broker=broker)
        assert "listener 1883" in drafted(broker=broker, insecure=True).files["broker/mosquitto.conf"].decode()


def test_which_hosts_are_this_machine() -> None:
    assert [host for host in ("localhost", "127.0.0.1", "127.8.9.1", "::1") if not is_loopback(host)] == []
    for host in ("broker", "0.0.0.0", "192.168.0.1", "::", "127.0.0.1.example.org", ""):
        assert not is_loopback(host), host


# What cannot be founded


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"broker": "broker.example.org"}, "expected a broker such as mqtts://"),
        ({"broker": "https://broker.example.org:8883"}, "expected a broker such as mqtts://"),
        ({"broker": "mqtts://broker.example.org"}, "expected a broker such as mqtts://"),
        ({"parties": {"a b": 100}}, "a member's name to match .*, found 'a b'"),
        ({"parties": {"": 100}}, "a member's name to match"),
        ({"parties": {"server": 100}}, "server is the name of a server or a file here as well"),
        ({"parties": {"Server": 100}}, "Server is the name of a server"),
        ({"parties": {"overview": 100}}, "overview is the name of a server or a file here"),
        ({"parties": {"broker": 100}}, "broker is the name of a server or a file here"),
        ({"parties": {"organiser.key": 100}}, "organiser.key is the name of a server or a file here"),
        ({"parties": {"a": 100, "A": 100}}, "a is the name of another party as well"),
        ({"parties": {"a": 0}}, "a: expected 1 to .* examples, found 0"),
        ({"keys": {"c": IDENTITIES["d"].public_key}}, "keys: c is not in this federation"),
        ({"keys": dict.fromkeys(PARTIES, IDENTITIES["d"].public_key)}, "a key of its own"),
        ({"valid": timedelta(0)}, "expire after it is issued"),
        ({"valid": timedelta(days=3660)}, "would outlive its authority"),
        ({"spec": "x"}, "expected sections"),
        ({"spec": "algoritm: gossip"}, "unknown key algoritm; did you mean algorithm"),
        ({"spec": f"{SPEC}seed: [\n"}, "not YAML"),
        (
            {"spec": SPEC.replace("updates_per_node: 9", "nodes: 3")},
            "is for 3 nodes with data, and 2 parties are named",
        ),
        ({"spec": GRAPH}, "is for 3 nodes with data, and 2 parties are named"),
        ({"spec": SPEC.replace("digits", "{name: own, format: csv}")}, "must declare .* missing: features, labels"),
        ({"spec": SPEC.replace("digits", "{name: own, format: csv, labels: [0, 1]}")}, "missing: features$"),
        (
            {"spec": "dataset: digits\nprivacy: none\nspeeds: {name: file, path: /x}"},
            "speeds.path: this file is on one",
        ),
        (
            {"spec": "dataset: digits\nprivacy: none\nalgorithm: {name: gossip, topology: {name: edges, path: /x}}"},
            "algorithm.topology.path: this file is on one machine",
        ),
    ],
)
def test_what_does_not_fit(changes: dict[str, Any], line: str) -> None:
    refused(line, **changes)


# The spec


def test_the_number_of_nodes_is_filled_in() -> None:
    assert read_text(federation_spec(SPEC, 2)).algorithm.nodes == 2
    assert read_text(federation_spec(SPEC.replace("updates", "nodes: 2, updates"), 2)).algorithm.nodes == 2


def test_paths_stay_on_their_machine() -> None:
    dataset = "{name: own, path: /hidden/place.csv, test_path: /hidden/test.csv, labels: [0, 1], features: 4}"
    text = federation_spec(SPEC.replace("digits", dataset), 2)
    assert "hidden" not in text
    assert read_text(text).dataset.format == "csv"  # which the path said


@pytest.mark.parametrize(
    "path",
    sorted(set((ROOT / "examples").glob("digits-*.yaml")) - {ROOT / "examples/digits-hostile.yaml"}),
    ids=lambda path: path.stem,
)
def test_a_complete_spec_says_what_the_given_one_does(path: Path) -> None:
    experiment = read_spec(path)
    again = read_text(federation_spec(path.read_text(encoding="utf-8"), experiment.algorithm.nodes))
    assert read_text(write_spec(again)) == again
    different = {name for name in type(again).model_fields if getattr(again, name) != getattr(experiment, name)}
    assert different == {"dataset"}  # in which what is known of the digits is written out
    assert again.dataset.name == "digits"


def test_nobody_founds_a_federation_of_parties_that_are_told_to_lie() -> None:
    text = (ROOT / "examples/digits-hostile.yaml").read_text(encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"faults\.hostile is for simulations, and nobody tells deployed parties to lie"
    ):
        federation_spec(text, 8)


# How it is written


def test_the_record_is_the_last_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is interrupted before it can begin again."""
    written: list[str] = []
    monkeypatch.setattr(papers, "write_private", lambda path, content: written.append(path.name))
    monkeypatch.setattr(papers, "_replace", lambda path, content, mode: written.append(path.name))
    drafted().write(tmp_path)
    # Keys, certificates, then invitations, by which nodes that run begin anew.
    kinds = [[".key"], [".crt", ".conf", "acl"], ["invitation.yaml"], [papers.RECORD]]
    order = [next(i for i, kind in enumerate(kinds) if name.endswith(tuple(kind))) for name in written]
    assert order == sorted(order)
    assert set(order) == {0, 1, 2, 3}
    assert written[-1] == papers.RECORD


def test_a_file_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafted().write(tmp_path)
    before = (tmp_path / papers.RECORD).read_bytes()

    def full(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == len(b"new")  # all of it is on its way to the disk
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        papers.write(tmp_path, {papers.RECORD: b"new"})
    assert (tmp_path / papers.RECORD).read_bytes() == before


def test_all_of_it_is_text_for_people() -> None:
    founded = drafted()
    assert parse_signed(founded.files["a/invitation.yaml"]) != founded.invitation  # for another party
    assert yaml.safe_load(founded.files["a/invitation.yaml"])["members"][0]["examples"] == "300"
    assert json.loads(json.dumps(sorted(founded.files))) == sorted(founded.files)
