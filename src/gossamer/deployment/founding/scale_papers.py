"""Papers of a scale that is found privately: each party's release, and all of them together.

Both are YAML for people (see `plain_yaml`), hold no secret and may be mailed. A release is signed by its party:

    format: '1'
    run: 0f3c...                      that of the invitation, as is the hash of its spec
    spec_sha256: ...
    party: hospital-a
    values: ...                       base64 of numbers of 8 bytes, the least byte first
    signature: ...                    base64, over all of the above

The organiser puts the releases of all parties into one file, in the order of the invitation, with the ranges that
follow from them, and signs that. So all parties have the same releases, and the same ranges to the last bit: a party
that made two releases cannot show one to some and the other to the rest.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.bounded import read_file
from gossamer.deployment.founding.invitations import Invitation
from gossamer.deployment.founding.plain_yaml import canonical, dump, load
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity, PublicKey

LARGEST = 1 << 26
"""Most bytes of a file: a thousand parties with a thousand columns each need a third of it."""

_FORMAT = "1"
_RELEASE, _SCALE = "scale release", "scale"
_NUMBERS = np.dtype("<f8")
_COMMON = {"format", "run", "spec_sha256", "signature"}


class ScaleError(CallerError):
    """A file of a scale is not what a run needs."""


@dataclass(frozen=True)
class ScaleRelease:
    """Release of one party, whose signature has been verified.

    Attributes
    ----------
    party : str
        Its name.
    values : ndarray of float64
        Finite; how many there are to be is not looked at here.
    signature : str
        As the file has it.
    """

    party: str
    values: FloatArray
    signature: str


@dataclass(frozen=True)
class ScalePaper:
    """Releases of all parties with data, in their order, and the ranges that the organiser has found by them."""

    releases: tuple[ScaleRelease, ...]
    ranges: Mapping[str, float]


def content_of(path: Path, what: str) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    ScaleError
        If it cannot be read; ``what`` says what it should be, and what to do.
    """
    try:
        return read_file(path, LARGEST)
    except OSError as error:
        raise ScaleError(f"{path}: cannot read {what}: {error.strerror}") from None


def write_release(identity: Identity, invitation: Invitation, party: str, values: FloatArray) -> str:
    """The text of a party's release, signed."""
    document = _release(invitation, party, base64.b64encode(values.astype(_NUMBERS).tobytes()).decode())
    signed = document | {"signature": _sign(identity, _RELEASE, document)}
    return f"# {party}'s release for the scale of a run. It holds no secret, and is for the organiser.\n{dump(signed)}"


def parse_release(content: bytes, invitation: Invitation) -> ScaleRelease:
    """The release written in ``content``, by a party with data of the invitation's run.

    Raises
    ------
    ScaleError
        If it is not readable, for another run, by nobody in this run, changed since it was signed, or not finite.
    """
    document = _document(content, {"party", "values"}, "a party's release for the scale", invitation)
    return _verified(invitation, _text(document, "party"), document)


def write_scale(
    organiser: Identity, invitation: Invitation, releases: Sequence[ScaleRelease], ranges: Mapping[str, float]
) -> str:
    """The text of the paper that all parties get, signed by the organiser."""
    document = {
        **_head(invitation),
        "releases": [
            {"party": one.party, "values": base64.b64encode(one.values.tobytes()).decode(), "signature": one.signature}
            for one in releases
        ],
        "ranges": {name: repr(value) for name, value in ranges.items()},
    }
    signed = document | {"signature": _sign(organiser, _SCALE, document)}
    return f"# The scale of a run. Whoever changes what it says breaks its signature.\n{dump(signed)}"


