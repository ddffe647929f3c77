"""Messages between a server and the members of a masked sum, of whatever algorithm; see `gossamer.privacy.masking`.

| step | the server asks with | the agent replies with |
|---|---|---|
| 0 announce | the model, before the update is made | its public keys |
| 1 share | everybody's keys | shares of its secrets, encrypted for each agent |
| 2 mask | the shares for this agent | its update, `Masked` |
| 3 confirm | whose updates arrived | its signature of that |
| 4 reveal | all signatures | one share for each participant |
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Masked, Public


@message("graph.masking_request")
@dataclass(frozen=True)
class MaskingRequest(Message):
    """Request of the server: take ``step`` of the sum of ``round``; ``content`` is a packed message about masks."""

    round: int
    step: int
    content: Public


@message("graph.masking_reply")
@dataclass(frozen=True)
class MaskingReply(Message):
    """Reply of an agent: its message of ``step``, packed; at the step that masks, the masked update itself."""

    round: int
    step: int
    content: Public | Masked


@message("graph.withdrawn")
@dataclass(frozen=True)
class Withdrawn(Message):
    """Notice of an agent: it takes no further part in the sum of ``round``, because its data side will not."""

    round: int
