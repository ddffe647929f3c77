"""Audits of runs: what is measured stands beside what is proved, in the results folder's ``summary.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import EXAMPLE, Plan
from gossamer.arrays import FloatArray, Floats, IndexArray, IntArray
from gossamer.attacks.audit import (
    REPORTED,
    HypothesisFamily,
    LowerBound,
    best_guesses,
    check_level,
    epsilon_one_run,
    membership,
    rejects,
)
from gossamer.attacks.canaries import Canaries, Sum, choose_canaries, correct_guesses, plant
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.experiment.audits.observers import View, against_nodes
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.preparation.private_scale import check_not_private, rescaled
from gossamer.experiment.preparation.secrets import KeptSecret, NoiseSecret
from gossamer.experiment.results.records import Result
from gossamer.experiment.results.results_folder import ResultsFolder, results_folder
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import Listeners, NullProgress, RunProgress
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.files import held
from gossamer.objectives.objective import clipped_on
from gossamer.privacy.accounting.accountants import worst_profile
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import Guarantee, PrivacyProfile
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, Laplace, NeighboringRelation, ReleaseKind
from gossamer.privacy.observers.system import members_of
from gossamer.privacy.tasks import Gradient, Round
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed
from gossamer.protocol.trace import TraceStep
from gossamer.randomness import derive, stream
from gossamer.report.records import read_summary
from gossamer.sides.plan import counts_of
from gossamer.trained.card import read_model
from gossamer.vectors import pack

# Membership inference in a results folder: what it finds stands beside what is proved, in ``summary.json``.

MOST = 10_000
"""Examples of either kind whose losses are compared."""

_NO_BOUND = (
    "losses of one model's training and test examples are not independent runs, and no coins decided who is a member; "
    "gossamer attack audit gives a bound"
)


def audit_membership(path: str | Path) -> dict[str, Any]:
    """Compare losses of training and test examples at a run's model, and write what is found to its summary.

    Parameters
    ----------
    path : path
        The results folder of a run. Its data must be where they were.

    Returns
    -------
    dict
        Findings as in ``summary.json`` under ``privacy.audits.membership``.

    Raises
    ------
    DataError
        If the folder is not that of a run, or does not fit its own spec.
    UnderWay
        If the run is still under way.
    """
    with held(Path(path)):
        return _audit_membership(Path(path))


def _audit_membership(path: Path) -> dict[str, Any]:
    summary = read_summary(path)
    prepared = rescaled(prepare(read_spec(path / "spec.yaml")), summary.get("private_ranges", {}))
    card, model = read_model(path)
    if card.arrays != tuple(prepared.objective.parts):
        raise DataError(f"{path}: the model does not fit spec.yaml, which was changed since; run the spec again")
    rows = np.concatenate(prepared.shards)
    if (one_run := summary["privacy"].get("audits", {}).get("one_run")) is not None:
        rows = np.setdiff1d(rows, canaries_of(prepared, one_run["canaries"], one_run["canary"]).rows)
    seed = derive(prepared.experiment.seed, "attack", "membership")
    members, non_members = (
        prepared.objective.losses(model[None], rows_of(split, np.sort(stream(seed, name).permutation(which)[:MOST])))[0]
        for name, split, which in (
            ("members", prepared.dataset.train, rows),
            ("non-members", prepared.dataset.test, np.arange(len(prepared.dataset.test))),
        )
    )
    found = membership(-members, -non_members, stream(seed, "halves"))
    bound, why = (None, _NO_BOUND) if one_run is None else (one_run["epsilon_lower_bound"], one_run["method"])
    audit = {**found, "epsilon_lower_bound": bound, "how": why}
    publish(summary, "membership", audit, ResultsFolder(path, overwrite=True))
    return audit


# Listening to a run as an attacker would, who scores canaries by the gradients that their nodes release.

_BACKGROUND = 256
"""Examples in no slot whose gradients stand for those of all, of a node."""


@dataclass
class Listener:
    """Scores canaries by the sums of gradients that their nodes release, as a run goes on.

    A score is the logarithm of how much likelier all of them are with the canary than without it. It learns nothing of
    the coins: it sees models, clips, released vectors, what slots may hold, and examples that are in none.

    Attributes
    ----------
    prepared : Prepared
        The run, with the examples that slots have without their canaries.
    canaries : Canaries
        Canaries, of which it does not look at ``included``.
    blank : bool
        Whether slots without their canaries hold nothing.
    """

    prepared: Prepared
    canaries: Canaries
    blank: bool
    pending: dict[tuple[str, int], Gradient | Round] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scores = np.zeros(len(self.canaries))
        shards = zip(self.prepared.names, self.prepared.shards, strict=True)
        places = {name: np.flatnonzero(np.isin(self.canaries.rows, shard)) for name, shard in shards}
        self.places = {name: found for name, found in places.items() if len(found)}
        self.own = {name: rows_of(self.canaries.examples, found) for name, found in self.places.items()}
        self.others = {name: self._others(shard) for name, shard in zip(self.prepared.names, self.prepared.shards)}

    def _others(self, shard: IntArray) -> IntArray:
        """Some rows of a shard that are no slots."""
        rows = np.setdiff1d(shard, self.canaries.rows)
        return rows[np.linspace(0, len(rows) - 1, min(_BACKGROUND, len(rows))).astype(np.int64)]

    def __call__(self, step: TraceStep) -> None:
        if step.node not in self.places:
            return
        event = step.event
        if isinstance(event, Completed) and (step.node, event.id) in self.pending:
            task = self.pending.pop((step.node, event.id))
            heard = self._heard(step.node, task, np.asarray(event.released.values))
            self.scores[self.places[step.node]] += heard.log_likelihood_ratios()
        for effect in step.effects:
            if isinstance(effect, Compute):
                asked: Any = effect.task
                self.pending[step.node, asked.id] = asked

    def _heard(self, node: str, task: Gradient | Round, released: FloatArray) -> Sum:
        """Release of ``node``, as a sum of gradients at the model that it asked for.

        Models that were swapped in later are near the one that a round starts from.
        """
        query, where, size = task.query, task.where, self.prepared.objective.size
        decay = where.step * self.prepared.objective.l2 * np.asarray(task.model.values)[where.slice]
        mean = released[: where.count(size)] / task.steps - decay
        data, places, others = self.prepared.dataset.train, self.places[node], self.others[node]
        inside = self._gradients(task, self.own[node], np.arange(len(places)))
        return Sum(
            seen=mean * (query.unit * query.normaliser * task.steps),
            inside=inside,
            outside=np.zeros_like(inside) if self.blank else self._gradients(task, data, self.canaries.rows[places]),
            others=self._gradients(task, data, others),
            each=(self.prepared.shard_sizes[node] - len(places)) / max(len(others), 1),
            rate=min(query.sampling.rate, 1.0),
        )

    def _gradients(self, task: Gradient | Round, data: Split, rows: IntArray) -> FloatArray:
        """Clipped gradients of each of ``rows`` at the task's model, [rows, coordinates]."""
        objective = self.prepared.objective
        models = np.broadcast_to(np.asarray(task.model.values), (len(rows), objective.size))
        clip, wheres = task.query.mechanism.clip, [task.where] * len(rows)
        sums = clipped_on(objective, models, data, list(rows[:, None]), clip, wheres).sums
        return np.stack(sums) if sums else np.zeros((0, task.where.count(objective.size)), objective.dtype)


