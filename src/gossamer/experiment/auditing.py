"""Audits of runs: what is measured stands beside what is proved, in the results folder's ``summary.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import EXAMPLE
from gossamer.arrays import IndexArray
from gossamer.attacks.audit import REPORTED, LowerBound, check_level
from gossamer.attacks.canaries import Canaries, choose_canaries, correct_guesses, plant
from gossamer.attacks.one_run import Family, best_guesses, epsilon_one_run, rejects
from gossamer.errors import DataError, SpecError
from gossamer.experiment.eavesdropper import Listener
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.private_scale import check_not_private
from gossamer.experiment.progress import NullProgress, Progress
from gossamer.experiment.result import Result
from gossamer.experiment.results_folder import ResultsFolder, read_summary, results_folder
from gossamer.experiment.running import Run
from gossamer.experiment.secrets import KeptSecret, NoiseSecret
from gossamer.experiment.spec import Experiment
from gossamer.parameters import pack
from gossamer.privacy.accounting.accountants import worst_profile
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, Laplace, NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.releases import ReleaseKind
from gossamer.randomness import derive, stream
from gossamer.sides.plan import counts_of

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
    confidence: float = REPORTED,
    overwrite: bool = False,
    progress: Progress | None = None,
    secret: NoiseSecret | None = None,
) -> Result:
    """Run an experiment with canaries included by coin flips, and bound its epsilon from below.

    Parameters
    ----------
    experiment : Experiment
        What to audit.
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
        What guesses are made from: how much likelier all gradients that a canary's node released are with it, or its
        loss under the run's model alone.
    confidence : float
        Of the bound.
    overwrite : bool
        Replace what another audit wrote to the folder; results of a run that was none stay.
    progress, secret
        As for `run`.

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
        count = sum(map(len, prepared.shards)) if canaries is None else canaries
        if count < 1:
            raise SpecError(f"expected at least 1 canary, found {count}; an audit without any measures nothing")
        if guesses is not None and not 0 < guesses <= count:
            raise SpecError(f"expected 1 to {count} guesses, at most one a canary, found {guesses}")
        planted = canaries_of(prepared, count, kind)
        plan = plan_run(prepared)
        planned = plan.guarantee.would_be or plan.guarantee  # nobody who judges draws the noise again
        guesses = best_guesses(count, planned.mu) if guesses is None else guesses
        blank = _blank(experiment.privacy.relation, planted)
        listener = Listener(prepared, planted, blank is not None)
        dataset = replace(prepared.dataset, train=plant(prepared.dataset.train, planted))
        run = Run(
            replace(prepared, dataset=dataset, blank=blank),
            plan,
            folder,
            progress=progress or NullProgress(),
            watch=listener if score == "gradient" else None,
            purpose=_purpose(kind, planted),
            secret=secret,
        )
        with threadpool_limits(1):
            result = run.go()
        scores = listener.scores if score == "gradient" else _losses(prepared, planted, result)
        asked = count, guesses, correct_guesses(planted, scores, guesses)
        bound = epsilon_one_run(
            *asked, experiment.delta, experiment.privacy.relation, confidence, family_of(prepared, plan)
        )
        proved = result.guarantee.would_be or result.guarantee
        refuted = rejects(*asked, proved.profile, 1 - confidence)
        found = {**_found(bound, *asked), "canary": _kind(prepared, kind), "score": score, **_proved(result.guarantee)}
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


def _purpose(kind: CanaryChoice, planted: Canaries) -> str:
    """Name an audit by its canaries, their slots and who takes part: it shares its noise with no other run."""
    return f"audit {kind} {planted.rows.tolist()} {planted.included.tolist()}"


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
    if kind != "auto":
        return kind
    return "mislabelled" if prepared.dataset.train.sparse else "random"


def _blank(relation: NeighboringRelation, canaries: Canaries) -> IndexArray | None:
    """Under add-or-remove the slots whose coin says out are blank."""
    if relation is not NeighboringRelation.ADD_OR_REMOVE_ONE:
        return None
    return canaries.rows[~canaries.included]


def _losses(prepared: Prepared, canaries: Canaries, result: Result) -> npt.NDArray[np.float64]:
    model = pack(result.model, prepared.objective.parts, prepared.objective.dtype)
    losses: npt.NDArray[np.float64] = prepared.objective.losses(model[None], canaries.examples)[0]
    return -losses


def family_of(prepared: Prepared, plan: Plan) -> Family:
    """Hypotheses for an audit: what the plan releases, with more or less noise; or, if that cannot be said, any
    epsilon."""
    spec = prepared.experiment
    counted = [counts_of(plan.side(name)) for name in prepared.names]
    if not all(counts is not None and all(map(_scalable, counts)) for counts in counted):
        return Family.of_epsilon(spec.delta)
    different = {frozenset(counts.items()) for counts in counted if counts}

    def member(strength: float) -> PrivacyProfile:
        many = [[({_louder(kind, strength): count for kind, count in counts}, 1)] for counts in different]
        return worst_profile(many, spec.privacy.relation, (math.inf, spec.delta))

    return Family(member, "the plan's releases, with more or less noise")


_STRENGTHS: Mapping[type, tuple[str, int]] = {
    Gaussian: ("noise_multiplier", -1),
    BallGaussian: ("noise_multiplier", -1),
    L2Laplace: ("epsilon", 1),
    Laplace: ("scale", -1),
}
"""The number of each law that its noise depends on, and whether more of it reveals more."""


def _scalable(kind: ReleaseKind) -> bool:
    return type(kind.mechanism) in _STRENGTHS and kind.sampling.proved


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
