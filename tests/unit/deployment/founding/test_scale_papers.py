"""Papers of a scale: what is not signed, not of this run, not all there or not a sum of examples is refused."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.private_scales import A, B, Parties, founded

from gossamer.deployment.founding.plain_yaml import canonical
from gossamer.deployment.founding.scale_papers import ScaleError, parse_release, write_release, write_scale
from gossamer.deployment.party.scaling import combined, ranges_in
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity
from gossamer.keys.membership import Member

pytestmark = pytest.mark.filterwarnings("ignore:dataset.scale. the noise hides")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """One that nobody changes."""
    return founded(tmp_path_factory.mktemp("once"))


# What is not so


GOOD = [20.0, -10.0, 35.0, 30.0]

BAD_RELEASES: dict[str, tuple[Callable[[Parties], bytes], str]] = {
    "not YAML": (lambda _: b"\x00\x01", "expected a party's release for the scale, in YAML"),
    "another paper": (lambda p: (p.place(A) / "invitation.yaml").read_bytes(), "expected a party's release"),
    "NaN": (lambda p: p.signed(A, [math.nan, 0, 1, 1]), f"the release of {A} holds numbers that are not finite"),
    "infinite": (lambda p: p.signed(A, [math.inf, 0, 1, 1]), f"the release of {A} holds numbers that are not finite"),
    "huge": (lambda p: p.signed(A, [1e9, 0, 1, 1]), f"the release of {A} is larger than .* examples and their noise"),
    "too short": (lambda p: p.signed(A, [1.0, 2.0]), f"expected 4 numbers from {A}, found 2"),
    "too long": (lambda p: p.signed(A, [1.0] * 6), f"expected 4 numbers from {A}, found 6"),
    "empty": (lambda p: p.signed(A, []), f"expected 4 numbers from {A}, found 0"),
    "signed by another": (lambda p: p.signed(A, GOOD, B), f"the release of {A} was changed, or another key signed"),
    "no party": (lambda p: p.signed("mallory", GOOD, A), "a release of 'mallory', who is no party with data"),
    "changed": (
        lambda p: p.signed(A, GOOD).replace(_coded(GOOD), _coded([21.0, *GOOD[1:]])),
        f"the release of {A} was changed",
    ),
    "of another run": (
        lambda p: p.signed(A, GOOD).replace(p.agreed.terms.invitation.run.encode(), b"0" * 32),
        "found that of another run, or of another spec",
    ),
    "twice": (lambda p: p.signed(B, GOOD), f"there is another release of {B}"),
}


def _coded(values: list[float]) -> bytes:
    return base64.b64encode(np.array(values, "<f8").tobytes())


@pytest.mark.parametrize("what", BAD_RELEASES)
def test_the_organiser_refuses(once: Parties, what: str) -> None:
    made, words = BAD_RELEASES[what]
    texts = {name: once.signed(name, GOOD) for name in (B, "node-2")} | {"sent.scale": made(once)}
    with pytest.raises(ScaleError, match=rf"^sent\.scale: .*{words}"):
        combined(once.agreed, texts, once.organiser)


def test_the_organiser_needs_all_and_its_own_key(once: Parties) -> None:
    texts = {name: once.signed(name, GOOD) for name in (A, B)}
    with pytest.raises(ScaleError, match="expected one release of node-2, found none"):
        combined(once.agreed, texts, once.organiser)
    with pytest.raises(CallerError, match="is not the one that signed the invitations"):
        combined(once.agreed, texts, Identity.generate())


def test_a_release_of_another_run_is_none_of_this(once: Parties, tmp_path: Path) -> None:
    """A true one, replayed: its signature is over the run."""
    invitation = once.agreed.terms.invitation
    other = replace(invitation, run="f" * 32)
    text = write_release(once.key(A), other, A, np.array(GOOD)).replace(other.run, invitation.run)
    with pytest.raises(ScaleError, match=f"the release of {A} was changed"):
        parse_release(text.encode(), invitation)


Papers = dict[str, Any]
BAD_PAPERS: dict[str, tuple[Callable[[Parties, Papers], None], str]] = {
    "other ranges": (
        lambda _, made: made["ranges"].update(size=made["ranges"]["size"] * 1.05),
        "its ranges do not follow from its releases",
    ),
    "a column more": (lambda _, made: made["ranges"].update(x=1.0), "its ranges do not follow from its releases"),
    "not above 0": (lambda _, made: made["ranges"].update(size=-1.0), "each range to be a number above 0"),
    "not a number": (lambda _, made: made["ranges"].update(size=math.nan), "each range to be a number above 0"),
    "one missing": (lambda _, made: made["releases"].pop(), "expected one release of node-2, found none"),
    "one twice": (
        lambda _, made: made["releases"].append(made["releases"][0]),
        f"expected one release of {A}, found 2",
    ),
    "another order": (lambda _, made: made["releases"].reverse(), f"expected the releases of {A}, {B}, node-2 in this"),
    "one of another": (
        lambda _, made: made["releases"].insert(0, replace(made["releases"].pop(0), signature="AAAA")),
        f"the release of {A} was changed, or another key signed it",
    ),
    "a huge one": (
        lambda p, made: made["releases"].insert(0, _parsed(p, made["releases"].pop(0).party, [1e12, 0, 1, 1])),
        f"the release of {A} is larger than",
    ),
    "another organiser": (lambda _, made: made.update(key=Identity.generate()), "or somebody else did"),
}


def _parsed(parties: Parties, name: str, values: list[float]) -> Any:
    return parse_release(parties.signed(name, values), parties.agreed.terms.invitation)


@pytest.mark.parametrize("what", BAD_PAPERS)
def test_a_party_refuses(once: Parties, what: str) -> None:
    """Also what the organiser itself has signed."""
    agreed, (change, words) = once.agreed, BAD_PAPERS[what]
    texts = {name: once.signed(name, GOOD) for name in agreed.terms.names}
    made: Papers = {"ranges": combined(agreed, texts, once.organiser)[1], "key": once.organiser}
    made["releases"] = [_parsed(once, name, GOOD) for name in agreed.terms.names]
    good = write_scale(once.organiser, agreed.terms.invitation, made["releases"], made["ranges"])
    assert ranges_in(agreed, good.encode()) == made["ranges"]
    change(once, made)
    bad = write_scale(made["key"], agreed.terms.invitation, made["releases"], made["ranges"])
    with pytest.raises(ScaleError, match=words):
        ranges_in(agreed, bad.encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"format: '1'\n", b"\xff", b"a: &a [*a, *a]\n", b"run: x\nrun: y\n"])
def test_what_is_no_paper(once: Parties, content: bytes) -> None:
    with pytest.raises(ScaleError, match="expected the scale of a run, in YAML of format 1"):
        ranges_in(once.agreed, content)


def test_signatures_are_over_what_is_said(once: Parties) -> None:
    """A release signs for no invitation, and the other way round, whatever bytes they have in common."""
    content = canonical({"a": "b"})
    key = once.organiser
    signed = [key.sign(purpose, content) for purpose in ("invitation", "scale", "scale release")]
    assert len(set(signed)) == 3


def test_members_are_named_by_the_invitation(once: Parties) -> None:
    """So a party that holds no data cannot add a release."""
    invitation = once.agreed.terms.invitation
    key = Identity.generate()
    extra = Member("server", "server", key.public_key)
    text = write_release(key, invitation, "server", np.array(GOOD))
    with pytest.raises(ScaleError, match="'server', who is no party with data"):
        parse_release(text.encode(), replace(invitation, members=(*invitation.members, extra)))
