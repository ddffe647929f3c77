"""Specs and plans of algorithms with clients and a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gossamer.algorithms.fedavg.box import public_cohorts
from gossamer.algorithms.plan import Plan, Problem
from gossamer.experiment.preparation.planning import plan_run, problem_of
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec


def changed(base: Mapping[str, Any], /, **changes: Any) -> dict[str, Any]:
    """The spec ``base`` with other sections, or other keys in them."""
    return {**base, **{key: {**base[key], **value} if key in base else value for key, value in changes.items()}}


def planned(spec: Mapping[str, Any]) -> Plan:
    """Plan a spec whose algorithm has clients."""
    return plan_run(prepare(parse_spec(spec)))


def problem(spec: Mapping[str, Any]) -> Problem[Any]:
    """The problem that such a spec is planned for."""
    return problem_of(prepare(parse_spec(spec)))


def cohorts(spec: Mapping[str, Any]) -> Callable[[int], tuple[str, ...]]:
    """Who is drawn in each round, by public coins."""
    found = problem(spec)
    return public_cohorts(found.settings, found.seed, found.names)
