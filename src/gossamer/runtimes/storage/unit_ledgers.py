"""The durable ledger of what has one law: the records of a unit's stream of noise, or the masked sums of an agent."""

from __future__ import annotations

from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.unit_ledger import StreamKind
from gossamer.protocol.encoding import encode
from gossamer.runtimes.storage.account import Account
from gossamer.runtimes.storage.asking import PAID


class DurableLawLedger:
    """The releases of one law, opened for so many of them.

    Made by `LedgerFile.open_stream`, and by `LedgerFile.open_agent` with what the unit releases already in it.

    Parameters
    ----------
    account : Account
        Of the unit's server, or of the agent.
    law : StreamKind, AgentNoise or None
        Of each release; None for an agent that adds no noise.
    most : int
        For how many it is opened.
    what, spent : str
        One release in words, and what is said once all are charged.

    Attributes
    ----------
    releases : int
        How many are charged.
    """

    def __init__(
        self, account: Account, law: StreamKind | AgentNoise | None, most: int, *, what: str, spent: str
    ) -> None:
        self._account, self._most, self._what, self._spent = account, most, what, spent
        self._kind = encode(None if law is None else law.describe())
        self.releases = sum(account.counts().values())

    @property
    def owner(self) -> str:
        """The unit's server, or the agent."""
        return self._account.owner

    def charge(self) -> None:
        """Charge the next release; as `DurableLedger.charge`."""
        self.releases = self._account.charge(self._kind, self._what, PAID, self._refusal)

    def _refusal(self, before: int) -> str | None:
        return None if before < self._most else self._spent