def rows_of(split: Split, rows: IntArray) -> Split:
    """Some examples of a split."""
    features: Any = split.features
    return Split(features[rows], split.targets[rows])


CanaryChoice = Literal["auto", "random", "mislabelled"]
Score = Literal["gradient", "loss"]

# Canaries in a run


def audit_run(
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    canaries: int | None = None,
    guesses: int | None = None,
    kind: CanaryChoice = "auto",
    score: Score = "gradient",
    observer: str | None = None,
    confidence: float = REPORTED,
    overwrite: bool = False,
    progress: RunProgress | None = None,
    secret: NoiseSecret | None = None,
) -> Result:
    """Run an experiment with canaries included by coin flips, and bound its epsilon from below.

    Parameters
    ----------
    experiment : Experiment
        Experiment to audit.
    out : path, optional
        Folder for the results.
    canaries : int, optional
        m: as many slots of the nodes' shards, chosen at random, belong to canaries; by default all.
    guesses : int, optional
        r: about how many coins a guess is made; by default as many as bound epsilon best, if the run reveals all that
        is proved that it may (`one_run.best_guesses`).
    kind : {"auto", "random", "mislabelled"}
        See `choose_canaries`; ``auto`` is mislabelled for sparse features and random else.
    score : {"gradient", "loss"}
        Basis of guesses: how much likelier all gradients that a canary's node released are with it, or its loss under
        the run's model alone.
    observer : str, optional
        Observer who guesses from its view of the messages alone, such as ``node:node-3`` (`View`), about canaries of
        nodes that it is not; hypotheses are of Gaussian differential privacy.
    confidence : float
        Confidence level of the bound.
    overwrite : bool
        Replace what another audit wrote to the folder; results of a run that was none stay.
    progress, secret
        Arguments as for `run`.

    Returns
    -------
    Result
        Whose summary has ``privacy.audits.one_run``.

    Raises
    ------
    CallerError
        If the experiment cannot be run, or has no room for so many canaries; nothing has been released.
    """
    check_level(experiment.delta, confidence)
    with results_folder(out, overwrite=overwrite) as folder:
        _check_own(folder)
        prepared = prepare(experiment)
        check_not_private(prepared, "an audit with canaries")
        if experiment.terms.unit != EXAMPLE and score == "gradient":
            raise SpecError(
                f"canaries are scored by gradients that nodes release, and {experiment.algorithm.name} releases "
                "none, but what is made of many local steps; score by loss"
            )
        if observer is not None and score == "loss":
            raise SpecError(f"--observer {observer} guesses from messages, found --score loss; leave one of them out")
        count = sum(map(len, prepared.shards)) if canaries is None else canaries
        if count < 1:
            raise SpecError(f"expected at least 1 canary, found {count}; an audit without any measures nothing")
        if guesses is not None and not 0 < guesses <= count:
            raise SpecError(f"expected 1 to {count} guesses, at most one a canary, found {guesses}")
        planted = canaries_of(prepared, count, kind)
        plan = plan_run(prepared)
        members = members_of(observer, (*prepared.cast.workers, *prepared.cast.servers)) if observer else frozenset()
        guarantee = against_nodes(plan) if members else plan.guarantee
        planned = guarantee.would_be or guarantee  # nobody who judges draws the noise again
        blank = _blank(experiment.privacy.relation, planted)
        dataset = replace(prepared.dataset, train=plant(prepared.dataset.train, planted))
        audited = replace(prepared, dataset=dataset, blank=blank)
        listener: Listener | View = Listener(prepared, planted, blank is not None)
        most, family = planned.mu, family_of(prepared, plan)
        if observer is not None:
            listener = View(prepared, planted, blank is not None, plan, observer)
            most, family = listener.mu, HypothesisFamily(PrivacyProfile.gaussian, "Gaussian differential privacy")
        guesses = best_guesses(count, most) if guesses is None else guesses
        # Named by canaries, their slots and who takes part, an audit shares its noise with no other run.
        purpose = f"audit {kind} {planted.rows.tolist()} {planted.included.tolist()}"
        sources = sources_of(audited, plan, secret, purpose)
        listeners = Listeners(progress or NullProgress(), watch=listener if score == "gradient" else None)
        run = Run(audited, plan, sources, folder, listeners)
        with threadpool_limits(1):
            result = run.go()
        scores = listener.scores if score == "gradient" else _losses(prepared, planted, result)
        asked = count, guesses, correct_guesses(planted, scores, guesses)
        bound = epsilon_one_run(*asked, experiment.delta, experiment.privacy.relation, confidence, family)
        refuted = rejects(*asked, planned.profile, 1 - confidence)
        found = {**_found(bound, *asked), "canary": _kind(prepared, kind), "score": score, **_proved(guarantee)}
        if observer is not None:
            found |= {"observer": observer, "gradients_fixed_epsilon": gaussian_epsilon(most, experiment.delta)}
        publish(result.summary, "one_run", {**found, "refuted": refuted}, folder)
        return result


