"""A broker for several federations: its files, who is in its access list, and what cannot share one."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from cryptography import x509
from tests.reference.reissued import reissue

from gossamer.cli import main
from gossamer.deployment.founding.founding import Founded, SharedBroker, found, join, share
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Member, invite, read_signed

BROKER = "mqtts://broker.example.org:8883"
SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"


def founded(folder: Path, broker: str = BROKER, parties: str = "ab") -> Founded:
    return found(folder, spec=SPEC, parties=dict.fromkeys(parties, 200), broker=broker)


@pytest.fixture
def one(tmp_path: Path) -> Founded:
    return founded(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Founded:
    return founded(tmp_path / "other", parties="bc")


@pytest.fixture
def shared(tmp_path: Path, one: Founded, other: Founded) -> SharedBroker:
    made = share([tmp_path / "one", tmp_path / "other"], tmp_path / "hub")
    made.write(tmp_path / "hub")
    return made


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def access(folder: Path) -> dict[str, list[str]]:
    """What each user may do, by the broker's name for it."""
    found: dict[str, list[str]] = {}
    user = ""
    for line in (folder / "broker" / "acl").read_text().splitlines():
        if line.startswith("user "):
            user = line.removeprefix("user ")
            assert user not in found  # rules of two users of one name would be added up
            found[user] = []
        elif line:
            found[user].append(line)
    return found


def everybody(one: Founded) -> list[Member]:
    return [*one.invitation.members, *one.invitation.watchers]


