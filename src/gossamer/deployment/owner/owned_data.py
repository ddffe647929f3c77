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

import hashlib
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gossamer.deployment.owner.fingerprints import KEY_BYTES, content_of, examples_at, hashed
from gossamer.deployment.owner.policy import DataRule, OwnerPolicy
from gossamer.errors import DataError, SpecError, counted, failing_as
from gossamer.files import write_own
from gossamer.keys.private_files import read_private
from gossamer.privacy.accounting.filters import (
    NOTHING_PROVED,
    EitherFilter,
    FilterEntry,
    FilterTotal,
    RunSeries,
    widest_order_of,
)
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.mechanisms import without_late
from gossamer.runtimes.storage.contents import Accepted, Content, Difference, KnownElsewhere, rename
from gossamer.runtimes.storage.file import NotWritable
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile, Spent
from gossamer.runtimes.storage.receipts import Witnessed
from gossamer.runtimes.storage.seal import newest_of

# The secret beside a ledger: the key of its hashes, and a witness that the ledger was there.
#
# The key is made with the ledger, is kept in ``<ledger>.key`` for its owner's eyes only, and is never sent. The ledger
# has a mark of it. A ledger and a key that do not belong together, or one without the other, are refused: nobody gets a
# fresh budget by losing a file.

_PATIENCE = 100
"""How often one of several processes that make a key at the same time may be the one that is late."""


def key_path(ledger: Path) -> Path:
    """Return the place of a ledger's key."""
    return ledger.with_name(f"{ledger.name}.key")


def require_ledger(path: Path) -> bool:
    """Whether there is a ledger at ``path``.

    Raises
    ------
    DataError
        If there is none, but its key, or the file that says how new it is.
    """
    if path.exists():
        return True
    for left in (key_path(path), newest_of(path)):
        if left.exists():
            raise DataError(
                f"{left} is there, but its ledger {path} is not, so what the data have spent is not known; bring the "
                "ledger and its key back from a copy (deleting this, too, would forget everything that was ever spent)"
            )
    return False


def to_be_read(path: Path) -> LedgerFile:
    """Open a ledger that is there, with its key if that is there too; its seal can be compared without.

    Raises
    ------
    DataError
        If the two do not belong together.
    StorageError
        If one cannot be read, or is not what was written.
    """
    return open_with_key(path)[0] if key_path(path).exists() else LedgerFile(path)


def open_with_key(path: Path, *, renew: bool = False) -> tuple[LedgerFile, bytes]:
    """A ledger and its key; both are made if there is neither.

    Parameters
    ----------
    path : Path
        Path of the ledger.
    renew : bool
        Whether to make a new key where the old one is lost. All that was spent stays; hashes are forgotten.

    Raises
    ------
    DataError
        If one of the two is there without the other, or they do not belong together.
    StorageError
        If one cannot be read or made.
    """
    there = require_ledger(path)
    if not there and not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} for the ledger; make it, or correct the policy's ledger")
    file = LedgerFile(path)
    try:
        return file, _key(file, path, renew)
    except BaseException:
        file.close()
        raise


def back_up(ledger: Path, copy: Path) -> None:
    """Copy a ledger and its key to ``copy`` and the key beside it; nodes may go on charging meanwhile.

    Raises
    ------
    DataError
        If there is no ledger, or not its key, or the copy would take the place of something.
    StorageError
        If the ledger is not what was written, or the copy cannot be.
    """
    if not require_ledger(ledger):
        raise DataError(f"there is no ledger at {ledger}, so nothing was spent, and there is nothing to copy")
    if key_path(copy).exists():
        raise DataError(f"{key_path(copy)} exists already; name another file for the copy")
    file, key = open_with_key(ledger)
    with closing(file):
        file.back_up(copy)
    _write(key_path(copy), key)
    to_be_read(copy).close()  # as who puts it back will open it


def _key(file: LedgerFile, ledger: Path, renew: bool) -> bytes:
    path = key_path(ledger)
    for _ in range(_PATIENCE):
        if path.exists() or not (renew or file.contents.mark is None or file.contents.untouched):
            break
        _make(file, path)
    if not path.exists():
        raise DataError(
            f"{ledger} is there, but its key {path} is not: what was spent is known, whether the data changed is not; "
            "bring the key back from a copy, or accept the data as they are with gossamer data update --new-key, which "
            "keeps all that was spent"
        )
    key = _read(path)
    if file.contents.mark != _mark(key):
        raise DataError(
            f"{path} is not the key of {ledger}, which was replaced or emptied; bring both back from one copy"
        )
    file.unlock(key)
    return key


