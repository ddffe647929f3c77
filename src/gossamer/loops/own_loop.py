"""The ledger of a data owner, charged by a training loop of the owner's own.

    plan = gs.Releases(1000, noise_multiplier=1.1, sampling_rate=0.01)
    with gs.LoopLedger("policy.yaml", "mortality", plan, clip=1.0) as ledger:
        for batch in batches:
            ledger.charge(noise_multiplier=1.1, sampling_rate=0.01)  # on disk when it returns
            ...  # gradients, each clipped to 1.0; their sum; noise of standard deviation 1.1
        ledger.write("mortality")  # receipts.jsonl and guarantee.json, for gossamer verify

It is the ledger that the policy names, in which runs of federations are charged, too, and `gossamer data show` lists
what both have spent. A loop has a plan as they do, which enters the budget whole: what is proved is that of the plan,
so it does not matter why a loop stops early.

A charge says a noise multiplier and a rate. It is one of the planned releases with no more noise and no lower rate,
which reveals no less (docs/decisions/budgets-over-runs.md, 5). Whatever no planned release covers is refused.

**What is proved.** That so many releases were charged, each before it counted, and what they reveal if they are what
was charged. Whether the loop clipped, drew batches by coins and added the noise is its owner's to know: no ledger sees.
"""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from gossamer.errors import (
    BudgetSpent,
    DataError,
    RunWarning,
    SpecError,
    failing_as,
    real_number,
    require_counts,
    require_positive,
)
from gossamer.files import make_own_folder, read_text, write_own
from gossamer.privacy import guarantee_card
from gossamer.privacy.accounting import accountants
from gossamer.privacy.guarantees import ALL_MODELS, EXAMPLE, Guarantee, remarked, rounded_up
from gossamer.privacy.mechanisms import Gaussian, Poisson, ReleaseKind, added
from gossamer.protocol.encoding import encode
from gossamer.sides.guarantees import ROUNDING_TOO
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import Samples
from gossamer.sides.receipts import FILE, PURPOSE
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.deployment.owner.policy import OwnerPolicy

ASSUMPTIONS = (
    "the ledger proves what was charged, not what the loop did: that each batch was drawn from these data by a coin "
    "for each example, each example's part clipped, and fresh Gaussian noise that nobody else knows added to the sum, "
    "all as charged, and that nothing else was released",
    "plan, rates, clip, number of steps and number of examples are public constants, and adding or removing an example "
    "is read as blanking it",
    "each person has one example",
    "this run alone: what other runs on the same data release adds up",
    ROUNDING_TOO,
)

_LEAST = 0.01  # noise multiplier, as of `gossamer account`; of far smaller ones no epsilon is a number
_AHEAD = 20  # releases that are charged at once, of so many times as many


@dataclass(frozen=True)
class Releases:
    """Releases of one kind in the plan of a loop: sums of clipped vectors, with Gaussian noise.

    Parameters
    ----------
    number : int
        Most releases.
    noise_multiplier : float
        Standard deviation of the noise on the sum, over the clip, from 0.01 on; the least of them.
    sampling_rate : float
        Probability with which each example is in a batch, by a coin of its own; the largest of them. At 1, all are.

    Raises
    ------
    SpecError
        If one of them is out of its range.
    """

    number: int
    noise_multiplier: float
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        require_counts(number=self.number)
        # Receipts write a law down, in which 4 and 4.0 would be two.
        object.__setattr__(self, "number", int(self.number))
        object.__setattr__(self, "noise_multiplier", real_number(self.noise_multiplier))
        object.__setattr__(self, "sampling_rate", real_number(self.sampling_rate))
        if not self.noise_multiplier >= _LEAST:
            raise SpecError(f"noise_multiplier: expected {_LEAST} or more, found {self.noise_multiplier:g}")
        _ = self.kind

    @cached_property
    def kind(self) -> ReleaseKind:
        """The kind that each is charged as."""
        return ReleaseKind(Gaussian(1.0, self.noise_multiplier), Poisson(self.sampling_rate), 1)

    def covers(self, other: Releases) -> bool:
        """Whether each of ``other`` reveals no more than each of these."""
        return other.noise_multiplier >= self.noise_multiplier and other.sampling_rate <= self.sampling_rate

    def __str__(self) -> str:
        return f"noise multiplier {self.noise_multiplier:.10g} at rate {self.sampling_rate:.10g}"