def parse_scale(content: bytes, invitation: Invitation) -> ScalePaper:
    """The paper written in ``content``, signed by the organiser of the invitation.

    Raises
    ------
    ScaleError
        As `parse_release`, for each of its releases; if the organiser has not signed it; or if a party with data is not
        there exactly once, in order.
    """
    document = _document(content, {"releases", "ranges"}, "the scale of a run", invitation)
    if not invitation.organiser.signed(_signature(document), _SCALE, canonical(_unsigned(document))):
        raise ScaleError("it was changed after the organiser signed it, or somebody else did; ask for it again")
    entries, ranges = document["releases"], document["ranges"]
    if not isinstance(entries, list) or not isinstance(ranges, dict):
        raise ScaleError("expected a list of releases, and the range of each column")
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"party", "values", "signature"}:
            raise ScaleError("expected each release to have party, values and signature")
    found = tuple(_verified(invitation, _text(entry, "party"), entry) for entry in entries)
    check_all(found, invitation)
    return ScalePaper(found, {str(name): _range(value) for name, value in ranges.items()})


def check_all(releases: Sequence[ScaleRelease], invitation: Invitation) -> None:
    """Refuse releases that are not one of each party with data, in the order of the invitation.

    Raises
    ------
    ScaleError
        If one is missing, twice there, or in another place.
    """
    names = [one.party for one in releases]
    wanted = [member.name for member in invitation.members if member.examples is not None]
    for name in wanted:
        if names.count(name) != 1:
            found = "none" if name not in names else f"{names.count(name)}"
            raise ScaleError(f"expected one release of {name}, found {found}; the organiser needs each party's own")
    if names != wanted:
        raise ScaleError(f"expected the releases of {', '.join(wanted)} in this order; ask the organiser for it again")


def _verified(invitation: Invitation, party: str, entry: Mapping[str, Any]) -> ScaleRelease:
    """One party's release, whose signature holds for this run."""
    key = _key_of(invitation, party)
    text = _text(entry, "values")
    document = _release(invitation, party, text)
    if not key.signed(_signature(entry), _RELEASE, canonical(document)):
        raise ScaleError(f"the release of {party} was changed, or another key signed it; ask {party} for it again")
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), _NUMBERS).astype(np.float64)
    except (binascii.Error, ValueError):
        raise ScaleError(f"the release of {party} holds no numbers; ask {party} for it again") from None
    if not np.isfinite(values).all():
        raise ScaleError(f"the release of {party} holds numbers that are not finite, and nobody may use it")
    return ScaleRelease(party, values, _text(entry, "signature"))


def _key_of(invitation: Invitation, party: str) -> PublicKey:
    for member in invitation.members:
        if member.name == party and member.examples is not None:
            return member.key
    raise ScaleError(f"it holds a release of {party[:80]!r}, who is no party with data of this run")


def _head(invitation: Invitation) -> dict[str, Any]:
    return {"format": _FORMAT, "run": invitation.run, "spec_sha256": invitation.spec_sha256}


def _release(invitation: Invitation, party: str, values: str) -> dict[str, Any]:
    return {**_head(invitation), "party": party, "values": values}


def _document(content: bytes, keys: set[str], what: str, invitation: Invitation) -> dict[str, Any]:
    """The content of a file of this version, of the invitation's run."""
    try:
        document = load(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or set(document) != _COMMON | keys or document["format"] != _FORMAT:
        raise ScaleError(f"expected {what}, in YAML of format {_FORMAT}, found something else")
    if (document["run"], document["spec_sha256"]) != (invitation.run, invitation.spec_sha256):
        raise ScaleError(f"expected {what} of run {invitation.run}, found that of another run, or of another spec")
    return document


def _unsigned(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "signature"}


def _sign(identity: Identity, purpose: str, document: Mapping[str, Any]) -> str:
    return base64.b64encode(identity.sign(purpose, canonical(document))).decode()


def _signature(document: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(_text(document, "signature"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise ScaleError(f"expected {key} to be a text")
    return value


def _range(value: Any) -> float:
    try:
        found = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise ScaleError("expected each range to be a number above 0; ask the organiser for it again")
    return found
