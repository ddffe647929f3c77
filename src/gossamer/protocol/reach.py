"""Whether a peer is reached: it acknowledges what it was sent, while it may be heard and take nothing."""

from __future__ import annotations

import math

from gossamer.protocol.link import Link
from gossamer.protocol.round_trips import LearningLink


def owed_since(link: Link) -> float | None:
    """Time since which the peer has acknowledged nothing of what is under way to it; None where nothing is."""
    return link.quiet_since if link.under_way else None


def patience(link: Link, least: float) -> float:
    """Seconds for which a peer may acknowledge nothing: ``least``, or longer for one that is known to be slow."""
    return link.silence(least) if isinstance(link, LearningLink) and math.isfinite(least) else least


def is_unreached(link: Link, least: float, now: float) -> bool:
    """Whether the peer has owed an acknowledgement for longer than it may."""
    since = owed_since(link)
    return since is not None and now - since > patience(link, least)
