"""Membership inference in a results folder: what it finds stands beside what is proved, in ``summary.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gossamer.arrays import FloatArray
from gossamer.attacks.membership import membership
from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.experiment.auditing import canaries_of, publish
from gossamer.experiment.eavesdropper import rows_of
from gossamer.experiment.prepare import prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.private_scale import rescaled
from gossamer.experiment.reading import read_spec
from gossamer.experiment.results_folder import ResultsFolder, read_summary
from gossamer.files import held
from gossamer.parameters import pack
from gossamer.randomness import derive, stream

MOST = 10_000
"""Examples of either kind whose losses are compared."""

_NO_BOUND = (
    "losses of one model's training and test examples are not independent runs, and no coins decided who is a member; "
    "gossamer attack audit gives a bound"
)


@dataclass(frozen=True)
class MembershipAudit:
    """Findings of membership inference in a results folder.

    Attributes
    ----------
    audit : dict
        As in ``summary.json`` under ``privacy.audits.membership``.
    summary : dict
        All of it.
    members, non_members : ndarray
        Losses at the run's model, of training and of test examples.
    """

    audit: dict[str, Any]
    summary: dict[str, Any]
    members: npt.NDArray[np.float64]
    non_members: npt.NDArray[np.float64]


def audit_membership(path: str | Path) -> MembershipAudit:
    """Compare losses of training and test examples at a run's model, and write what is found to its summary.

    Parameters
    ----------
    path : path
        The results folder of a run. Its data must be where they were.

    Raises
    ------
    DataError
        If the folder is not that of a run, or does not fit its own spec.
    UnderWay
        If the run is still under way.
    """
    with held(Path(path)):
        return _audit_membership(Path(path))


def _audit_membership(path: Path) -> MembershipAudit:
    summary = read_summary(path)
    prepared = rescaled(prepare(read_spec(path / "spec.yaml")), summary.get("private_ranges", {}))
    model = _read_model(path, prepared)[None]
    rows = np.concatenate(prepared.shards)
    one_run = summary["privacy"].get("audits", {}).get("one_run")
    if one_run is not None:
        rows = np.setdiff1d(rows, canaries_of(prepared, one_run["canaries"], one_run["canary"]).rows)
    seed = derive(prepared.experiment.seed, "attack", "membership")
    members, non_members = (
        prepared.objective.losses(model, _some(split, which, stream(seed, name)))[0]
        for name, split, which in (
            ("members", prepared.dataset.train, rows),
            ("non-members", prepared.dataset.test, np.arange(len(prepared.dataset.test))),
        )
    )
    found = membership(-members, -non_members, stream(seed, "halves"))
    bound, why = (None, _NO_BOUND) if one_run is None else (one_run["epsilon_lower_bound"], one_run["method"])
    audit = {**found.as_dict(), "epsilon_lower_bound": bound, "how": why}
    publish(summary, "membership", audit, ResultsFolder(path, overwrite=True))
    return MembershipAudit(audit, summary, members, non_members)


def _some(split: Split, rows: npt.NDArray[np.int64], generator: np.random.Generator) -> Split:
    return rows_of(split, np.sort(generator.permutation(rows)[:MOST]))


def _read_model(path: Path, prepared: Prepared) -> FloatArray:
    objective = prepared.objective
    try:
        model = pack(load_file(path / "model.safetensors"), objective.parts, objective.dtype)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path}: model.safetensors does not fit spec.yaml ({error}); run the spec again") from None
    if not np.isfinite(model).all():
        raise DataError(
            f"{path}: the model has numbers that are not finite, so its losses say nothing; lower learning_rate"
        )
    return model