def refused(line: str, make: Callable[[], object]) -> None:
    with pytest.raises(CallerError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_every_file_is_where_the_module_says(
    tmp_path: Path, one: Founded, other: Founded, shared: SharedBroker
) -> None:
    runs = {one.invitation.run: "a b server", other.invitation.run: "b c server"}
    assert set(contents(tmp_path / "hub")) == {
        *("authority.key", "authority.crt", *(f"federations/{run}.yaml" for run in runs)),
        *(f"broker/{name}" for name in ("mosquitto.conf", "acl", "ca.crt", "broker.crt", "broker.key")),
        *(
            f"parties/{run}/{party}/{name}"
            for run, parties in runs.items()
            for party in [*parties.split(), "overview"]
            for name in ("ca.crt", "tls.crt")
        ),
    }
    for name in ("authority.key", "broker/broker.key", "broker/acl"):
        assert stat.S_IMODE((tmp_path / "hub" / name).stat().st_mode) == 0o600


def test_parties_of_one_name_have_rights_in_their_own_run_alone(
    tmp_path: Path, one: Founded, other: Founded, shared: SharedBroker
) -> None:
    rights = access(tmp_path / "hub")
    assert set(rights) == {
        f"CN={member.name},OU={each.invitation.run}" for each in (one, other) for member in everybody(each)
    }
    members = {each.invitation.run: [member.name for member in everybody(each)] for each in (one, other)}
    for user, lines in rights.items():
        name, run = user.removeprefix("CN=").split(",OU=")
        assert lines == [
            f"topic read gossamer/{run}/to/{name}/from/+",
            *(f"topic write gossamer/{run}/to/{to}/from/{name}" for to in members[run]),
        ]


def test_certificates_are_for_the_members_keys_and_name_the_run(
    tmp_path: Path, one: Founded, other: Founded, shared: SharedBroker
) -> None:
    authority = certificate(tmp_path / "hub" / "broker" / "ca.crt")
    certificate(tmp_path / "hub" / "broker" / "broker.crt").verify_directly_issued_by(authority)
    for invitation in (one.invitation, other.invitation):
        for member in (*invitation.members, *invitation.watchers):
            folder = tmp_path / "hub" / "parties" / invitation.run / member.name
            issued = certificate(folder / "tls.crt")
            issued.verify_directly_issued_by(authority)
            assert issued.subject.rfc4514_string() == f"CN={member.name},OU={invitation.run}"
            assert issued.public_key().public_bytes_raw() == member.key.raw  # type: ignore[union-attr]
            assert issued.not_valid_after_utc == invitation.expires
            assert (folder / "ca.crt").read_bytes() == (tmp_path / "hub" / "authority.crt").read_bytes()


def test_the_configuration_has_absolute_paths(tmp_path: Path, shared: SharedBroker) -> None:
    lines = (tmp_path / "hub" / "broker" / "mosquitto.conf").read_text().splitlines()
    for line in (
        "listener 8883",
        "require_certificate true",
        "use_subject_as_username true",
        "use_username_as_clientid true",
        f"cafile {tmp_path}/hub/broker/ca.crt",
        f"certfile {tmp_path}/hub/broker/broker.crt",
        f"keyfile {tmp_path}/hub/broker/broker.key",
        f"acl_file {tmp_path}/hub/broker/acl",
    ):
        assert line in lines
    assert "use_identity_as_username true" not in lines
    elsewhere = share([tmp_path / "one"], tmp_path / "new", Path("/etc/mosquitto/shared"))
    assert b"\nacl_file /etc/mosquitto/shared/acl\n" in elsewhere.files["broker/mosquitto.conf"]


def test_a_federation_that_comes_later_changes_nothing_of_the_others(
    tmp_path: Path, one: Founded, shared: SharedBroker
) -> None:
    before, rights = contents(tmp_path / "hub"), access(tmp_path / "hub")
    third = founded(tmp_path / "third")
    join([tmp_path / "third" / "a" / "invitation.yaml"], tmp_path / "hub").write(tmp_path / "hub")
    after = contents(tmp_path / "hub")
    assert {name for name in before if after[name] != before[name]} == {"broker/acl"}
    assert all(third.invitation.run in name for name in set(after) - set(before))
    assert access(tmp_path / "hub").items() > rights.items()
    assert len(access(tmp_path / "hub")) == len(rights) + 4


def test_a_party_that_joins_a_federation_is_let_in(tmp_path: Path, one: Founded, shared: SharedBroker) -> None:
    run, before = one.invitation.run, read_signed(tmp_path / "one" / "federation.yaml")
    reissue(tmp_path / "one", {"d": 200})
    made = join([tmp_path / "one"], tmp_path / "hub")
    made.write(tmp_path / "hub")
    assert [invitation.run for invitation in made.issued] == [run]
    assert (tmp_path / "hub" / "parties" / run / "d" / "tls.crt").exists()
    assert f"CN=d,OU={run}" in access(tmp_path / "hub")
    (tmp_path / "old.yaml").write_bytes(one.files["federation.yaml"])
    refused(
        f"run {run}: this was issued {re.escape(before.issued.isoformat())}, .*give the latest",
        lambda: join([tmp_path / "old.yaml"], tmp_path / "hub"),
    )


def test_a_federation_that_is_taken_out(tmp_path: Path, one: Founded, other: Founded, shared: SharedBroker) -> None:
    (tmp_path / "hub" / "federations" / f"{one.invitation.run}.yaml").unlink()
    join([], tmp_path / "hub").write(tmp_path / "hub")
    assert {user.partition(",OU=")[2] for user in access(tmp_path / "hub")} == {other.invitation.run}
    (tmp_path / "hub" / "federations" / f"{other.invitation.run}.yaml").unlink()
    refused("no federation is to be served", lambda: join([], tmp_path / "hub"))


def test_somebody_elses_invitation_to_a_run_that_is_served(tmp_path: Path, one: Founded, shared: SharedBroker) -> None:
    known = one.invitation
    until = known.expires + timedelta(days=1)
    forged = invite(Identity.generate(), BROKER, known.members, known.spec, until, datetime.now(UTC), known.run)
    (tmp_path / "forged.yaml").write_text(forged["a"])
    line = f"run {known.run}: expected its organiser {known.organiser.fingerprint}, found another"
    refused(line, lambda: join([tmp_path / "forged.yaml"], tmp_path / "hub"))


def test_what_cannot_share_a_broker(tmp_path: Path, one: Founded) -> None:
    folder, out = tmp_path / "one", tmp_path / "hub"
    founded(tmp_path / "elsewhere", "mqtts://broker.example.org:8884")
    founded(tmp_path / "plain", "mqtt://127.0.0.1:1883")
    old = invite(
        Identity.generate(), BROKER, one.invitation.members, SPEC, datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    (tmp_path / "old.yaml").write_text(old["a"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("x")
    for folders, line in (
        ([], "hub: no federation is to be served; name the folder of one"),
        ([tmp_path / "empty"], "empty: no federation, for it has no federation.yaml; name a folder that"),
        ([tmp_path / "none"], "none: cannot read the invitation: No such file"),
        ([tmp_path / "text"], "text: expected an invitation in YAML"),
        ([folder, tmp_path / "elsewhere"], r"goes to mqtts://broker.example.org:8884, and others to .*:8883; a shared"),
        ([tmp_path / "plain"], "plain: mqtt://127.0.0.1:1883 has no TLS"),
        ([tmp_path / "old.yaml"], "old.yaml: it expired at 2026-01-02"),
    ):
        refused(line, lambda folders=folders: share(folders, out))  # type: ignore[misc]
    twice = share([folder, folder / "b" / "invitation.yaml"], out)
    assert [found.run for found in twice.federations] == [found.run for found in twice.issued] == [one.invitation.run]
    refused("one: exists and is not an empty folder; .* --join", lambda: share([folder], folder))
    refused("one: no shared broker; name a folder that `federation broker --out` made", lambda: join([folder], folder))
    refused("expected a path that mosquitto.conf can hold", lambda: share([folder], out, Path("/a\nuser root")))


def test_a_broker_whose_authority_is_damaged(tmp_path: Path, one: Founded, shared: SharedBroker) -> None:
    certificate = tmp_path / "hub" / "authority.crt"
    certificate.write_bytes((tmp_path / "one" / "authority.crt").read_bytes())
    refused(
        "hub: expected an authority's certificate and the ECDSA key of it.*; put back",
        lambda: join([], tmp_path / "hub"),
    )
    certificate.write_text("x")
    refused("hub: expected an authority's certificate and the ECDSA key of it", lambda: join([], tmp_path / "hub"))
    certificate.unlink()
    refused("authority.crt: cannot read the authority's certificate: No such", lambda: join([], tmp_path / "hub"))


def test_the_command(tmp_path: Path, one: Founded, other: Founded, capsys: pytest.CaptureFixture[str]) -> None:
    hub = tmp_path / "hub"
    assert main(["federation", "broker", str(tmp_path / "one"), "--out", str(hub)]) == 0
    said = capsys.readouterr()
    assert one.invitation.run in said.out
    assert f"mosquitto -c {hub}/broker/mosquitto.conf" in said.err
    assert main(["federation", "broker", str(tmp_path / "other"), "--join", str(hub)]) == 0
    said = capsys.readouterr()
    assert f"{hub}/parties/{other.invitation.run}" in said.out
    assert "as before" in said.out
    assert "reloads it (SIGHUP)" in " ".join(said.err.split())
    for options, line in (
        ([str(tmp_path / "one"), "--out", str(hub)], "exists and is not an empty folder"),
        ([str(tmp_path / "one")], "expected one of --out, for a new broker"),
        (
            [str(tmp_path / "one"), "--out", str(tmp_path / "x"), "--join", str(hub)],
            "expected one of --out, for a new broker",
        ),
        ([str(tmp_path / "one"), "--join", str(hub), "--place", "/x"], "--place is for a new broker"),
        ([str(tmp_path / "one"), "--out", str(tmp_path / "x"), "--place", "x"], "--place: expected an absolute path"),
    ):
        assert main(["federation", "broker", *options]) == 2
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()
