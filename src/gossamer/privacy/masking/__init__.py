"""Secure aggregation: a server learns the sum of a group's vectors and nothing of any single one.

Each agent adds masks to its vector that cancel in the sum. Agents that vanish on the way do not spoil it, and a server
that lies about who vanished learns nothing (Bonawitz et al., "Practical secure aggregation for privacy-preserving
machine learning", CCS 2017). docs/privacy/secure-aggregation.md says against whom this holds.

    from gossamer.privacy.masking import FixedPoint, Group, MaskingAgent, MaskingServer

Nothing here does I/O or reads a clock: `MaskingAgent` and `MaskingServer` take messages and return messages.
"""

import gossamer.privacy.masking.secure_extra  # noqa: F401  (says how to install cryptography where it is missing)
from gossamer.privacy.masking.agent import MaskingAgent
from gossamer.privacy.masking.agent_state import AgentState
from gossamer.privacy.masking.fixed_point import FixedPoint
from gossamer.privacy.masking.group import Group, Step, UintArray
from gossamer.privacy.masking.in_memory import aggregate
from gossamer.privacy.masking.keys import reproducible_secret
from gossamer.privacy.masking.messages import (
    AgentMessage,
    Announcement,
    Confirmation,
    Confirmations,
    DeliveredShares,
    EncryptedShares,
    MaskedVector,
    MaskingMessage,
    RevealedShares,
    Roster,
    Survivors,
    packed,
    unpacked,
)
from gossamer.privacy.masking.roster import Identities
from gossamer.privacy.masking.server import MaskedSum, MaskingServer, ServerState

__all__ = [
    "AgentMessage",
    "AgentState",
    "Announcement",
    "Confirmation",
    "Confirmations",
    "DeliveredShares",
    "EncryptedShares",
    "FixedPoint",
    "Group",
    "Identities",
    "MaskedSum",
    "MaskedVector",
    "MaskingAgent",
    "MaskingMessage",
    "MaskingServer",
    "RevealedShares",
    "Roster",
    "ServerState",
    "Step",
    "Survivors",
    "UintArray",
    "aggregate",
    "packed",
    "reproducible_secret",
    "unpacked",
]
