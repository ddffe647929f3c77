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
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gossamer.data.examples import Split
from gossamer.deployment.owner.fingerprints import content_of, examples_at, examples_of, hashed
from gossamer.deployment.owner.ledger_key import key_path, open_with_key
from gossamer.deployment.owner.policy import DataRule, OwnerPolicy
from gossamer.errors import DataError, SpecError, counted
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, FilterEntry, widest_order_of
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.releases import Counts, checked_counts
from gossamer.privacy.sampling import without_late
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.runtimes.storage.contents import Content, Difference, KnownElsewhere, rename
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile

# Data that are in a run once only: where the noise that counts is that of a sum with other parties in it.
#
# A party's plan is charged for what its own data move a sum by. The same data at two parties of one run move the sum
# twice as far, under the same noise: mu doubles, so the squared loss is four times as large, and two charges are only
# twice. By noise that each adds to what it sends itself they do add up.


@contextmanager
def once_in_a_run(file: LedgerFile, data_set: str, run: str, node: str) -> Iterator[None]:
    """Refuse ``data_set`` to ``node``, if examples of it are in ``run`` at another node; the plan is entered inside.

    Raises
    ------
    DataError
        If they are: before anything is entered, or after, where two processes entered theirs at the same time.
    """
    _check(file, data_set, run, node)
    yield
    _check(file, data_set, run, node)


def _check(file: LedgerFile, data_set: str, run: str, node: str) -> None:
    for name in (data_set, *file.contents.overlaps(data_set)):
        others = [spent.run for spent in file.runs(name) if spent.run.startswith(f"{run}/")]
        for other in others:
            if (name, other) != (data_set, f"{run}/{node}"):
                raise DataError(
                    f"{node}: examples of data set {data_set!r} are in this run already, at {other.partition('/')[2]}, "
                    "and what is charged holds for data at one party of a sum, whose noise parties share or a server "
                    "adds; take part with one of them, or with data that no other has"
                )


# Data that the ledger knows under another name: what the owner is told, and what may be said to that.


def update_command(policy: OwnerPolicy, name: str, path: Path | None) -> str:
    """The command that accepts a data set as it is."""
    where = "" if path is None else f" --data {shlex.quote(str(path))}"
    return f"gossamer data update {shlex.quote(str(policy.path))}{where} --name {shlex.quote(name)}"


@contextmanager
def told_of_names(name: str, command: str) -> Iterator[None]:
    """Content of data set ``name`` that is known under others, in one line that says what to do.

    Raises
    ------
    DataError
        Instead of `KnownElsewhere`.
    """
    try:
        yield
    except KnownElsewhere as found:
        raise DataError(_line(found, name, command)) from None


def _line(found: KnownElsewhere, name: str, command: str) -> str:
    shared = found.shared.items()
    known = [f"{count:,} of its {found.examples:,} examples are known as {other!r}" for other, count in shared]
    if found.forgotten:
        listed = ", ".join(map(repr, found.forgotten))
        known.append(f"it may be {listed}, whose hashes were forgotten with their key")
    if found.begun:
        return (
            f"data set {name!r}: {' and '.join(known)}, and another name is no fresh budget; {command} --adds-up "
            "accepts it, if it is no mistake: for examples in common what both names spend adds up"
        )
    old = next(iter((*found.shared, *found.forgotten)))
    return (
        f"data set {name!r}: {' and '.join(known)}, and a new name is no fresh budget; {command} "
        f"--renamed-from {shlex.quote(old)} takes over what was spent, if it is the same data (with {old!r} no longer "
        "in the policy), and --adds-up in its place accepts other data: for examples in common what both names spend "
        "adds up"
    )


def take_over(policy: OwnerPolicy, file: LedgerFile, old: str, new: str) -> None:
    """Keep under ``new`` what the ledger keeps under ``old``.

    Raises
    ------
    SpecError
        If the policy still has the old name, or the ledger does not know it, or knows the new one.
    """
    if old in policy.data:
        raise SpecError(
            f"{policy.place(('data', old))}: data that were renamed have one name; take {old!r} out of the policy"
        )
    rename(file.contents.file, old, new)


@dataclass
class OwnedData:
    """One data set of an owner; made by `open`.

    Attributes
    ----------
    policy : OwnerPolicy
        Policy of its owner.
    name : str
        Name in the policy.
    path : Path or None
        The file or folder; None for data that are in no file.
    budget : EitherFilter
        Budget for everything ever released from it; of a Renyi filter alone if it was begun when there was no other.
    file : LedgerFile
        File with what all data sets of the owner have spent.
    """

    policy: OwnerPolicy
    name: str
    path: Path | None
    budget: EitherFilter
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
            Policy of its owner.
        name : str, optional
            Name in the policy; not needed where the policy or ``path`` leaves no choice.
        path : Path, optional
            The file or folder; by default what the policy says.
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
            The examples, for data that are in no file.
        used : int, optional
            Number of those that are used, the first ones: examples that came after all that was accepted, and are not
            among these, are no change. By default all.

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
            The examples, for data that are in no file.
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
        divergence = self.budget.renyi.spent(released) if enforced and (proved or not released) else math.inf
        known = None if divergence < math.inf else divergence  # the ledger finds all but this by itself
        return self.file.open(node, *self._account(run, node, divergence), plan, known)

    def unit_share(
        self,
        run: str,
        node: str,
        divergence: float,
        sums: Mapping[AgentNoise, int] | None = None,
        terms: bytes = b"",
        entry: FilterEntry = NOTHING_PROVED,
    ) -> DurableLedger:
        """The ledger of an agent of a unit, with all that the run will reveal of its data in it.

        Parameters
        ----------
        run, node : str
            Names; the node is the agent.
        divergence : float
            Divergence at ``budget.order``; see `gossamer.sides.plan.SidePlan.revealed`.
        sums : mapping of AgentNoise to int, optional
            Number of masked sums, by the noise that the agent adds to each of its updates.
        terms : bytes
            All that the divergence rests on. What its server releases of an agent's data is counted by the server, so
            that nothing here would tell another run of the same name from the one that was charged.
        entry : FilterEntry
            The same as Gaussian differential privacy (`gossamer.sides.plan.SidePlan.revealed`).

        Raises
        ------
        BudgetSpent, SpecError, StorageError
            As for `ledger`.
        """
        return self.file.open(node, *self._account(run, node, divergence), sums or {}, divergence, entry, terms)

    def once_in(self, run: str, node: str) -> AbstractContextManager[None]:
        """Entering of a plan inside, of a run that no other node is in with any of these examples."""
        return once_in_a_run(self.file, self.name, run, node)

    def close(self) -> None:
        """Give the ledger back."""
        self.file.close()

    def _account(self, run: str, node: str, divergence: float) -> tuple[str, str, EitherFilter]:
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


def budget_of(rule: DataRule, file: LedgerFile | None, name: str) -> EitherFilter:
    """The filter of a data set, with the order that was fixed when it was first used.

    Raises
    ------
    SpecError
        If it was first used with other series.
    """
    known = None if file is None else file.filter_of(name)
    order = rule.order or (known[0] if known else widest_order_of(rule.epsilon, rule.delta, rule.set_aside))
    budget = EitherFilter(rule.epsilon, rule.delta, rule.relation, order, rule.set_aside)
    if file is not None:
        file.check_filter(name, budget)
    return budget


def admitting(budget: EitherFilter) -> EitherFilter:
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
