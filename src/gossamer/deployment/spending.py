"""What an owner's data sets have spent so far, as data: what ``gossamer data show`` prints."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass

from gossamer.deployment.ledger_key import require_ledger
from gossamer.deployment.owned_data import budget_of
from gossamer.deployment.policy import OwnerPolicy
from gossamer.privacy.ledger import RenyiFilter
from gossamer.privacy.renyi import renyi_epsilon, renyi_level
from gossamer.privacy.weakness import remarks
from gossamer.runtimes.storage_account import Spent
from gossamer.runtimes.storage_contents import Accepted
from gossamer.runtimes.storage_ledger import LedgerFile


@dataclass(frozen=True)
class Spending:
    """What one data set has spent.

    Attributes
    ----------
    name : str
        In the policy, or in the ledger if the policy does not speak of it any more.
    budget : RenyiFilter or None
        Of the policy; None if it does not speak of it.
    divergence : float
        Spent, at the filter's order.
    epsilon : float or None
        What that amounts to at the policy's delta, a reading (`LedgerFile.epsilon`); None without a policy.
    runs : list of Spent
        What each run has spent.
    contents : list of Accepted
        What the data set consisted of.
    overlaps : dict of str to int
        How many examples it has in common with others.
    """

    name: str
    budget: RenyiFilter | None
    divergence: float
    epsilon: float | None
    runs: list[Spent]
    contents: list[Accepted]
    overlaps: dict[str, int]

    @property
    def left(self) -> float | None:
        """The divergence that the policy still allows; 0 or less allows nothing more."""
        if self.budget is None:
            return None
        return renyi_level(self.budget.order, self.budget.epsilon, self.budget.delta) - self.divergence

    @property
    def remarks(self) -> list[str]:
        """What makes the budget that is allowed weak, a line each."""
        if self.budget is None:
            return []
        examples = self.contents[-1].examples if self.contents else None
        return remarks(self.budget.epsilon, self.budget.delta, examples, "the data set")

    def describe(self) -> dict[str, object]:
        """Plain data for JSON; what is infinite is None."""
        budget = self.budget
        allowed: dict[str, object] | None = None
        if budget is not None:
            allowed = {"epsilon": budget.epsilon, "delta": budget.delta}
            allowed |= {"relation": budget.relation.value, "order": budget.order}
        return {
            "name": self.name,
            "allowed": allowed,
            "remarks": self.remarks,
            "spent_divergence": _finite(self.divergence),
            "left_divergence": _finite(self.left),
            "epsilon": _finite(self.epsilon),
            "runs": [{**run._asdict(), "divergence": _finite(run.divergence)} for run in self.runs],
            "contents": [{**content._asdict(), "fingerprint": content.fingerprint.hex()} for content in self.contents],
            "overlaps": self.overlaps,
        }


def spendings(policy: OwnerPolicy) -> list[Spending]:
    """What every data set of a policy has spent, and those that only the ledger knows.

    Raises
    ------
    DataError
        If the ledger's key is there without it.
    StorageError
        If the ledger cannot be read.
    """
    place = policy.ledger_path
    if not require_ledger(place):
        return [_unspent(policy, name) for name in policy.data]
    with closing(LedgerFile(place)) as file:
        names = dict.fromkeys([*policy.data, *file.data_sets])
        return [_spending(policy, file, name) for name in names]


def _unspent(policy: OwnerPolicy, name: str) -> Spending:
    return Spending(name, budget_of(policy.data[name], None, name), 0.0, 0.0, [], [], {})


def _spending(policy: OwnerPolicy, file: LedgerFile, name: str) -> Spending:
    spent, rule = file.spent(name), policy.data.get(name)
    found = file.runs(name), file.contents.history(name), file.contents.overlaps(name)
    if rule is None:
        return Spending(name, None, spent, None, *found)
    budget = budget_of(rule, file, name)
    epsilon = renyi_epsilon(budget.order, spent, rule.delta) if spent else 0.0
    return Spending(name, budget, spent, epsilon, *found)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
