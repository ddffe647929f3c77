"""Further runs of parties that were founded once: what `gossamer federation run` writes, and what parties refuse."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from cryptography import x509
from cryptography.x509.oid import NameOID

from gossamer.cli import main
from gossamer.deployment.founding.founding import found
from gossamer.deployment.party.agreement import Invited, PartyOptions, accept
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import InvitationError, invite, read_signed
from gossamer.runtimes.mqtt.broker import access_list

BROKER = "mqtts://broker.example.org:8883"
SPEC = (
    "dataset: digits\nalgorithm: {name: audp, updates_per_node: %d, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
)
GOSSIP = SPEC.replace("audp", "gossip, topology: complete")
PARTIES = {"a": 300, "b": 200, "c": 250}
IDENTITIES = {name: Identity.of_seed(bytes([number]) * 32) for number, name in enumerate(PARTIES)}
ORGANISER = Identity.of_seed(bytes([77]) * 32)
KEYS: dict[str, PublicKey] = {name: identity.public_key for name, identity in IDENTITIES.items()}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def founded(folder: Path, spec: str = SPEC % 9) -> Path:
    """A federation whose parties' and organiser's keys lie in its folder."""
    found(folder, spec=spec, parties=PARTIES, broker=BROKER, keys=KEYS, organiser=ORGANISER)
    for place, identity in {
        "organiser.key": ORGANISER,
        **{f"{n}/identity.key": k for n, k in IDENTITIES.items()},
    }.items():
        (folder / place).write_bytes(identity.pem)
        (folder / place).chmod(0o600)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC % 12)
    return founded(tmp_path / "f")


def run(folder: Path, *more: str, spec: str | None = None) -> int:
    """The command, with the spec that lies beside the federation, or another one."""
    file = folder.parent / "spec.yaml"
    if spec is not None:
        (file := folder.parent / "other.yaml").write_text(spec)
    return main(["federation", "run", str(folder), "--spec", str(file), *more])


def party(folder: Path, name: str = "a", run: str | None = "2", *organisers: Identity) -> Invited:
    """What the node of a party finds, whose policy names the organisers and allows anything."""
    known = [one.public_key.fingerprint for one in organisers or [ORGANISER]]
    data = {"digits": {"path": "/nowhere.csv", "epsilon": 1000, "delta": 1e-4}}
    (policy := folder / name / "policy.yaml").write_text(json.dumps({"data": data, "organisers": known}))
    return accept(PartyOptions(folder / name / "invitation.yaml", run=run, policy=policy))


def test_its_papers_are_beside_those_of_the_first_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(folder)
    assert run(folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    after = files(folder)
    new = {place for place in after if place not in before}
    mine = {
        f"{name}/runs/2/{file}" for name in [*PARTIES, "server"] for file in ("invitation.yaml", "ca.crt", "tls.crt")
    }
    watch = {f"overview/runs/2/{file}" for file in ("federation.yaml", "ca.crt", "tls.crt")}
    assert new == mine | watch | {"runs/2/federation.yaml"}
    assert {place for place in before if before[place] != after[place]} == {"broker/acl", "broker/broker.crt"}
    first, second = read_signed(folder / "federation.yaml"), read_signed(folder / "runs/2/federation.yaml")
    assert (said["name"], said["run"]) == ("2", second.run)
    assert second.run != first.run
    same = ("broker", "members", "organiser", "overview", "wheel_sha256")
    assert all(getattr(first, field) == getattr(second, field) for field in same)
    assert "updates_per_node: 12" in second.spec
    for name in PARTIES:
        assert read_signed(folder / name / "runs/2/invitation.yaml", ORGANISER.public_key.fingerprint).invited == name
        found = party(folder, name).agreed
        assert (found.invitation.run, found.experiment.algorithm.model_dump()["updates_per_node"]) == (second.run, 12)
        assert party(folder, name, None).agreed.invitation.run == first.run
    assert run(folder) == 0
    assert (folder / "runs/3/federation.yaml").exists()
    assert "--invitation FILE --run 3 --organiser" in " ".join(capsys.readouterr().err.split())


def test_the_broker_tells_runs_apart(folder: Path) -> None:
    """A party has a name of its own in each, so that its connections do not end each other."""
    assert run(folder, "--run", "wards") == 0
    first, second = read_signed(folder / "federation.yaml"), read_signed(folder / "runs/wards/federation.yaml")
    names = ["a", "b", "c", "server", "overview"]
    lists = access_list(first.run, names), access_list(second.run, names, lambda name: f"{name}@wards")
    assert (folder / "broker/acl").read_text() == "\n".join(lists)
    certificate = x509.load_pem_x509_certificate((folder / "a/runs/wards/tls.crt").read_bytes())
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "a@wards"
    assert certificate.public_key().public_bytes_raw() == KEYS["a"].raw  # type: ignore[union-attr]
    assert certificate.not_valid_after_utc >= second.expires.replace(microsecond=0)


def test_the_brokers_certificate_lasts_as_long_as_any_run(folder: Path) -> None:
    assert run(folder, "--expires", "300") == 0
    assert run(folder, "--expires", "3") == 0
    assert main(["federation", "renew", str(folder), "--expires", "5"]) == 0
    certificate = x509.load_pem_x509_certificate((folder / "broker/broker.crt").read_bytes())
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=299)


def test_its_papers_are_written_anew(folder: Path) -> None:
    assert run(folder) == 0
    first, before = files(folder)["federation.yaml"], read_signed(folder / "runs/2/federation.yaml")
    assert main(["federation", "renew", str(folder), "--run", "2", "--expires", "180"]) == 0
    after = read_signed(folder / "runs/2/federation.yaml")
    assert (after.run, after.members, after.spec) == (before.run, before.members, before.spec)
    assert after.expires > before.expires
    assert files(folder)["federation.yaml"] == first
    assert party(folder).agreed.invitation.expires == after.expires


def test_some_parties_with_other_numbers(folder: Path) -> None:
    assert run(folder, "--nodes", "c,a", "--examples", "a=310") == 0
    assert read_signed(folder / "runs/2/federation.yaml").sizes == {"a": 310, "c": 250}
    assert not (folder / "b/runs").exists()


def test_who_was_removed_is_in_no_later_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From whichever run it was; the access list keeps who was removed from one run in the other."""
    assert run(folder) == 0
    assert main(["federation", "remove", str(folder), "b", "--run", "2", "--wait", "0"]) != 0  # told to nobody
    assert (folder / "runs/2/orders").exists()
    assert not (folder / "orders").exists()
    first, second = read_signed(folder / "federation.yaml"), read_signed(folder / "runs/2/federation.yaml")
    left = access_list(second.run, ["a", "c", "server", "overview"], lambda name: f"{name}@2")
    rules = access_list(first.run, ["a", "b", "c", "server", "overview"]), left
    assert (folder / "broker/acl").read_text() == "\n".join(rules)
    assert run(folder) == 0
    assert set(read_signed(folder / "runs/3/federation.yaml").sizes) == {"a", "c"}
    assert not (folder / "b/runs/3").exists()
    capsys.readouterr()
    assert run(folder, "--nodes", "a,b") == 2
    assert "b was removed by the organiser, so it takes part in no further run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "spec", "line"),
    [
        (["--run", "2"], SPEC % 13, "there is a run 2 already, and what was agreed for a run never changes"),
        (["--run", "../../x"], None, "expected a run's name to match [A-Za-z0-9]"),
        (["--run", "x" * 64], None, "too long together for a certificate; choose a shorter name"),
        (["--run", "x" * 62], GOSSIP % 9, "overview and xxx"),  # whose certificate has a longer name than all others'
        (["--nodes", "a,z"], None, "nodes: z is not in this federation"),
        (["--nodes", "a,b", "--examples", "c=9"], None, "examples: c is not in this federation"),
        ([], "dataset: digits\nalgorithm: {name: nothing}\n", "algorithm: unknown name 'nothing'"),
        ([], GOSSIP.replace("gossip,", "gossip, nodes: 7,") % 9, "the spec is for 7 nodes with data, and 3 parties"),
    ],
)
def test_what_cannot_be_a_further_run(
    more: list[str], spec: str | None, line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder) == 0
    before = files(folder)
    capsys.readouterr()
    assert run(folder, *more, spec=spec) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert line in said
    assert files(folder) == before


