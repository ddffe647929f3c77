"""A whole masked sum in one process, for simulation, tests and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gossamer.privacy.masking.agent import MaskingAgent
from gossamer.privacy.masking.group import Step, UintArray
from gossamer.privacy.masking.messages import AgentMessage
from gossamer.privacy.masking.server import MaskedSum, MaskingServer

# What an agent answers at each step, from what it was sent last and its vector.
_ANSWERS: dict[Step, Callable[[MaskingAgent, Any, UintArray], AgentMessage]] = {
    Step.ANNOUNCE: lambda agent, _, values: agent.announce(),
    Step.SHARE: lambda agent, incoming, values: agent.share(incoming),
    Step.MASK: lambda agent, incoming, values: agent.mask(incoming, values),
    Step.CONFIRM: lambda agent, incoming, values: agent.confirm(incoming),
    Step.REVEAL: lambda agent, incoming, values: agent.reveal(incoming),
}


def aggregate(
    server: MaskingServer,
    agents: Mapping[int, MaskingAgent],
    values: Mapping[int, UintArray],
    vanish: Mapping[int, Step] | None = None,
) -> MaskedSum:
    """The masked sum of ``values``, all messages passed on by hand.

    Parameters
    ----------
    server : MaskingServer
        Fresh.
    agents : mapping of int to MaskingAgent
        Fresh, by number.
    values : mapping of int to ndarray of unsigned integers [group.length]
        By agent.
    vanish : mapping of int to Step, optional
        From which step on an agent says nothing any more.

    Raises
    ------
    TooFewAgents
        If too few agents are left at some step.
    PeerError
        If one side refuses a message of the other.
    """
    vanish = vanish or {}
    inbox: Mapping[int, Any] = dict.fromkeys(agents)
    for step, answer in _ANSWERS.items():
        for number, incoming in inbox.items():
            if step < vanish.get(number, Step.DONE):
                server.receive(answer(agents[number], incoming, values[number]))
        if step < Step.REVEAL:
            inbox = server.advance()
    return server.unmask()
