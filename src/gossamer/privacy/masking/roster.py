"""Whether the keys that were announced can be used: points, identities, and no key twice."""

from __future__ import annotations

from collections.abc import Mapping

from gossamer.errors import DataError, PeerError
from gossamer.keys.identity import PublicKey
from gossamer.privacy.masking.group import Group
from gossamer.privacy.masking.keys import check_point
from gossamer.privacy.masking.messages import Announcement, Roster

Identities = Mapping[int, PublicKey]
"""Whose signature each agent's announcement has to bear, known from elsewhere."""
PURPOSE = "keys of a masked sum"
"""What an identity signs announcements for."""


def check_identities(group: Group, identities: Identities | None) -> None:
    """Raise DataError unless identities are given where, and only where, a group's announcements are signed."""
    if group.signed != (identities is not None):
        raise DataError(
            "the keys of this group are signed: expected the agents' identities, found none"
            if group.signed
            else "the keys of this group are not signed: identities are for one with signed=True"
        )


def check_announcement(announcement: Announcement, group: Group, identities: Identities | None) -> None:
    """Refuse keys that nobody should use.

    Raises
    ------
    PeerError
        If they are of no agent of the group, a key is not a valid point, they are signed or not, other than the group
        says, or, where identities are given, the signature is not the agent's.
    """
    agent = announcement.agent
    if not group.has(agent):
        raise PeerError(f"expected keys of agents 1 to {group.size}, found keys of agent {agent}")
    check_point(announcement.mask_key, agent, "mask")
    check_point(announcement.share_key, agent, "share")
    check_point(announcement.signing_key, agent, "signing")
    if bool(announcement.signature) != group.signed:
        expected = "signed by its identity" if group.signed else "without a signature"
        raise PeerError(f"agent {agent}'s keys are not as its group says: expected keys {expected}")
    if identities is not None:
        identity, text = identities.get(agent), announcement.signed_text(group)
        if identity is None or not identity.signed(announcement.signature, PURPOSE, text):
            raise PeerError(f"agent {agent}'s keys are not signed by its identity: expected a signature of this round")


def check_roster(roster: Roster, own: Announcement, group: Group, identities: Identities | None) -> None:
    """Refuse a list of announcements that ``own`` announcer should not join.

    Raises
    ------
    PeerError
        If there are fewer than the group's minimum, ``own`` is missing or another, an announcement is bad, an agent's
        vector is to be computed from other inputs than the ``own``, or two agents announce the same key.
    """
    if len(roster.announcements) < group.minimum:
        raise PeerError(f"a masked sum needs {group.minimum} agents, found a list of {len(roster.announcements)}")
    if own not in roster.announcements:
        raise PeerError(f"the list of agents does not have the keys that agent {own.agent} announced")
    for announcement in roster.announcements:
        check_announcement(announcement, group, identities)
    others = [one.agent for one in roster.announcements if one.inputs != own.inputs]
    if others:
        raise PeerError(
            f"agents {others} were not asked what agent {own.agent} was: expected the same model and settings for all, "
            "since a sum of answers to different questions may give one of them away"
        )
    keys = [key for one in roster.announcements for key in (one.mask_key, one.share_key)]
    if len(set(keys)) < len(keys):
        raise PeerError("two agents announce the same key: expected a key of its own for every agent and use")
