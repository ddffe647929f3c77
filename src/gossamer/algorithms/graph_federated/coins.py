"""Public coins of graph federated learning: which agents take part in which round."""

from __future__ import annotations

from gossamer.randomness import Stream


class Sampling:
    """L of a unit's agents for each round: everyone can follow the draws, which depend on no data.

    Parameters
    ----------
    seed : int
        Of the run's public randomness.
    server : str
        Of the unit.
    agents : tuple of str
        Of the unit.
    sampled : int
        L.
    """

    def __init__(self, seed: int, server: str, agents: tuple[str, ...], sampled: int) -> None:
        self.server, self.agents, self.sampled = server, agents, sampled
        self._coins = Stream(seed, "graph_federated", server, "agents")

    def of(self, round: int) -> tuple[str, ...]:
        """Agents that take part in ``round``, in the order of the unit's agents."""
        if self.sampled == len(self.agents):
            return self.agents
        drawn = self._coins.at(round).choice(len(self.agents), self.sampled, replace=False, shuffle=False)
        return tuple(self.agents[number] for number in sorted(drawn.tolist()))
