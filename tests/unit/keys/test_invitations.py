"""Invitations: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer import strict_yaml
from gossamer.keys import invitations
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import LARGEST, InvitationError, Member, invite, parse_invitation, read_signed

ORGANISER = Identity.of_seed(bytes(32))
PARTIES = {name: Identity.of_seed(bytes([i + 1]) * 32) for i, name in enumerate(["hospital-a", "no", "server", "u1-2"])}
MEMBERS = [
    Member("hospital-a", "worker", PARTIES["hospital-a"].public_key, examples=341),
    Member("no", "worker", PARTIES["no"].public_key),
    Member("server", "server", PARTIES["server"].public_key),
    Member("u1-2", "agent", PARTIES["u1-2"].public_key, unit="u1", examples=1),
]
BROKER = "mqtts://broker.example.org:8883"
SPEC = "dataset: digits\nalgorithm: {name: gossip, nodes: 4}\n"
ISSUED = datetime(2026, 3, 1, 12, tzinfo=UTC)
EXPIRES = ISSUED + timedelta(days=31)
NOW = ISSUED + timedelta(days=1)


def written(spec: str = SPEC, **changes: Any) -> dict[str, str]:
    return invite(ORGANISER, BROKER, MEMBERS, spec, EXPIRES, **{"issued": ISSUED, **changes})


def read(text: str | bytes, name: str = "hospital-a", organiser: str = "", now: datetime = NOW) -> Any:
    content = text.encode() if isinstance(text, str) else text
    return parse_invitation(content, PARTIES[name], [organiser or ORGANISER.public_key.fingerprint], now)


def signed(**changes: Any) -> str:
    """An invitation that the organiser signed though its content is wrong."""
    document = strict_yaml.load_texts(written()["hospital-a"])
    document |= changes
    signature = ORGANISER.sign("invitation", invitations._content(document))
    document["signature"] = invitations.base64.b64encode(signature).decode()
    return strict_yaml.dump_texts(document)


def refused(text: str | bytes, line: str, **how: Any) -> None:
    with pytest.raises(InvitationError, match=line) as caught:
        read(text, **how)
    assert "\n" not in str(caught.value)


def test_what_is_written_is_read() -> None:
    texts = written()
    assert list(texts) == ["hospital-a", "no", "server", "u1-2"]
    found = {name: read(text, name) for name, text in texts.items()}
    assert len({invitation.run for invitation in found.values()}) == 1
    for name, invitation in found.items():
        assert (invitation.invited, invitation.me.name, invitation.broker) == (name, name, BROKER)
        assert invitation.members == tuple(MEMBERS)
        assert [peer.name for peer in invitation.peers] == [other for other in texts if other != name]
        assert (invitation.spec, invitation.issued, invitation.expires) == (SPEC, ISSUED, EXPIRES)
    assert found["u1-2"].me.unit == "u1"


def test_the_file_is_for_people(tmp_path: Path) -> None:
    text = written()["hospital-a"]
    assert "  algorithm: {name: gossip, nodes: 4}\n" in text
    path = tmp_path / "hospital-a.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_signed(path, ORGANISER.public_key.fingerprint) == read(text)
    with pytest.raises(InvitationError, match=f"{tmp_path}/none: cannot read"):
        read_signed(tmp_path / "none")
    with pytest.raises(InvitationError, match=f"{path}: expected the organiser with fingerprint"):
        read_signed(path, PARTIES["no"].public_key.fingerprint)


def test_one_of_several_organisers_may_have_signed_it_and_nobody_else() -> None:
    content, known = written()["hospital-a"].encode(), ORGANISER.public_key.fingerprint
    other, now = PARTIES["no"].public_key.fingerprint, NOW
    identity = PARTIES["hospital-a"]
    for organisers in ([known, other], [other, known.upper().replace("-", " ")]):
        assert parse_invitation(content, identity, organisers, now) == read(content.decode())
    with pytest.raises(InvitationError, match=f"fingerprint {other} or {other}, found {known}"):
        parse_invitation(content, identity, [other, other], now)
    with pytest.raises(InvitationError, match="expected the organiser"):
        parse_invitation(content, identity, [], now)


def test_the_canonical_bytes_are_what_the_docstring_says() -> None:
    assert strict_yaml.canonical({"b": ["é"], "a": "1"}) == b'{"a":"1","b":["\\u00e9"]}'


def test_layout_does_not_matter() -> None:
    document = strict_yaml.load_texts(written(run="0" * 32)["hospital-a"])
    again = "# a comment\n" + json.dumps(dict(reversed(document.items())), indent=3)
    assert read(again) == read(written(run="0" * 32)["hospital-a"])


@settings(deadline=None, max_examples=examples(60))
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text('\x85\r\n\t "x:#\ufeff\u2028'))
def test_any_spec_is_kept_letter_by_letter(spec: str) -> None:
    assert read(written(spec)["no"], "no").spec == spec


def test_fingerprints_as_people_type_them() -> None:
    text, shown = written()["no"], ORGANISER.public_key.fingerprint
    for typed in (shown.upper(), shown.replace("-", " "), f" {shown.replace('-', '')}\n"):
        read(text, "no", typed)
    for typed in (shown[:-1], shown[5:], "0" * 32, "x"):
        refused(text, f"found {shown}; ask", name="no", organiser=typed)


def test_every_change_of_content_is_noticed() -> None:
    """Each text of the document changed, one at a time."""
    document = strict_yaml.load_texts(written()["hospital-a"])
    for key in sorted(set(document) - {"members", "format", "organiser"}):
        refused(strict_yaml.dump_texts({**document, key: document[key] + "0"}), "changed after the organiser signed it")
    for number in range(len(MEMBERS)):
        for key in document["members"][number]:
            changed = json.loads(json.dumps(document))
            changed["members"][number][key] += "0"
            refused(strict_yaml.dump_texts(changed), "changed after the organiser signed it")
    refused(strict_yaml.dump_texts({**document, "members": document["members"][1:]}), "changed after")


def test_another_organiser() -> None:
    mallory = Identity.of_seed(bytes([9]) * 32)
    text = invite(mallory, BROKER, MEMBERS, SPEC, EXPIRES, ISSUED)["no"]
    refused(text, "expected the organiser with fingerprint", name="no")
    # The organiser's key with the other's signature.
    document = strict_yaml.load_texts(text) | {"organiser": str(ORGANISER.public_key)}
    refused(strict_yaml.dump_texts(document), "changed after", name="no")


def test_for_another_key() -> None:
    refused(written()["hospital-a"], "it is for hospital-a with key .*; use that party's key", name="server")


def test_expiry() -> None:
    text = written()["no"]
    refused(text, "it expired at 2026-04-01T12:00:00", name="no", now=EXPIRES)
    read(text, "no", now=EXPIRES - timedelta(seconds=1))
    read(text, "no", now=(EXPIRES - timedelta(seconds=1)).astimezone(timezone(timedelta(hours=9))))
    read(text, "no", now=ISSUED - timedelta(days=1))


def test_a_newer_format() -> None:
    for version in ("2", "17"):
        refused(
            signed(format=version, extra="x"), f"format {version}, and this version of gossamer reads format 1; upd"
        )
    for version in ("0", "01", "x", "-1"):
        refused(signed(format=version), "of format")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "expected an invitation in YAML"),
        (b"\xff", "expected an invitation in YAML"),
        (b"[" * 20_000, "expected an invitation in YAML"),
        (b"format: '1'\nformat: '1'\n", "expected an invitation in YAML"),
        (b"format: &x '1'\nrun: *x\n", "expected an invitation in YAML"),
        (b"{[a]: b}", "expected an invitation in YAML"),
        (b"format: 1\n--- \nformat: 1\n", "expected an invitation in YAML"),
        (b"- format", "expected an invitation in YAML"),
        (b"x" * (LARGEST + 1), "at most 262144 bytes"),
        (b"format: []", "it is of format ..,"),
        (b"format: 1\nrun: x\n", "missing or too many: broker, expires"),
    ],
)
def test_files_that_are_no_invitation(content: bytes, line: str) -> None:
    refused(content, line)


MEMBER = {"name": "x", "role": "worker", "key": str(ORGANISER.public_key)}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"run": "x"}, "run of 32 hexadecimal"),
        ({"broker": "http://broker:1"}, "expected a broker"),
        ({"broker": "mqtts://broker"}, "expected a broker"),
        ({"broker": "mqtts://user:word@broker:1"}, "expected a broker"),
        ({"broker": "mqtts://broker:99999"}, "expected a broker"),
        ({"broker": "mqtts://broker:1/path"}, "expected a broker"),
        ({"invited": "stranger"}, "^expected the invited party to be a member, found 'stranger'"),
        ({"members": "x"}, "members: expected a list; this is how it was signed, so ask the organiser for another"),
        ({"members": [{}]}, "members.0.name: field required"),
        ({"members": [{**MEMBER, "more": "x"}]}, "members.0.more: unexpected keyword"),
        ({"members": [{**MEMBER, "a\x1b[2J\nb": "x"}]}, r"^members.0.a.x1b.2J.nb: unexpected keyword"),
        ({"members": [{**MEMBER, "k" * 9999: "x"}]}, "^members.0.k{290}; this is how it was signed"),
        ({"members": [{**MEMBER, "name": "a/b"}]}, "member's name to match"),
        ({"members": [{**MEMBER, "name": "#"}]}, "member's name to match"),
        ({"members": [{**MEMBER, "role": "Worker"}]}, "member's role to match"),
        ({"members": [{**MEMBER, "key": "x"}]}, "expected a public key"),
        ({"members": [{**MEMBER, "unit": "u"}]}, "an agent, and nobody else"),
        ({"members": [{**MEMBER, "role": "agent"}]}, "an agent, and nobody else"),
        ({"members": [{**MEMBER, "role": "agent", "unit": "+"}]}, "a unit to match"),
        ({"members": [MEMBER, {**MEMBER, "name": "y"}]}, "a key of its own, found ed25519"),
        ({"members": [MEMBER, {**MEMBER, "key": str(PARTIES["no"].public_key)}]}, "a name of its own, found x twice"),
        ({"members": [{**MEMBER, "examples": "0"}]}, "expected 1 to 1000000000000 examples, found 0"),
        ({"members": [{**MEMBER, "examples": "x"}]}, "members.0.examples: input should be a whole number"),
        ({"members": [{**MEMBER, "examples": "٣"}]}, "examples: input should be a whole number"),
        ({"members": [{**MEMBER, "examples": "1000000000001"}]}, "expected 1 to 1000000000000 examples"),
        ({"spec": "other"}, "does not have the hash"),
        ({"issued": "yesterday"}, "issued: input should be a valid datetime"),
        ({"expires": "2026-03-02T12:00:00"}, "expected times with a time zone"),
        ({"expires": "2026-03-01T12:00:00+00:00"}, "expire after it is issued"),
        ({"run": ["x"]}, "run: input should be a valid string"),
        ({"extra": "x"}, "too many: extra"),
        ({"": "x"}, "these are missing or too many: "),
    ],
)
def test_what_an_organiser_may_not_sign(changes: dict[str, Any], line: str) -> None:
    refused(signed(**changes), line)


def test_a_signature_that_is_none() -> None:
    document = strict_yaml.load_texts(written()["no"])
    for signature in ("", "é", "AAAA", document["signature"][:-4]):
        refused(strict_yaml.dump_texts({**document, "signature": signature}), "changed after", name="no")


def test_what_cannot_be_written() -> None:
    with pytest.raises(InvitationError, match="half a surrogate pair"):
        written("\ud800")
    with pytest.raises(InvitationError, match="shorten the spec"):
        written("x" * LARGEST)
    with pytest.raises(InvitationError, match="expire after"):
        invite(ORGANISER, BROKER, MEMBERS, SPEC, ISSUED, ISSUED)
    with pytest.raises(InvitationError, match="with a time zone"):
        invite(ORGANISER, BROKER, MEMBERS, SPEC, EXPIRES.replace(tzinfo=None), ISSUED)
    with pytest.raises(InvitationError, match="with a time zone"):
        invite(ORGANISER, BROKER, MEMBERS, SPEC, EXPIRES, ISSUED.replace(tzinfo=None))


def test_times_are_written_in_universal_time() -> None:
    text = written(issued=ISSUED.astimezone(timezone(timedelta(hours=9))))["no"]
    assert "issued: '2026-03-01T12:00:00+00:00'" in text
    assert read(text, "no").issued == ISSUED


def test_members_keep_their_order() -> None:
    """It is that of the algorithm's nodes, which decides whose neighbours are whose."""
    texts = invite(ORGANISER, BROKER, reversed(MEMBERS), SPEC, EXPIRES, ISSUED)
    assert [member.name for member in read(texts["no"], "no").members] == ["u1-2", "server", "no", "hospital-a"]


def test_examples_that_are_none() -> None:
    for number in (0, -1, 10**12 + 1):
        with pytest.raises(InvitationError, match="x: expected 1 to 1000000000000 examples, found"):
            Member("x", "worker", ORGANISER.public_key, examples=number)


def test_every_run_has_a_name_of_its_own() -> None:
    assert len({read(written()["no"], "no").run for _ in range(4)}) == 4


def test_other_readers_understand_the_same() -> None:
    """All values are texts to a reader that guesses types, too."""
    text = written("1: yes\n")["no"]
    assert yaml.safe_load(text) == strict_yaml.load_texts(text)