def _check_own(folder: ResultsFolder | None) -> None:
    """Raise unless a folder is new or empty, or an audit has written it: models of other runs are not replaced."""
    if folder is None or not folder.path.exists() or not any(folder.path.iterdir()) or _by_an_audit(folder.path):
        return
    raise SpecError(
        f"{folder.path} has a run that was no audit, so an audit does not overwrite it; choose another --out"
    )


def _by_an_audit(path: Path) -> bool:
    """Whether an audit has written results, or begun to; one with reproducible noise is known once it has ended."""
    with suppress(DataError):
        return KeptSecret.read(path).made_by == "audit"
    with suppress(DataError):
        return "one_run" in read_summary(path)["privacy"].get("audits", {})
    return False


def canaries_of(prepared: Prepared, count: int, kind: CanaryChoice) -> Canaries:
    """The canaries of an audit of this experiment, the same each time; coins included."""
    seed = derive(prepared.experiment.seed, "audit")
    return choose_canaries(
        prepared.dataset.train,
        np.concatenate(prepared.shards),
        count,
        _kind(prepared, kind),
        prepared.dataset.classes,
        stream(seed, "canaries"),
        stream(seed, "coins"),
    )


def _kind(prepared: Prepared, kind: CanaryChoice) -> Literal["random", "mislabelled"]:
    return kind if kind != "auto" else "mislabelled" if prepared.dataset.train.sparse else "random"


