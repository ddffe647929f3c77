"""``gossamer federation``: from keys to invitations, on the command line."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli import main
from gossamer.cli.federation import actions
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import read_signed

pytestmark = pytest.mark.usefixtures("called_here")

SPEC = """
dataset: digits
algorithm: {name: audp, updates_per_node: 20, batch_size: 20}
budget: {epsilon: 5, delta: 1.0e-4}
"""
NEW = {
    "--spec": "spec.yaml",
    "--nodes": "a,b",
    "--examples": "a=300,b=200",
    "--broker": "mqtts://broker.example.org:8883",
}


@pytest.fixture(autouse=True)
def _spec(called_here: None) -> None:
    Path("spec.yaml").write_text(SPEC)


def new(*more: str, **changes: str | None) -> list[str]:
    """A call of ``new``; changes are options by their name, and None takes one out."""
    options = {**NEW, **{f"--{name}": value for name, value in changes.items()}}
    return [
        "federation",
        "new",
        "f",
        *(word for pair in options.items() if pair[1] is not None for word in map(str, pair)),
        *more,
    ]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_keys_to_invitations(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "federation", "identity", "a")
    key = Identity.load("a/identity.key").public_key
    assert made == {"name": "a", "key": str(key), "fingerprint": key.fingerprint, "public_file": "a/a.pub"}
    Path("keys").mkdir()
    Path("a/a.pub").rename("keys/a.pub")

    founded = document(capsys, *new("--keys", "keys"))
    assert (founded["folder"], founded["private_keys_made_for"]) == ("f", ["b", "server"])
    assert [member["name"] for member in founded["members"]] == ["a", "b", "server"]
    assert founded["members"][0]["fingerprint"] == key.fingerprint
    assert [member["examples"] for member in founded["members"]] == [300, 200, None]
    assert [member.get("releases") for member in founded["members"]] == [20, 20, None]
    # The one with fewer examples samples each of them more often, and the budget is met there, but for what the
    # samplers of a deployment add.
    assert founded["members"][0]["epsilon"] < founded["members"][1]["epsilon"] <= 5.0001
    assert founded["guarantee"]["epsilon"] == founded["members"][1]["epsilon"]
    assert "a simulation" not in str(founded)

    shown = document(capsys, "federation", "show", "f/a/invitation.yaml", "--organiser", founded["organiser"])
    same = set(founded) - {"folder", "private_keys_made_for"}
    assert {key: shown[key] for key in same} == {key: founded[key] for key in same}
    assert shown["invited"] == "a"
    assert shown["spec"] == read_signed("f/a/invitation.yaml").spec


def test_what_an_organiser_reads(capsys: pytest.CaptureFixture[str]) -> None:
    Path("keys").mkdir()
    Path("keys/a.pub").write_text(str(PublicKey(bytes([2]) * 32)))
    assert main(new("--keys", "keys")) == 0
    captured = capsys.readouterr()
    fingerprint = read_signed("f/federation.yaml").organiser.fingerprint
    said = " ".join(captured.err.split())
    for words in (
        f"The organiser's fingerprint is {fingerprint}.",
        "The private keys of b, server were made here, in their folders under f: hand these over safely",
        "The folders of a hold no secret",
        "f/broker goes to the broker's machine, and holds its private key",
        "Keep organiser.key, authority.key here, where nobody else can read",
    ):
        assert words in said
    assert fingerprint in captured.out
    assert "audp on digits, 650 parameters" in captured.out
    assert "Guarantee: (" in captured.out
    assert "a       edge    300       20" in captured.out


def test_what_a_party_reads(capsys: pytest.CaptureFixture[str]) -> None:
    main(["federation", "identity", "a", "--out", "mine"])
    captured = capsys.readouterr()
    assert captured.out == f"a's fingerprint: {Identity.load('mine/identity.key').public_key.fingerprint}\n"
    assert "Send mine/a.pub to the organiser" in captured.err
    assert stat.S_IMODE(Path("mine/identity.key").stat().st_mode) == 0o600
    main(new())
    capsys.readouterr()
    assert main(["federation", "show", "f/server/invitation.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("For server (server). Run ")
    assert "  name: audp\n" in captured.out
    fingerprint = read_signed("f/federation.yaml").organiser.fingerprint
    assert f"whether the fingerprint is {fingerprint}" in captured.err


def test_the_wheel_that_all_install_is_named_in_the_invitations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gossamer-1-py3-none-any.whl").write_bytes(b"a wheel")
    wanted = hashlib.sha256(b"a wheel").hexdigest()
    assert main(new("--wheel", "gossamer-1-py3-none-any.whl")) == 0
    assert main(["federation", "renew", "f"]) == 0  # which keeps it
    capsys.readouterr()
    assert document(capsys, "federation", "show", "f/a/invitation.yaml")["wheel_sha256"] == wanted
    said = {
        None: "from no such file",
        wanted: "as installed here",
        "0" * 64: f"not this installation's, which is {'0' * 64}",
    }
    for here, words in said.items():
        monkeypatch.setattr(actions, "installed_wheel", lambda here=here: here)
        assert main(["federation", "show", "f/a/invitation.yaml"]) == 0
        assert f"sha256 {wanted} (" in (shown := capsys.readouterr().out)
        assert words in shown
    invitation = Path("f/a/invitation.yaml")
    invitation.write_text(invitation.read_text().replace(wanted, "0" * 64))
    assert main(["federation", "show", "f/a/invitation.yaml"]) == 2
    assert "it was changed after the organiser signed it" in capsys.readouterr().err


def test_a_broker_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    main(new(broker="mqtt://localhost:1883"))
    captured = capsys.readouterr()
    assert "mqtt://localhost:1883 (no TLS)" in captured.out
    assert "Keep organiser.key here" in captured.err


def test_a_run_without_privacy(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text("dataset: digits\nprivacy: none\n")
    founded = document(capsys, *new())
    assert [member["epsilon"] for member in founded["members"]] == [None, None]
    assert founded["guarantee"]["epsilon"] is None
    assert main(["federation", "show", "f/a/invitation.yaml"]) == 0
    assert "Guarantee: none" in capsys.readouterr().out


def test_agents_and_observers(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text(
        "dataset: digits\n"
        "algorithm: {name: graph_federated, units: 2, agents: 1, rounds: 3, batch_size: 5}\n"
        "privacy: {standard_deviation: 9, clip: 1}\n"
    )
    founded = document(capsys, *new())
    assert [member["unit"] for member in founded["members"]] == ["server-0", "server-1", None, None]
    assert "other_units" in founded["guarantees"]
    assert main(["federation", "show", "f/b/invitation.yaml"]) == 0
    assert "agent of server-1" in capsys.readouterr().out


def test_joining_and_renewing(capsys: pytest.CaptureFixture[str]) -> None:
    before = document(capsys, *new("--expires", "1"))
    joined = document(capsys, "federation", "add", "f", "--node", "d", "--examples", "d=1000")
    assert [member["name"] for member in joined["members"]] == ["a", "b", "d", "server"]
    assert joined["private_keys_made_for"] == ["d"]
    renewed = document(capsys, "federation", "renew", "f", "--expires", "7")
    assert renewed["members"] == joined["members"]
    assert renewed["private_keys_made_for"] == []
    assert before["run"] == joined["run"] == renewed["run"]
    assert before["organiser"] == joined["organiser"] == renewed["organiser"]
    assert before["expires"] < renewed["expires"] < joined["expires"]
    assert before["issued"] < joined["issued"] < renewed["issued"]


def test_a_folder_with_a_key_in_it_is_never_said_to_hold_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    main(new())
    Path("f/b/identity.key").unlink()  # handed over
    capsys.readouterr()
    assert main(["federation", "renew", "f"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "The private keys of a, server were made here, in their folders under f" in said
    assert "The folders of b hold no secret" in said


def test_what_is_next_when_somebody_joins_or_papers_are_renewed(capsys: pytest.CaptureFixture[str]) -> None:
    """What has changed is handed round, certificates first; nothing is founded anew."""
    main(new())
    capsys.readouterr()
    changed = "acl, broker.crt, ca.crt of f/broker go to the broker's machine, where the broker is restarted"
    put = "Each party puts the new tls.crt in the place of the old one first, and then the new invitation.yaml"
    join = "d: `gossamer node --invitation FILE --organiser FINGERPRINT --policy FILE --data FILE`."
    tell = "Tell it to d by another way"
    for command, (joins, more) in {
        "add": (True, ("--node", "d", "--examples", "d=1000")),
        "renew": (False, ()),
    }.items():
        assert main(["federation", command, "f", *more]) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert said.index(changed) < said.index(put)
        assert [join in said, tell in said] == [joins, joins]
        assert "mosquitto -c" not in said
        assert "Each party: `gossamer node" not in said


def test_an_organisers_own_key(capsys: pytest.CaptureFixture[str]) -> None:
    identity = Identity.create("me.key")
    founded = document(capsys, *new("--organiser", "me.key"))
    assert founded["organiser"] == identity.public_key.fingerprint
    renewed = document(capsys, "federation", "renew", "f", "--organiser", "me.key")
    assert renewed["organiser"] == founded["organiser"]
    other, before = Identity.create("other.key").public_key, Path("f/federation.yaml").read_bytes()
    assert main(["federation", "renew", "f", "--organiser", "other.key"]) == 2
    assert capsys.readouterr().err == (
        "gossamer: error: f: expected the key of this federation's organiser, with fingerprint "
        f"{founded['organiser']}, found another one, with {other.fingerprint}; give the organiser's with --organiser\n"
    )
    assert main(["federation", "new", "g", *new()[3:]]) == 0
    Path("g/authority.key").replace("f/authority.key")
    capsys.readouterr()
    assert main(["federation", "renew", "f", "--organiser", "me.key"]) == 2
    assert capsys.readouterr().err == (
        "gossamer: error: f: expected an authority's certificate and the ECDSA key of it, in PEM without a password; "
        "put back authority.crt and authority.key, which were made together\n"
    )
    assert Path("f/federation.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"examples": None}, "--examples: how many training examples a, b will use is missing"),
        ({"examples": "a=3"}, "--examples: how many training examples b will use is missing"),
        ({"examples": "a=300,b=200,c=3"}, "--examples: c is none of the nodes a, b"),
        ({"nodes": "a,b,a"}, "--nodes: a is named twice"),
        ({"nodes": "a,../b", "examples": "a=1,../b=1"}, "expected a member's name to match"),
        ({"expires": "0"}, "--expires: expected a whole number, 1 to 3650, found '0'"),
        ({"expires": "3651"}, "--expires: expected a whole number, 1 to 3650, found '3651'"),
        ({"spec": "none.yaml"}, "none.yaml: cannot read the spec: No such file"),
        ({"keys": "none"}, "none: expected a folder with the parties' public keys"),
        ({"organiser": "none.key"}, "none.key: cannot read the key"),
        ({"broker": "mqtt://broker.example.org:1883"}, "say mqtts://, or --insecure"),
        ({"broker": "broker"}, "expected a broker such as mqtts://"),
        ({"examples": "a=300,b=10"}, "b holds 10 examples, fewer than algorithm.batch_size 20"),
    ],
)
def test_one_line_for_every_mistake(
    changes: dict[str, str | None], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(new(**changes)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gossamer: error: ")
    assert captured.err.count("\n") == 1
    assert line in captured.err
    assert not Path("f").exists()


@pytest.mark.parametrize(
    ("option", "text"),
    [*(("examples", text) for text in ["a", "a=", "a=x", "a=1,,b=2", "a=-1", "a=1,a=2"]), ("nodes", "a,")],
)
def test_lists_that_are_none(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(new(**{option: text})) == 2
    assert f"argument --{option}: " in capsys.readouterr().err


def test_a_folder_that_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    main(new())
    before = Path("f/organiser.key").read_bytes()
    capsys.readouterr()
    assert main(new()) == 2
    assert "f: exists and is not an empty folder" in capsys.readouterr().err
    assert Path("f/organiser.key").read_bytes() == before


def test_an_invitation_that_is_not_genuine(capsys: pytest.CaptureFixture[str]) -> None:
    main(new())
    capsys.readouterr()
    path = Path("f/a/invitation.yaml")
    assert main(["federation", "show", str(path), "--organiser", "0" * 32]) == 2
    assert "expected the organiser with fingerprint" in capsys.readouterr().err
    path.write_text(path.read_text().replace("initial: 0.5", "initial: 0.6"))
    assert main(["federation", "show", str(path)]) == 2
    assert "it was changed after the organiser signed it" in capsys.readouterr().err


def test_more_cannot_join_than_the_spec_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be run is not written."""
    main(new())
    before = Path("f/federation.yaml").read_bytes()
    capsys.readouterr()
    assert main(["federation", "add", "f", "--node", "d", "--examples", "d=10"]) == 2
    assert "d holds 10 examples, fewer than algorithm.batch_size 20" in capsys.readouterr().err
    assert main(["federation", "add", "f", "--node", "d,d", "--examples", "d=10"]) == 2
    assert capsys.readouterr().err == "gossamer: error: --node: d is named twice\n"
    assert Path("f/federation.yaml").read_bytes() == before
    assert not Path("f/d").exists()


def test_an_organiser_is_told_what_is_for_simulations_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text(f"{SPEC}speeds: {{name: lognormal}}\n")
    assert main(new()) == 0
    err = capsys.readouterr().err
    line = (
        "gossamer: warning: speeds is for simulations and left out: a federation's parties and networks are as they are"
    )
    assert sum(one.startswith(line) and one.endswith("counts on it") for one in err.splitlines()) == 1
    Path("spec.yaml").write_text(SPEC)
    assert main(["federation", "new", "g", *new()[3:]]) == 0
    assert "for simulations" not in capsys.readouterr().err
