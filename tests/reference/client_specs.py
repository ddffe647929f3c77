"""Specs and plans of algorithms with clients and a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.clients.plan import ClientPlan
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.reading import parse_spec


def changed(base: Mapping[str, Any], /, **changes: Any) -> dict[str, Any]:
    """The spec ``base`` with other sections, or other keys in them."""
    return {**base, **{key: {**base[key], **value} if key in base else value for key, value in changes.items()}}


def planned(spec: Mapping[str, Any]) -> ClientPlan:
    """Plan a spec whose algorithm has clients."""
    found = plan_run(prepare(parse_spec(spec)))
    assert isinstance(found, ClientPlan)
    return found