def test_a_server_that_was_not_founded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = founded(tmp_path / "g", GOSSIP % 9)
    assert run(folder, spec=SPEC % 9) == 2
    assert "servers of audp are those of the first run: server is not in this federation" in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_no_federation_and_another_organisers_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Identity.create(folder.parent / "other.key").public_key
    assert run(folder, "--organiser", str(folder.parent / "other.key")) == 2
    assert f"found another one, with {other.fingerprint}" in capsys.readouterr().err
    (folder.parent / "empty").mkdir()
    assert run(folder.parent / "empty") == 2
    assert "there is no organiser.key; name the folder that `federation new` made" in capsys.readouterr().err
    assert main(["federation", "stop", str(folder), "--run", "7"]) == 2
    assert "run: 7 is not in this federation" in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_papers_of_another_federation_or_of_another_name(folder: Path) -> None:
    """Signed by the same organiser, for the same party's key."""
    other = founded(folder.parent / "other")
    assert run(folder) == run(other) == 0
    shutil.copytree(other / "a/runs/2", folder / "a/runs/3")
    shutil.copytree(folder / "a/runs/2", folder / "a/runs/4")
    for name in ("3", "4"):
        with pytest.raises(
            InvitationError, match=f"expected an invitation to run {name} of the federation whose first"
        ):
            party(folder, run=name)
    with pytest.raises(InvitationError, match=r"runs/5/invitation\.yaml: cannot read the invitation"):
        party(folder, run="5")
    with pytest.raises(InvitationError, match="expected a run's name to match"):
        party(folder, run="../runs/2")


