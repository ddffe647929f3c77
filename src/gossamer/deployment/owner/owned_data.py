"""A data set as its owner keeps it: what it consists of, and what it has spent over all runs.

    data = OwnedData.open(read_policy("policy.yaml"), "wards", Path("/srv/wards.csv"))
    warnings = data.check()                           # or DataError: the data changed
    ledger = data.ledger(invitation.run, "hospital-a", plan)

Both are kept under the name that the policy gives the data set. Content that changed is refused until the owner accepts
it with ``gossamer data update``; it inherits everything that was spent under its name, since nobody can tell which of
its examples were in which release. Content that turns up under a new name is refused, too, until the owner says whether
it is the same data by another name, which inherit everything, or other data with examples in common: these have spent
what both names have.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gossamer.data.split import Split
from gossamer.deployment.owner.fingerprints import content_of, examples_at, examples_of, hashed
from gossamer.deployment.owner.known_names import take_over, told_of_names, update_command
from gossamer.deployment.owner.ledger_key import key_path, open_with_key
from gossamer.deployment.owner.once_in_a_run import once_in_a_run
from gossamer.deployment.owner.policy import DataRule, OwnerPolicy
from gossamer.errors import DataError, counted
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, Entry, widest_order_of
from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.privacy.accounting.release_times import without_late
from gossamer.privacy.releases import Counts, checked_counts
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.weakness import remarks
from gossamer.runtimes.storage.contents import Content, Difference
from gossamer.runtimes.storage.filters import Budget
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile
from gossamer.runtimes.storage.unit_ledgers import DurableLawLedger


@dataclass
class OwnedData:
    """One data set of an owner; made by `open`.

    Attributes
    ----------
    policy : OwnerPolicy
        Of its owner.
    name : str
        In the policy.
    path : Path or None
        Its file or folder; None for data that are in no file.
    budget : EitherFilter or RenyiFilter
        For everything ever released from it; of a Renyi filter alone if it was begun when there was no other.
    file : LedgerFile
        With what all data sets of the owner have spent.
    """

    policy: OwnerPolicy
    name: str
    path: Path | None
    budget: Budget
    file: LedgerFile
    _key: bytes
    _is_new: bool
    _checked: bool = False

    @classmethod
    def open(
        cls, policy: OwnerPolicy, name: str | None = None, path: Path | None = None, *, new_key: bool = False
    ) -> OwnedData:
        """Open the ledger of a data set; it is made if there is none.

        Parameters
        ----------
        policy : OwnerPolicy
            Of its owner.
        name : str, optional
            In the policy; not needed where the policy or ``path`` leaves no choice.
        path : Path, optional
            Its file or folder; by default what the policy says.
        new_key : bool
            Whether to make a new key for the ledger where the old one is lost.

        Raises
        ------
        SpecError
            If the policy has no such data set.
        DataError
            If the ledger is there without its key, or the key without its ledger.
        StorageError
            If the ledger cannot be opened, is another file or is of another version.
        """
        name = policy.data_set(name, path)
        place = policy.ledger_path
        is_new = not place.exists()
        file, key = open_with_key(place, renew=new_key)
        try:
            budget = budget_of(policy.data[name], file, name)
        except BaseException:
            file.close()
            raise
        return cls(policy, name, path or policy.data_path(name), budget, file, key, is_new)

    def check(self, split: Split | None = None, *, used: int | None = None) -> list[str]:
        """Compare the data with what they were; before anything is released from them.

        Parameters
        ----------
        split : Split, optional
            Their examples, for data that are in no file.
        used : int, optional
            How many of them are used, the first ones: examples that came after all that was accepted, and are not among
            these, are no change. By default all.

        Returns
        -------
        list of str
            `warnings`.

        Raises
        ------
        DataError
            If the data changed, are known under another name, or cannot be read.
        """
        with told_of_names(self.name, self._command):
            found = self.file.contents.check(self.name, self._known(self._content(split), used), _now())
        if found is not None:
            raise DataError(
                f"data set {self.name!r} changed: {found}; {self._command} accepts it, and keeps everything that was "
                "spent"
            )
        self._checked = True
        return self.warnings()

    def update(
        self, split: Split | None = None, *, renamed_from: str | None = None, adds_up: bool = False
    ) -> Difference | None:
        """Accept the data as they are now; how they differ from what they were, if they do. What was spent stays.

        Parameters
        ----------
        split : Split, optional
            Their examples, for data that are in no file.
        renamed_from : str, optional
            The name that they had before: all that was spent under it is spent under this one. If the process is killed
            after that, they have to be accepted again, and nothing more.
        adds_up : bool
            Whether examples that other names have may be accepted: what all of them spend then adds up.

        Raises
        ------
        SpecError
            If the ledger does not know the name before, the policy still has it, or the ledger knows this one.
        DataError
            If the data cannot be read, or are known under another name.
        """
        content = self._content(split)
        if renamed_from is not None:
            take_over(self.policy, self.file, renamed_from, self.name)
            self.budget = budget_of(self.policy.data[self.name], self.file, self.name)
        with told_of_names(self.name, self._command):
            return self.file.contents.accept(self.name, content, _now(), adds_up=adds_up)

    @property
    def _command(self) -> str:
        return update_command(self.policy, self.name, self.path)

    def warnings(self) -> list[str]:
        """Say what the owner should know, one line each.

        Examples that another name has too, a budget that says little, and a ledger that is new.
        """
        place, rule = self.policy.ledger_path, self.policy.data[self.name]
        accepted = self.file.contents.history(self.name)
        weak = remarks(rule.epsilon, rule.delta, accepted[-1].examples if accepted else None, "the data set")
        found = [f"data set {self.name!r}: {line}" for line in overlap_lines(self.file, self.name)]
        found += [f"data set {self.name!r}: {line}" for line in weak]
        if self._is_new:
            found.append(f"a new ledger, {place}, with its key {key_path(place)}: nothing counts as spent; keep both")
        return found

    def ledger(self, run: str, node: str, plan: Counts, *, proved: bool = True, enforced: bool = True) -> DurableLedger:
        """The ledger of a node of a run, with the whole plan in it; of a run that goes on, with what it charged.

        Parameters
        ----------
        run, node : str
            Names.
        plan : mapping of ReleaseKind to int
            The most releases of each kind, fixed from public information.
        proved : bool
            Whether the run's guarantee has an epsilon. Without one the run spends everything, whatever noise its kinds
            of releases have: what that noise is added to may move further than they say.
        enforced : bool
            Whether the node can make no other releases. Otherwise the run spends everything, however few are planned.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left.
        SpecError
            If the run was opened with another plan, or the policy's order, relation or series changed.
        AccountingError
            If nothing is proved about a kind in the plan.
        StorageError
            If it cannot be written.
        """
        released = {kind: number for kind, number in checked_counts(plan).items() if number}
        filters = self.budget if isinstance(self.budget, RenyiFilter) else self.budget.renyi
        divergence = filters.spent(released) if enforced and (proved or not released) else math.inf
        known = None if divergence < math.inf else divergence  # the ledger finds all but this by itself
        return self.file.open(node, *self._account(run, node, divergence), plan, known)

    def unit_share(
        self,
        run: str,
        node: str,
        divergence: float,
        noise: AgentNoise | None = None,
        sums: int = 0,
        *,
        terms: bytes = b"",
        entry: Entry = NOTHING_PROVED,
    ) -> DurableLawLedger:
        """The ledger of an agent of a unit, with all that the run will reveal of its data in it.

        Parameters
        ----------
        run, node : str
            Names; the node is the agent.
        divergence : float
            At ``budget.order``; see `gossamer.sides.plan.SidePlan.divergence`.
        noise : AgentNoise, optional
            What the agent adds to each of its updates.
        sums : int
            In how many masked sums.
        terms : bytes
            All that the divergence rests on. What its server releases of an agent's data is counted by the server, so
            that nothing here would tell another run of the same name from the one that was charged.
        entry : Entry
            The same as Gaussian differential privacy (`gossamer.sides.plan.SidePlan.entry`).

        Raises
        ------
        BudgetSpent, SpecError, StorageError
            As for `ledger`.
        """
        return self.file.open_agent(node, *self._account(run, node, divergence), divergence, noise, sums, terms, entry)

    def once_in(self, run: str, node: str) -> AbstractContextManager[None]:
        """Entering of a plan inside, of a run that no other node is in with any of these examples."""
        return once_in_a_run(self.file, self.name, run, node)

    def close(self) -> None:
        """Give the ledger back."""
        self.file.close()

    def _account(self, run: str, node: str, divergence: float) -> tuple[str, str, Budget]:
        assert self._checked, "data are compared with what they were before anything is released from them"
        # Each node of a run pays for its own plan. Names of nodes have no stroke in them.
        budget = admitting(self.budget)
        if self.policy.without_privacy and not divergence < math.inf:
            budget = replace(budget, epsilon=math.inf)
        return self.name, f"{run}/{node}", budget

    def _known(self, content: Content, used: int | None) -> Content:
        """The part of a content that was accepted before, if others only came after it and it has all that are used."""
        accepted = self.file.contents.history(self.name)
        if used is None or not accepted or not used <= accepted[-1].examples < len(content.hashes):
            return content
        before = hashed(content.hashes[: accepted[-1].examples], self._key)
        return before if before.fingerprint == accepted[-1].fingerprint else content

    def _content(self, split: Split | None) -> Content:
        if self.path is not None:
            return content_of(examples_at(self.path), self._key)
        if split is None:
            raise DataError(f"data set {self.name!r}: no file is known; give --data, or its path in the policy")
        return content_of(examples_of(split), self._key)


def budget_of(rule: DataRule, file: LedgerFile | None, name: str) -> Budget:
    """The filter of a data set: with the order that was fixed when it was first used, and of the kind that it had then.

    Raises
    ------
    SpecError
        If it was first used with other series.
    """
    known = None if file is None else file.filter_of(name)
    order = rule.order or (known[0] if known else widest_order_of(rule.epsilon, rule.delta, rule.set_aside))
    budget = EitherFilter(rule.epsilon, rule.delta, rule.relation, order, rule.set_aside)
    return budget if file is None else file.kept_by(name, budget)


def admitting(budget: Budget) -> Budget:
    """The filter that decides what is released: a data set's, less what late answers may take of its delta."""
    return replace(budget, delta=without_late(budget.delta))


def overlap_lines(file: LedgerFile, name: str) -> list[str]:
    """Say what a data set has in common with others, one line each."""
    return [
        f"{counted(count, 'example is', 'examples are', form=',')} also in {other!r}; what both spend adds up for them"
        for other, count in file.contents.overlaps(name).items()
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