def _blank(relation: NeighboringRelation, canaries: Canaries) -> IndexArray | None:
    """Under add-or-remove the slots whose coin says out are blank."""
    if relation is not NeighboringRelation.ADD_OR_REMOVE_ONE:
        return None
    return canaries.rows[~canaries.included]


def _losses(prepared: Prepared, canaries: Canaries, result: Result) -> Floats:
    model = pack(result.model, prepared.objective.parts, prepared.objective.dtype)
    losses: Floats = prepared.objective.losses(model[None], canaries.examples)[0]
    return -losses


def family_of(prepared: Prepared, plan: Plan) -> HypothesisFamily:
    """Hypotheses for an audit: what the plan releases, with more or less noise; or, if that cannot be said, any
    epsilon."""
    spec = prepared.experiment
    counted = [counts_of(plan.side(name)) for name in prepared.names]
    kinds = [kind for counts in counted for kind in counts or ()]
    if None in counted or not all(type(kind.mechanism) in _STRENGTHS and kind.sampling.proved for kind in kinds):
        return HypothesisFamily.of_epsilon(spec.delta)
    different = {frozenset(counts.items()) for counts in counted if counts}

    def member(strength: float) -> PrivacyProfile:
        many = [[({_louder(kind, strength): count for kind, count in counts}, 1)] for counts in different]
        return worst_profile(many, spec.privacy.relation, (math.inf, spec.delta))

    return HypothesisFamily(member, "the plan's releases, with more or less noise")


_STRENGTHS: Mapping[type, tuple[str, int]] = {
    Gaussian: ("noise_multiplier", -1),
    BallGaussian: ("noise_multiplier", -1),
    L2Laplace: ("epsilon", 1),
    Laplace: ("scale", -1),
}
"""The number of each law that its noise depends on, and whether more of it reveals more."""


def _louder(kind: ReleaseKind, strength: float) -> ReleaseKind:
    """A release whose noise is smaller by the factor ``strength``."""
    law: Any = kind.mechanism
    name, power = _STRENGTHS[type(law)]
    return replace(kind, mechanism=replace(law, **{name: getattr(law, name) * strength**power}))


def _found(bound: LowerBound, canaries: int, guesses: int, correct: int) -> dict[str, Any]:
    return {
        "epsilon_lower_bound": bound.epsilon,
        "delta": bound.delta,
        "confidence": bound.confidence,
        "neighboring_relation": bound.neighboring_relation.value,
        "method": f"{bound.method} (Mahloujifar, Melis and Chaudhuri 2025)",
        "canaries": canaries,
        "guesses": guesses,
        "correct": correct,
    }


def _proved(guarantee: Guarantee) -> dict[str, float | None]:
    would_be = {} if guarantee.would_be is None else {"would_be_epsilon": guarantee.would_be.epsilon}
    proved = {"proved_epsilon": guarantee.epsilon, **would_be}
    return {name: epsilon if math.isfinite(epsilon) else None for name, epsilon in proved.items()}


def publish(summary: dict[str, Any], name: str, audit: Mapping[str, Any], folder: ResultsFolder | None) -> None:
    """Add what an audit found to the summary, under ``privacy.audits``, and write that where there is a folder."""
    summary["privacy"].setdefault("audits", {})[name] = dict(audit)
    if folder is not None:
        folder.write_json("summary.json", summary)
