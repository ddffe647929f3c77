"""State that an agent of a masked sum keeps between two steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.privacy.masking.group import Group, Step
from gossamer.privacy.masking.messages import NO_INPUTS, Announcement, Roster
from gossamer.protocol.encoding import register


@register("masking.member")
@dataclass(frozen=True)
class AgentState:
    """All that an agent keeps between two steps.

    Attributes
    ----------
    group : Group
    agent : int
        Its number.
    round : int
    secret : bytes
        What all its keys follow from; empty after the last step.
    inputs : bytes
        Digest of the public inputs of its vector.
    step : int
        What it says next, a `Step`.
    announcement : Announcement or None
        Its own.
    roster : Roster or None
        Whose keys it uses.
    held : dict of int to bytes
        By agent, its own number too: the share of the mask key, then that of the self-mask's seed.
    survivors : tuple of int
        What it signed.
    """

    group: Group
    agent: int
    round: int
    secret: bytes = field(repr=False)
    inputs: bytes = NO_INPUTS
    step: int = Step.ANNOUNCE.value
    announcement: Announcement | None = None
    roster: Roster | None = None
    held: dict[int, bytes] = field(default_factory=dict, repr=False)
    survivors: tuple[int, ...] = ()