def test_names_are_looked_at_before_the_first_of_several_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which may take days; there is no policy here, so that one would be refused for that."""
    assert run(folder) == 0
    before = files(folder)
    capsys.readouterr()
    command = ["node", "--invitation", str(folder / "a/invitation.yaml"), "--organiser", str(ORGANISER.public_key)]
    assert main([*command, "--run", "2,../x"]) == 2
    assert "expected a run's name to match" in capsys.readouterr().err
    assert files(folder) == before


UP = {"b": {"state": "up", "finished": None}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"state": "finished"}, 0),
        (
            {
                "state": "finished",
                "peers": {"b": {"state": "up", "finished": "quota"}, "c": {**UP["b"], "state": "gone"}},
            },
            0,
        ),
        ({"state": "finished", "why": "made 2 of 3 rounds"}, 4),
        ({"state": "finished", "peers": UP}, 2),
        ({"state": "running"}, 2),
        (None, 2),
    ],
)
def test_a_run_that_is_over_is_not_taken_part_in_again_before_the_next(
    status: dict[str, Any] | None,
    code: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As where a service is started again: its peers may have left, and after three months the papers have expired.

    Who was stopped while others needed it yet goes on there, and an end that fell short is none the better for it.
    """
    taken = list[str | None]()

    def run_party(options: PartyOptions, beside: object) -> str:
        taken.append(options.run)
        if options.run == "2":
            raise InvitationError("the invitation has expired")
        return "finished"

    monkeypatch.setattr("gossamer.deployment.party.party.run_party", run_party)
    valid = SimpleNamespace(expires=datetime.now(UTC) + timedelta(days=1))
    monkeypatch.setattr("gossamer.keys.invitations.read_signed", lambda path: valid)
    if status is not None:
        (place := folder / "a/runs/2/state").mkdir(parents=True)
        (place / "status.json").write_text(json.dumps(status))
    command = ["node", "--invitation", str(folder / "a/invitation.yaml"), "--run"]
    assert main([*command, "2,3"]) == code
    assert taken == (["2"] if code == 2 else ["3"])
    said = "error: the invitation has expired" if code == 2 else "run 2 is over for this party"
    assert said in capsys.readouterr().err
    assert main([*command, "2"]) == 2


