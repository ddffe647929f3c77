"""Spending of an owner's data sets so far, as data: what ``gossamer data show`` prints."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property

from gossamer.deployment.owner.ledger_key import require_ledger, to_be_read
from gossamer.deployment.owner.owned_data import admitting, budget_of
from gossamer.deployment.owner.policy import OwnerPolicy
from gossamer.privacy.accounting.filters import EitherFilter, FilterTotal, RunSeries
from gossamer.privacy.guarantees import remarks
from gossamer.runtimes.storage.contents import Accepted
from gossamer.runtimes.storage.ledger import LedgerFile, Spent
from gossamer.runtimes.storage.receipts import Witnessed


@dataclass(frozen=True)
class Spending:
    """Spending of one data set.

    Attributes
    ----------
    name : str
        Name in the policy, or in the ledger if the policy does not speak of it any more.
    budget : EitherFilter or None
        Budget of the policy; None if the policy does not speak of it.
    divergence : float
        Spent outside of series, at the order of the Renyi filter.
    total : FilterTotal
        The same as Gaussian privacy.
    runs : list of Spent
        Amounts that each run has spent.
    contents : list of Accepted
        Contents that the data set had.
    overlaps : dict of str to int
        Number of examples that it has in common with others.
    series : dict of RunSeries to int
        Number of runs of each that were begun.
    witnessed : list of Witnessed
        Receipts of the runs that have any, and who has countersigned them.
    """

    name: str
    budget: EitherFilter | None
    divergence: float
    total: FilterTotal = field(default_factory=FilterTotal)
    runs: list[Spent] = field(default_factory=list)
    contents: list[Accepted] = field(default_factory=list)
    overlaps: dict[str, int] = field(default_factory=dict)
    series: dict[RunSeries, int] = field(default_factory=dict)
    witnessed: list[Witnessed] = field(default_factory=list)

    @cached_property
    def filter(self) -> EitherFilter | None:
        """The filter that admits more: the budget, less what late answers may take of its delta."""
        return None if self.budget is None else admitting(self.budget)

    @property
    def level(self) -> float | None:
        """The most that all divergences may come to; None without a policy."""
        return None if self.filter is None else self.filter.renyi.level

    @property
    def left(self) -> float | None:
        """The divergence that the Renyi filter still allows; 0 or less allows nothing more by this filter."""
        return None if self.level is None else self.level - self.divergence

    @property
    def shares(self) -> tuple[float, float] | None:
        """The share of the budget that is spent by each filter: Renyi, and Gaussian."""
        return None if self.filter is None else self.filter.shares(self.divergence, self.total)

    def share_of(self, run: Spent) -> float | None:
        """The share of the budget that a run has spent by the filter that counts; None of one in a series."""
        if self.filter is None or self.shares is None or run.series is not None:
            return None
        level, spent = self.filter.renyi.level, run.divergence
        if self.shares[1] < self.shares[0]:
            level, spent = self.filter.gaussian.level, run.mu**2
        return spent / level if level else math.inf if spent else 0.0

    @property
    def epsilon(self) -> float | None:
        """Epsilon that was spent, at the policy's delta, with the part of late answers; None without a policy.

        It is proved of runs that were fixed in advance, and a reading of others, of which the budget is proved. Of a
        series that was begun all counts.
        """
        if self.filter is None:
            return None
        begun = math.fsum(one.epsilon for one, runs in self.series.items() if runs)
        spent_outside = self.divergence > 0 or self.total.squared > 0
        return begun + (self.filter.reading(self.divergence, self.total) if spent_outside else 0.0)

    @property
    def remarks(self) -> list[str]:
        """Say what makes the budget that is allowed weak, a line each."""
        if self.budget is None:
            return []
        examples = self.contents[-1].examples if self.contents else None
        return remarks(self.budget.epsilon, self.budget.delta, examples, "the data set")

    def describe(self) -> dict[str, object]:
        """Plain data for JSON; what is infinite is None."""
        return {
            "name": self.name,
            "allowed": None if self.budget is None else _allowed(self.budget),
            "remarks": self.remarks,
            "spent_divergence": _finite(self.divergence),
            "left_divergence": _finite(self.left),
            **self._gaussian(),
            "epsilon": _finite(self.epsilon),
            "series": [
                {"name": one.name, "epsilon": one.epsilon, "delta": one.delta, "runs": one.runs, "begun": begun}
                for one, begun in self.series.items()
            ],
            "runs": [_finite_run(run) for run in self.runs],
            "receipts": [
                {**one._asdict(), "countersigned": [signed._asdict() for signed in one.countersigned]}
                for one in self.witnessed
            ],
            "contents": [{**content._asdict(), "fingerprint": content.fingerprint.hex()} for content in self.contents],
            "overlaps": self.overlaps,
        }

    def bar(self, run: str) -> dict[str, object]:
        """Parts of the budget that runs take, for a picture in which ``run`` stands out; plain data for JSON."""
        assert self.budget is not None
        assert self.shares is not None
        return {
            "data_set": self.name,
            "allowed": _allowed(self.budget),
            "epsilon": _finite(self.epsilon),
            "share": _finite(min(self.shares)),
            "runs": [{"run": one.run, "share": _finite(self.share_of(one)), "series": one.series} for one in self.runs],
            "this_run": run,
        }

    def _gaussian(self) -> dict[str, object]:
        """Mu and failures, spent and left."""
        found: dict[str, object] = {
            "spent_mu": _finite(math.sqrt(self.total.squared)),
            "spent_failures": self.total.failures,
        }
        if self.filter is not None:
            gaussian = self.filter.gaussian
            found["left_mu"] = math.sqrt(max(gaussian.level - self.total.squared, 0.0))
            found["left_failures"] = max(gaussian.failures - self.total.failures, 0.0)
        return found


def spendings(policy: OwnerPolicy) -> list[Spending]:
    """Return the spending of every data set of a policy, and of those that only the ledger knows.

    Raises
    ------
    DataError
        If the ledger's key is there without it.
    SpecError
        If a data set was begun with other series than the policy has.
    StorageError
        If the ledger cannot be read.
    """
    place = policy.ledger_path
    if not require_ledger(place):
        return [_unspent(policy, name) for name in policy.data]
    with closing(to_be_read(place)) as file:
        names = dict.fromkeys([*policy.data, *file.data_sets])
        return [spending_of(policy, file, name) for name in names]


def _unspent(policy: OwnerPolicy, name: str) -> Spending:
    budget = budget_of(policy.data[name], None, name)
    return Spending(name, budget, 0.0, series=dict.fromkeys(policy.data[name].set_aside, 0))


def spending_of(policy: OwnerPolicy, file: LedgerFile, name: str) -> Spending:
    """Return the spending of one data set, by a ledger that is open."""
    rule = policy.data.get(name)
    if rule is not None and file.filter_of(name) is None:
        return replace(
            _unspent(policy, name), contents=file.contents.history(name), overlaps=file.contents.overlaps(name)
        )
    budget = None if rule is None else budget_of(rule, file, name)
    spent = file.spent(name), file.total(name), file.runs(name)
    known = file.contents.history(name), file.contents.overlaps(name), file.series(name)
    witnessed = [one for run in spent[2] if (one := file.witnessed(run.run)) is not None]
    return Spending(name, budget, *spent, *known, witnessed)


def _allowed(budget: EitherFilter) -> dict[str, object]:
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": budget.relation.value,
        "order": budget.order,
        "filters": ["renyi", "gaussian"],
    }


def _finite_run(run: Spent) -> dict[str, object]:
    return {**run._asdict(), "divergence": _finite(run.divergence), "mu": _finite(run.mu)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