def _make(file: LedgerFile, path: Path) -> None:
    """A new key, unless another process makes one.

    The mark is written before the key: whatever is killed in between leaves a mark that nothing depends on. Of two that
    make one at the same time the last mark counts.
    """
    fresh = os.urandom(KEY_BYTES)
    with file.transaction():
        if not path.exists():
            file.contents.renew(_mark(fresh))
            file.seal_with(fresh)
    with file.transaction():
        if file.contents.mark == _mark(fresh):
            _write(path, fresh)


def _mark(key: bytes) -> bytes:
    return hashlib.blake2b(b"", digest_size=16, key=key, person=b"mark").digest()


def _write(path: Path, key: bytes) -> None:
    """A new file, whole or not there."""
    remedy = "; make its folder writable, or make room"
    with failing_as(NotWritable, f"{path}: the key of the ledger cannot be written: ", remedy):
        write_own(path, f"{key.hex()}\n", durable=True)


def _read(path: Path) -> bytes:
    content = read_private(path, what="key of the ledger", known="make a new one (gossamer data update --new-key)")
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise DataError(f"{path}: expected {2 * KEY_BYTES} hexadecimal digits, the key of the ledger, found others")
    return key


# Data that the ledger knows under another name: what the owner is told, and what may be said to that.


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
        The file or folder; None where nobody has said it.
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

    def check(self, used: int | None = None) -> list[str]:
        """Compare the data with what they were; before anything is released from them.

        Parameters
        ----------
        used : int, optional
            Number of examples that are used, the first ones: others that came after all that was accepted are no
            change. By default all.

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
            found = self.file.contents.compare(self.name, self._known(self._content(), used), _now(), replaces=False)
        if found is not None:
            raise DataError(
                f"data set {self.name!r} changed: {found}; {self._command} accepts it, and keeps everything that was "
                "spent"
            )
        self._checked = True
        return self.warnings()

    def update(self, renamed_from: str | None = None, adds_up: bool = False) -> Difference | None:
        """Accept the data as they are now; how they differ from what they were, if they do. What was spent stays.

        Parameters
        ----------
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
        content = self._content()
        if renamed_from is not None:
            if renamed_from in self.policy.data:
                where = self.policy.place(("data", renamed_from))
                raise SpecError(
                    f"{where}: data that were renamed have one name; take {renamed_from!r} out of the policy"
                )
            rename(self.file.contents.file, renamed_from, self.name)
            self.budget = budget_of(self.policy.data[self.name], self.file, self.name)
        with told_of_names(self.name, self._command):
            return self.file.contents.compare(self.name, content, _now(), replaces=True, adds_up=adds_up)

    @property
    def _command(self) -> str:
        """The command that accepts the data set as it is."""
        where = "" if self.path is None else f" --data {shlex.quote(str(self.path))}"
        return f"gossamer data update {shlex.quote(str(self.policy.path))}{where} --name {shlex.quote(self.name)}"

    def warnings(self) -> list[str]:
        """Say what the owner should know, one line each.

        Examples that another name has too, a budget that says little, and a ledger that is new.
        """
        place, rule = self.policy.ledger_path, self.policy.data[self.name]
        accepted = self.file.contents.history(self.name)
        weak = remarks(rule.epsilon, rule.delta, accepted[-1].examples if accepted else None, "the data set")
        both = self.file.contents.overlaps(self.name).items()
        shares = [(other, counted(count, "example is", "examples are", form=",")) for other, count in both]
        shared = [f"{count} also in {other!r}; what both spend adds up for them" for other, count in shares]
        found = [f"data set {self.name!r}: {line}" for line in [*shared, *weak]]
        if self._is_new:
            found.append(f"a new ledger, {place}, with its key {key_path(place)}: nothing counts as spent; keep both")
        return found

    def ledger(
        self,
        run: str,
        node: str,
        plan: Mapping[Any, int],
        divergence: float | None = None,
        entry: FilterEntry = NOTHING_PROVED,
        terms: bytes | None = None,
    ) -> DurableLedger:
        """The ledger of a node of a run, with the whole plan in it; of a run that goes on, with what it charged.

        Parameters
        ----------
        run, node : str
            Names.
        plan : mapping of ReleaseKind or AgentNoise to int
            The most releases of each kind, fixed from public information; of an agent of a unit, the masked sums that
            it adds noise to.
        divergence : float, optional
            Divergence at ``budget.order`` of all that the run reveals; by default that of the plan's kinds. Infinite
            where the run has no epsilon, whatever noise its kinds have, since what that is added to may move further
            than they say; or where nothing holds the node to its plan, however few are planned. Then everything is
            spent.
        entry : FilterEntry
            The same as Gaussian differential privacy (`gossamer.sides.plan.SidePlan.revealed`), where the divergence is
            given.
        terms : bytes, optional
            All that the divergence of an agent rests on. What its server releases of its data is counted by the server,
            so that nothing here would tell another run of the same name from the one that was charged.

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
        assert self._checked, "data are compared with what they were before anything is released from them"
        if divergence is None and not self.budget.renyi.spent(plan) < math.inf:
            divergence = math.inf  # the ledger finds all but this by itself
        budget = admitting(self.budget)
        if self.policy.without_privacy and divergence == math.inf:
            budget = replace(budget, epsilon=math.inf)
        # Each node of a run pays for its own plan. Names of nodes have no stroke in them.
        return self.file.open(node, self.name, f"{run}/{node}", budget, plan, divergence, entry, terms)

    @contextmanager
    def once_in(self, run: str, node: str) -> Iterator[None]:
        """Refuse the data to ``node``, if examples of them are in ``run`` at another node; a plan is entered inside.

        That is where the noise that counts is of a sum with other parties in it. A party's plan is charged for what its
        own data move a sum by. The same data at two parties of one run move the sum twice as far, under the same noise:
        mu doubles, so the squared loss is four times as large, and two charges are only twice. By noise that each adds
        to what it sends itself they do add up. Nor may a party have other data in one run: it would mask both alike, so
        that their difference is seen.

        Raises
        ------
        DataError
            If they are: before anything is entered, or after, where two processes entered theirs at the same time.
        """
        self._check_once(run, node)
        yield
        self._check_once(run, node)

    def _check_once(self, run: str, node: str) -> None:
        own, overlaps = f"{run}/{node}", self.file.contents.overlaps(self.name)
        for name in self.file.data_sets:
            for other in (spent.run for spent in self.file.runs(name) if spent.run.startswith(f"{run}/")):
                if (name == self.name) != (other == own) or name in overlaps:
                    who = self.name if name in overlaps else name
                    raise DataError(
                        f"{node}: examples of data set {who!r} are in this run already, at "
                        f"{other.partition('/')[2]}, and what is charged holds for data at one party of a sum, whose "
                        "noise parties share or a server adds; take part with one of them, or with data that no other "
                        "has"
                    )

    def close(self) -> None:
        """Give the ledger back."""
        self.file.close()

    def _known(self, content: Content, used: int | None) -> Content:
        """The part of a content that was accepted before, if others only came after it and it has all that are used."""
        accepted = self.file.contents.history(self.name)
        if used is None or not accepted or not used <= accepted[-1].examples < len(content.hashes):
            return content
        before = hashed(content.hashes[: accepted[-1].examples], self._key)
        return before if before.fingerprint == accepted[-1].fingerprint else content

    def _content(self) -> Content:
        if self.path is None:
            raise DataError(f"data set {self.name!r}: no file is known; give --data, or its path in the policy")
        return content_of(examples_at(self.path), self._key)


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# Spending of an owner's data sets so far, as data: what ``gossamer data show`` prints.


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
            "runs": [
                {**run._asdict(), "divergence": _finite(run.divergence), "mu": _finite(run.mu)} for run in self.runs
            ],
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
    with closing(to_be_read(place) if require_ledger(place) else LedgerFile(":memory:")) as file:
        names = dict.fromkeys([*policy.data, *file.data_sets])
        return [spending_of(policy, file, name) for name in names]


def spending_of(policy: OwnerPolicy, file: LedgerFile, name: str) -> Spending:
    """Return the spending of one data set, by a ledger that is open."""
    rule, runs = policy.data.get(name), file.runs(name)
    budget = None if rule is None else budget_of(rule, file, name)
    known = file.contents.history(name), file.contents.overlaps(name)
    series = file.series(name) or dict.fromkeys(() if rule is None else rule.set_aside, 0)
    witnessed = [one for run in runs if (one := file.witnessed(run.run)) is not None]
    return Spending(name, budget, file.spent(name), file.total(name), runs, *known, series, witnessed)


def _allowed(budget: EitherFilter) -> dict[str, object]:
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": budget.relation.value,
        "order": budget.order,
        "filters": ["renyi", "gaussian"],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
