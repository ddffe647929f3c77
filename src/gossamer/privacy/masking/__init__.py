"""Secure aggregation: a server learns the sum of a group's vectors and nothing of any single one.

Each agent adds masks to its vector that cancel in the sum. Agents that vanish on the way do not spoil it, and a server
that lies about who vanished learns nothing (Bonawitz et al., "Practical secure aggregation for privacy-preserving
machine learning", CCS 2017). docs/privacy/secure-aggregation.md says against whom this holds.

    from gossamer.privacy.masking import FixedPoint, Group, MaskingAgent, MaskingServer

Nothing here does I/O or reads a clock: `MaskingAgent` and `MaskingServer` take messages and return messages.
"""

from gossamer.extras import require

require("cryptography", "secure aggregation needs", "secure")

from gossamer.privacy.masking.fixed_point import FixedPoint, Group, Phase
from gossamer.privacy.masking.sums import MaskedSum, MaskingAgent, MaskingServer, aggregate

__all__ = ["FixedPoint", "Group", "MaskedSum", "MaskingAgent", "MaskingServer", "Phase", "aggregate"]