def test_another_organiser_whom_the_policy_allows_as_well(folder: Path) -> None:
    assert run(folder) == 0
    second, other = read_signed(folder / "a/runs/2/invitation.yaml"), Identity.of_seed(bytes([78]) * 32)
    terms = second.broker, second.members, second.spec, second.expires, second.issued, second.run
    (folder / "a/runs/2/invitation.yaml").write_text(invite(other, *terms)["a"])
    with pytest.raises(InvitationError, match="run 2: expected the organiser of the first run, "):
        party(folder, "a", "2", ORGANISER, other)
    with pytest.raises(InvitationError, match="expected the organiser with fingerprint"):
        party(folder)


def test_a_party_with_another_key_than_in_the_first_run(folder: Path) -> None:
    """Which the organiser could swap for one of its own: fingerprints were compared at the founding alone."""
    assert run(folder) == 0
    second, other = read_signed(folder / "a/runs/2/invitation.yaml"), Identity.of_seed(bytes([79]) * 32)
    members = [replace(one, key=other.public_key) if one.name == "b" else one for one in second.members]
    terms = second.broker, members, second.spec, second.expires, second.issued, second.run
    (folder / "a/runs/2/invitation.yaml").write_text(invite(ORGANISER, *terms)["a"])
    with pytest.raises(InvitationError, match=r"expected b with the key of the first run, .* found another one, "):
        party(folder)


def test_two_who_sign_different_things_have_signed_two_runs(folder: Path) -> None:
    """With copies of one folder, under one name: parties of the one meet nobody of the other."""
    for name in ("here", "there", "same", "numbers"):
        shutil.copytree(folder, folder.parent / name)
    here, there, same, numbers = (folder.parent / name for name in ("here", "there", "same", "numbers"))
    assert run(here) == run(there, spec=SPEC % 13) == run(same) == run(numbers, "--examples", "a=299") == 0
    runs = [read_signed(one / "runs/2/federation.yaml").run for one in (here, there, same, numbers)]
    assert runs[0] == runs[2]
    assert len(set(runs)) == 3


def test_a_broker_that_federations_share_serves_it_too(folder: Path) -> None:
    """Its certificates name the run's random name beside the party, as those of any run."""
    assert run(folder) == 0
    hub = folder.parent / "hub"
    assert main(["federation", "broker", str(folder), str(folder / "runs/2"), "--out", str(hub)]) == 0
    second = read_signed(folder / "runs/2/federation.yaml").run
    subject = x509.load_pem_x509_certificate((hub / "parties" / second / "a/tls.crt").read_bytes()).subject
    assert f"user {subject.rfc4514_string()}\n" in (hub / "broker/acl").read_text()
    assert second in subject.rfc4514_string()


def test_a_state_folder_for_each_run(tmp_path: Path) -> None:
    invitation = tmp_path / "a" / "invitation.yaml"
    places = [
        PartyOptions(invitation, run=run, store=store).state for store in (None, Path("s")) for run in (None, "2", "3")
    ]
    below = [tmp_path / "a/state", tmp_path / "a/runs/2/state", tmp_path / "a/runs/3/state"]
    assert places == [*below, Path("s"), Path("s/runs/2"), Path("s/runs/3")]


def test_over_a_shared_folder_it_has_a_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC % 12)
    store = f"file://{tmp_path}/share"
    found(folder := tmp_path / "f", spec=SPEC % 9, parties=PARTIES, broker=store)
    assert run(folder) == 0
    second = read_signed(folder / "runs/2/federation.yaml").run
    assert f"it may read all below gossamer/{second} and write" in " ".join(capsys.readouterr().err.split())
    assert not (folder / "broker").exists()
