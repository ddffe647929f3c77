"""Leak audits: a run and its neighbours with equal coins, which may differ in nothing outside of data sides.

A run on one data set is recorded. On a neighbouring one it is run again, with the same coins, and its data sides hand
over what those of the first run have released (`replayed_sides`). All that is outside is then a function of the same
bytes, so it has to be the same bytes (`OutsideView`), and each release at most its sensitivity away from the first.

That is the proof of a guarantee, step by step: neighbours move each release by no more than its noise is made for,
given all releases before it, and everything else is computed from releases. What it cannot see: whether coins have the
law that accounting takes them to have, what real clocks tell, and pairs that it did not try.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import EXAMPLE, Plan
from gossamer.attacks.leak import Neighbours, NoiseScale, neighbours, worst_cases
from gossamer.data.examples import Split
from gossamer.errors import RunWarning, SpecError, failing_as
from gossamer.experiment.audits.replayed_sides import (
    Leak,
    OutsideView,
    Recording,
    Replay,
    check_noise,
    heard,
    nothing,
    other_noise,
    same_coins,
)
from gossamer.experiment.preparation.held_out import held_out_plans
from gossamer.experiment.preparation.held_out_rows import rows_of
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, Sources
from gossamer.experiment.results.results_folder import ResultsFolder
from gossamer.experiment.runs.running import Run
from gossamer.experiment.runs.trackers import Listeners
from gossamer.randomness import derive, stream

OF_A_BASE = 8
"""Neighbours that are held against one recorded run."""
UPDATES = 200
"""Most updates of each run."""


@dataclass(frozen=True)
class LeakAudit:
    """Findings of a leak audit.

    Attributes
    ----------
    pairs : int
        Pairs of data sets that were run.
    releases : int
        Releases that were held against those of the first run.
    differing_releases : int
        Those of them that differ before what is replaced: others hold nothing of the rows that do.
    largest_share_of_sensitivity : float
        The largest distance of two, as a share of the declared sensitivity; more than 1 only by rounding, or in a leak.
    leak : str or None
        The first difference that was found, and where; None where there is none.
    neighbours : str or None
        Words on what differed in that pair.
    """

    pairs: int
    releases: int
    differing_releases: int
    largest_share_of_sensitivity: float
    leak: str | None = None
    neighbours: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "divergences": int(self.leak is not None)}


def audit_leak(
    prepared: Prepared, *, pairs: int, updates: int = UPDATES, progress: Callable[[int], None] = lambda done: None
) -> LeakAudit:
    """Run pairs of neighbouring data sets until one of them can be told apart.

    Parameters
    ----------
    prepared : Prepared
        Parts that a run of the spec is made of.
    pairs : int
        Number of pairs; which they are, and their coins, follows from the spec's seed.
    updates : int
        Most updates of each run.
    progress : callable
        Called with the number of pairs that are done.

    Raises
    ------
    SpecError
        If the run cannot be replayed: with the same data and coins it is not the same run.
    """
    if pairs < 1 or updates < 1:
        raise SpecError(f"expected 1 pair or more, of 1 update or more, found {pairs} and {updates}")
    with threadpool_limits(1), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", RunWarning)  # of runs that are too short, or on impossible examples
        return _Audit(prepared, updates, Path(folder)).go(pairs, progress)


class _Audit:
    """An audit under way."""

    def __init__(self, prepared: Prepared, updates: int, folder: Path) -> None:
        self._prepared, self._folder = prepared, folder
        self._seed = derive(prepared.experiment.seed, "leak audit")
        plan = plan_run(prepared)
        most = min(updates, plan.stop.updates or updates)
        self._plan = replace(plan, stop=plan.stop.model_copy(update={"updates": most}))
        self._relation, self._classes = prepared.experiment.privacy.relation, prepared.dataset.classes
        self._clients = prepared.experiment.terms.unit != EXAMPLE
        self._scale = NoiseScale()
        self._releases, self._differing, self._largest = 0, 0, 0.0

    def go(self, pairs: int, progress: Callable[[int], None]) -> LeakAudit:
        """Run them all, or up to the first that can be told apart."""
        done, pair = 0, None
        try:
            while done < pairs:
                base = self._base(done // OF_A_BASE)
                for number in range(done, min(done + OF_A_BASE, pairs)):
                    pair, done = self._pair(base, number), number + 1
                    self._compare(base, pair, with_files=number == 0)
                    progress(done)
                pair = None
        except Leak as leak:
            what = None if pair is None else pair.what
            return LeakAudit(max(done, 1), self._releases, self._differing, self._largest, str(leak), what)
        return LeakAudit(done, self._releases, self._differing, self._largest)

    def _base(self, number: int) -> _Base:
        """A data set with rows that are hard to bear, but for the first one, whose run is recorded.

        Raises
        ------
        Leak
            If its noise is not what it should be.
        SpecError
            If it cannot be replayed.
        """
        train, generator = self._prepared.dataset.train, stream(self._seed, "base", number=number)
        if number:
            train = self._worst(generator, int(generator.integers(4)))
        tested = {} if self._plan.held_out is None else rows_of(self._prepared)  # of whom no pair differs
        recording = Recording(
            {**self._plan.sides, **held_out_plans(self._prepared, self._plan)},
            self._relation,
            {**self._prepared.shard_sizes, **{name: len(own.rows) for name, own in tested.items()}},
        )
        base = _Base(self._with(train), recording, derive(self._seed, "coins", number), OutsideView(recording))
        self._run(base.prepared, base.coins(recording), base.seen, "first" if number == 0 else "")
        if number == 0:
            self._check_repeat(base)
            self._check_plan(generator)
        self._check_noise(base)
        return base

    def _worst(self, generator: np.random.Generator, count: int) -> Split:
        """The training examples with so many hard rows."""
        rows = np.concatenate(self._prepared.shards)
        some = generator.choice(rows, min(count, len(rows)), replace=False)
        return worst_cases(self._prepared.dataset.train, some, self._classes, generator)

    def _with(self, train: Split) -> Prepared:
        return replace(self._prepared, dataset=replace(self._prepared.dataset, train=train))

    def _pair(self, base: _Base, number: int) -> Neighbours:
        generator = stream(self._seed, "pair", number=number)
        train, shards = base.prepared.dataset.train, [rows for rows in self._prepared.shards if len(rows)]
        return neighbours(train, shards, self._relation, self._classes, generator, clients=self._clients)

    def _run(self, prepared: Prepared, coins: Sources, seen: OutsideView, folder: str = "") -> None:
        """Run, and see what there is to see; with what is written into a ``folder``, if one is named."""
        place = self._folder / folder if folder else None
        results = None if place is None else ResultsFolder(place, overwrite=True)
        result = Run(prepared, self._plan, coins, results, Listeners(seen, watch=seen.step)).go()
        seen.ended(seen.end(result))
        if place is not None:
            seen.ended(seen.files(place))

    def _compare(self, base: _Base, pair: Neighbours, *, with_files: bool) -> None:
        """Run a neighbour and hold it against the first run.

        Raises
        ------
        Leak
            If it can be told apart.
        """
        replay = Replay(base.recording, same_coins)
        coins, folder = base.coins(replay), "second" if with_files else ""
        try:
            self._run(replace(self._with(pair.second), blank=pair.blank), coins, base.held(), folder)
        except Leak:
            raise
        except Exception as error:
            raise Leak(f"the run fails, and the first one did not: {error}") from error
        finally:
            self._releases += replay.compared
            self._differing += replay.differing
            self._largest = max(self._largest, replay.largest)

    def _check_repeat(self, base: _Base) -> None:
        """Run the first again.

        Raises
        ------
        SpecError
            If it is not the same.
        """
        what = "a run of this spec cannot be replayed, since with the same data and coins it is another run: "
        with failing_as(SpecError, what, of=Leak):
            self._run(base.prepared, base.coins(Replay(base.recording, nothing)), base.held(), "again")

    def _check_plan(self, generator: np.random.Generator) -> None:
        """Plan for other examples.

        Raises
        ------
        Leak
            If it is another plan.
        """
        other = plan_run(self._with(self._worst(generator, 1000)))
        if _said(other) != _said(plan_run(self._prepared)):
            raise Leak("the plan of other examples is another one")

    def _check_noise(self, base: _Base) -> None:
        """Run the first again, with other noise.

        Raises
        ------
        Leak
            If a coordinate has none, two releases have the same, or there is too much or too little.
        """
        if any(side.trusted.marked for side in self._plan.sides.values()):
            return  # what they have said in the first run goes with the secrets of its coins alone
        replay = Replay(base.recording, other_noise)
        coins = replace(base.coins(replay), noise=derive(base.seed, "other noise"))
        self._run(base.prepared, coins, base.held())
        check_noise(replay.noises, self._scale)


@dataclass(frozen=True)
class _Base:
    """A data set whose run is recorded, the seed of its coins, and what its run shows."""

    prepared: Prepared
    recording: Recording
    seed: int
    seen: OutsideView

    def held(self) -> OutsideView:
        """View of another run, held against that of this one."""
        return OutsideView(self.recording, self.seen)

    def coins(self, hears: Recording | Replay) -> Sources:
        """Coins of all runs that are held against it, and who hears what data sides answer."""
        return Sources(derive(self.seed, "noise"), derive(self.seed, "samples"), heard(hears))


def _said(plan: Plan) -> str:
    """Statements of a plan."""
    guarantees = {name: found.as_dict() for name, found in plan.guarantees.items()}
    said = [list(plan.noise), plan.updates, plan.quotas, guarantees, plan.figures]
    return json.dumps(said, sort_keys=True, default=str)
