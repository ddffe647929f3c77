"""The durable ledgers of federated units: of a server's stream of noise, and of an agent whose data it releases."""

from __future__ import annotations

from typing import Any

from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.unit_ledger import StreamKind
from gossamer.protocol.encoding import encode
from gossamer.runtimes.storage.account import Account
from gossamer.runtimes.storage.asking import PAID


class DurableUnitLedger:
    """The records of a unit's stream.

    Made by `LedgerFile.open_stream`.

    Attributes
    ----------
    agents : tuple of str
        Whose data each record holds.
    stream : StreamKind
        Opened for all rounds, before the first.
    releases : int
        Records charged.
    """

    def __init__(self, account: Account, agents: tuple[str, ...], stream: StreamKind) -> None:
        self._account, self.agents, self.stream = account, agents, stream
        self.releases = sum(account.counts().values())

    @property
    def owner(self) -> str:
        """The unit's server."""
        return self._account.owner

    def charge(self) -> None:
        """Charge the next record; as `DurableLedger.charge`."""
        self.releases = self._account.charge(encode(self.stream.describe()), "a record", PAID, self._refusal)

    def lines(self) -> list[dict[str, Any]]:
        """One record an agent, for ``ledger.jsonl``."""
        kind = self.stream.describe()
        return [{"node": agent, "unit": self.owner, "releases": self.releases, **kind} for agent in self.agents]

    def _refusal(self, before: int) -> str | None:
        records = self.stream.records
        return None if before < records else f"the stream was opened for {records} records"


class DurableAgentLedger:
    """The masked sums of an agent.

    Made by `LedgerFile.open_agent`, with what the unit releases already in it.

    Attributes
    ----------
    noise : AgentNoise or None
        Of each sum.
    most : int
        For how many it is opened.
    releases : int
        How many are charged.
    """

    def __init__(self, account: Account, noise: AgentNoise | None, most: int) -> None:
        self._account, self.noise, self.most = account, noise, most
        self.releases = sum(account.counts().values())

    @property
    def owner(self) -> str:
        """The agent."""
        return self._account.owner

    def charge(self) -> None:
        """Charge the noise of the next sum; as `DurableLedger.charge`."""
        kind = encode(None if self.noise is None else self.noise.describe())
        self.releases = self._account.charge(kind, "a masked sum", PAID, self._refusal)

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``; none if the agent adds no noise."""
        if self.noise is None:
            return []
        counts = {"node": self.owner, "to": "own server", "releases": self.releases, "most": self.most}
        return [counts | self.noise.describe()]

    def _refusal(self, before: int) -> str | None:
        return None if before < self.most else f"the ledger was opened for {self.most} sums"