class LoopLedger:
    """Ledger that a training loop charges before each noisy release; open until `close`, or the end of a ``with``.

    The plan enters the budget when it is opened. Opened again under the same name, after a crash for example, it goes
    on with what was charged.

    Parameters
    ----------
    policy : str or Path
        The owner's policy, which has the data set, its budget and the place of the ledger.
    run : str
        Name of the training. Another training, on the same data too, has another name.
    plan : Releases or sequence of Releases
        All that it may release, fixed before the first.
    clip : float
        Length to which each example's vector is limited before the sum; noise is in proportion to it.
    data : str, optional
        Name of the data set in the policy, if that has several.
    ahead : int, optional
        Number of releases that are charged at once, since a disk takes as long for many as for one. Those that a
        process did not come to use are lost, and stay counted. By default a twentieth of those of a kind that are
        planned, 20 at most.
    identity : str or Path, optional
        File of the owner's private key, which signs receipts. Without it whoever has them can write others.

    Raises
    ------
    BudgetSpent
        If the plan does not fit into what is left of the budget; nothing is written.
    SpecError
        If the policy does not allow it, or the run was opened with another plan, clip or identity.
    DataError
        If the data changed, or cannot be read.
    StorageError
        If the ledger cannot be written.
    """

    def __init__(
        self,
        policy: str | Path,
        run: str,
        plan: Releases | Sequence[Releases],
        *,
        clip: float = 1.0,
        data: str | None = None,
        ahead: int | None = None,
        identity: str | Path | None = None,
    ) -> None:
        # Policies and keys need cryptography, which is optional, and bring what federations send with them.
        from gossamer.deployment.owner.owned_data import OwnedData
        from gossamer.deployment.owner.policy import read_policy
        from gossamer.keys.identity import Identity

        require_positive(clip=clip)
        require_counts(ahead=1 if ahead is None else ahead)
        self.run, self.clip = run, float(clip)
        self._plan = tuple(plan) if isinstance(plan, Sequence) else (plan,)
        if not all(isinstance(one, Releases) for one in self._plan):
            raise SpecError(f"a loop's plan is gs.Releases(...) or a list of them, found {plan!r}")
        self._kinds: dict[ReleaseKind, int] = {}
        for one in self._plan:
            self._kinds = added(self._kinds, {one.kind: one.number})
        rules = read_policy(policy)
        self._check(rules)
        self._identity = None if identity is None else Identity.load(identity)
        self.at_once, self._ahead = ahead, Counter[ReleaseKind]()
        self._process, self._lock = os.getpid(), Lock()
        self._owned = OwnedData.open(rules, data)
        try:
            self._enter()
        except BaseException:
            self.close()
            raise

    def _check(self, rules: OwnerPolicy) -> None:
        """Refuse what no ledger is for, or the owner's policy refuses of single releases."""
        if not (
            isinstance(self.run, str) and self.run.isprintable() and "/" not in self.run and 0 < len(self.run) < 101
        ):
            raise SpecError(f"a run's name has 1 to 100 printable characters and no stroke, found {self.run!r}")
        if not self._plan:
            raise SpecError("a loop's plan has one or more releases, found none; give gs.Releases(...)")
        least, largest = rules.smallest_noise_multiplier, rules.largest_clip
        for one in self._plan:
            if one.noise_multiplier < least:
                where = rules.place(("smallest_noise_multiplier",))
                raise SpecError(f"{where}: the plan has {one}; allowed: noise multipliers of {least:g} and more")
        if largest is not None and self.clip > largest:
            raise SpecError(
                f"{rules.place(('largest_clip',))}: found a clip of {self.clip:g}; allowed: up to {largest:g}"
            )

    def _enter(self) -> None:
        owned, key = self._owned, None if self._identity is None else self._identity.public_key.raw.hex()
        for line in owned.check():
            warnings.warn(line, RunWarning, stacklevel=3)
        # Receipts carry these words, and so does what is printed of them: nobody else watched the loop.
        self._name = f"{owned.name} (as the owner's own loop charged)"
        self._account = owned.ledger(self.run, owned.name, self._kinds, terms=encode((self.clip, key or "")))
        self._receipts = owned.file.receipts(self.run, owned.name)
        self._receipts.begin({self._name: Samples(self._kinds, observer=ALL_MODELS)}, key)

    @property
    def releases(self) -> int:
        """Number of releases that were charged and used, or lost by a process that ended."""
        return self._account.releases - self._ahead.total()

    def charge(self, noise_multiplier: float, sampling_rate: float = 1.0) -> None:
        """Charge one release; it is on disk when this returns. Only then may its noise be drawn.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise on the sum, over the clip.
        sampling_rate : float
            Probability with which each example is in the batch.

        Raises
        ------
        BudgetSpent
            If no planned release that is left covers it; nothing is written.
        SpecError
            If the noise multiplier or the rate is out of its range, or another process opened the ledger.
        StorageError
            If it could not be written. Nothing may be drawn for it, and the ledger is closed.
        """
        asked = Releases(1, noise_multiplier, sampling_rate)
        with self._alone():
            covering = [one for one in self._plan if one.covers(asked) and self._left(one.kind)]
            if not covering:
                raise BudgetSpent(self._refusal(asked))
            kind = max(covering, key=lambda one: (one.noise_multiplier, -one.sampling_rate)).kind
            if not self._ahead[kind]:
                most = self.at_once or max(1, min(_AHEAD, self._kinds[kind] // _AHEAD))
                self._charge(kind, min(most, self._left(kind)))
            self._ahead[kind] -= 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have one thread at a time, and no forked copy: what was charged ahead would be used by both."""
        if os.getpid() != self._process:
            raise SpecError(
                f"run {self.run!r}: its ledger was opened by process {self._process}, found process {os.getpid()}, "
                "forked from it; charge in that one, or fork before a ledger is opened"
            )
        with self._lock:
            yield

    def _left(self, kind: ReleaseKind) -> int:
        return self._kinds[kind] - self._account.counts.get(kind, 0) + self._ahead[kind]

    def _charge(self, kind: ReleaseKind, number: int) -> None:
        try:
            with self._owned.file.transaction():
                for _ in range(number):
                    with self._receipts.together():
                        self._account.charge(kind)
                        self._receipts.add(self._name, self, Receipt(kind, (), self.clip))
        except BaseException:
            self.close()  # what this process remembers may be more than what is on disk
            raise
        self._ahead[kind] += number

    def _refusal(self, asked: Releases) -> str:
        counted = (f"{self._left(one.kind):,} of {self._kinds[one.kind]:,} with {one}" for one in self._plan)
        left = "; ".join(dict.fromkeys(counted))
        delta, relation = self._budget
        then = accountants.epsilon(added(self._kinds, {asked.kind: 1}), delta, relation).epsilon
        before, after = rounded_up(self.epsilon(delta)), rounded_up(then)
        return (
            f"run {self.run!r}: release refused: its plan has left {left}, and that covers none with {asked}; one "
            f"more would make the plan's epsilon {after} in place of {before} at delta {delta:g}; stop here, or plan "
            "another run (gossamer data show says what is left of the budget)"
        )

    @property
    def _budget(self) -> tuple[float, Any]:
        rule = self._owned.policy.data[self._owned.name]
        return rule.delta, rule.relation

    def epsilon(self, delta: float) -> float:
        """Epsilon of the whole plan at ``delta``, whenever the loop stops: what ``gossamer account`` says of it."""
        return accountants.epsilon(self._kinds, delta, self._budget[1]).epsilon

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the whole plan at the budget's delta, with all that it assumes of the loop."""
        delta, relation = self._budget
        found = accountants.epsilon(self._kinds, delta, relation)
        proof = f"{found.accountant} of {sum(self._kinds.values())} planned releases"
        evidence = partial(accountants.profile, ((self._kinds, 1),), relation)
        proved = (found.epsilon, delta, EXAMPLE, relation, ALL_MODELS, ASSUMPTIONS, proof)
        examples = self._owned.file.contents.history(self._owned.name)[-1].examples
        return remarked(Guarantee(*proved, rows_per_person=1, evidence=evidence), examples)

    def write(self, folder: str | Path) -> None:
        """Write ``receipts.jsonl`` and ``guarantee.json`` of all that was charged so far, for ``gossamer verify``.

        Raises
        ------
        DataError
            If they cannot be written, or there are those of another run.
        """
        place, signs = Path(folder), self._identity
        party = None if signs is None else self._name
        planned = {"own_loop": [{**kind.describe(), "most": number} for kind, number in self._kinds.items()]}
        card = guarantee_card.GuaranteeCard.of([self.guarantee], planned, __version__, run=self.run, party=party)
        sign = None if signs is None else partial(signs.sign, PURPOSE)
        with failing_as(DataError, f"{place}: receipts cannot be written: ", "; name another folder"):
            if (file := place / guarantee_card.FILE).exists():
                before = guarantee_card.read_guarantee_card(read_text(file, guarantee_card.LARGEST), file)
                if (there := before.guarantees[0].run) != self.run:
                    raise DataError(f"{place}: has receipts of run {there!r}; name another folder for {self.run!r}")
            with self._alone():
                text, head, signature = self._receipts.ended(sign, card.digest)
            ended = guarantee_card.ReceiptsHead(**head._asdict(), signature=signature)
            make_own_folder(place)
            write_own(place / FILE, text)
            write_own(file, card.ended(ended).to_json())

    def close(self) -> None:
        """Give the ledger back. Releases that were charged ahead and not used are lost."""
        if os.getpid() == self._process:  # a forked process has a connection that is not its own to end
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpacusAccountant:
    """An accountant of Opacus that charges an owner's ledger, in place of one that is lost with its process.

        engine = opacus.PrivacyEngine()
        engine.accountant = gs.OpacusAccountant(ledger)

    Opacus calls it in each step after it drew the noise, and before the model takes the step. So what is refused, or
    lost in between, has changed no model.

    A step on the gradients of k batches is charged as k releases, each with 1/sqrt(k) of the noise, of which it is the
    sum: an example may be in several of the batches, so that a rate k times as large would not cover it. Batches that
    are computed in parts (``BatchMemoryManager``) are one each.

    Parameters
    ----------
    ledger : LoopLedger
        Open ledger. A step with another ``max_grad_norm`` than its clip is refused.
    """

    def __init__(self, ledger: LoopLedger) -> None:
        self._ledger = ledger

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Charge a step; see `LoopLedger.charge`."""
        self._ledger.charge(noise_multiplier, sample_rate)

    def get_epsilon(self, delta: float) -> float:
        """Epsilon that is proved of the whole plan, whenever the loop stops; not of the steps so far."""
        return self._ledger.epsilon(delta)

    def __len__(self) -> int:
        return self._ledger.releases

    @classmethod
    def mechanism(cls) -> str:
        """Name of the accountant."""
        return "gossamer"

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Hook of an optimizer whose batches are drawn at ``sample_rate``."""

        def charged(optimizer: Any) -> None:
            if (clip := optimizer.max_grad_norm) != self._ledger.clip:
                raise SpecError(f"max_grad_norm: found {clip:g}; expected {self._ledger.clip:g}, the ledger's clip")
            batches = optimizer.accumulated_iterations
            for _ in range(batches):
                self.step(noise_multiplier=optimizer.noise_multiplier / math.sqrt(batches), sample_rate=sample_rate)

        return charged

    def state_dict(self, destination: Any = None) -> Any:
        """Nothing: what was charged is on disk, and a checkpoint cannot take it back."""
        return {} if destination is None else destination

    def load_state_dict(self, state_dict: Any) -> None:
        """Take nothing from a checkpoint."""
