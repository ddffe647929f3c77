"""Shortfall of a run: what of its plan was not made, and whom it waits for.

Nodes that are there, have not finished and have nothing left to do wait for somebody: more time changes nothing. And
rounds may have passed in which nobody, or too few for a sum, answered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gossamer.errors import counted
from gossamer.protocol.node import Node, Rounds

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed

STALLED, INCOMPLETE = "stalled", "incomplete"
"""Statuses of runs that ended before their plan: nobody could go on, or rounds came to nothing."""


def rounds_of(nodes: Collection[Node]) -> Rounds | None:
    """Rounds of whoever is furthest behind its plan; None where no node's plan has a number of them."""
    found = [rounds for node in nodes if (rounds := node.rounds_made) is not None]
    return min(found, key=lambda rounds: rounds.made - rounds.planned, default=None)


def status_of(simulator: Observed, workers: Collection[str], status: str) -> str:
    """``status``, as `driving.drive` gives it, or what it is where the run did not come to the end of its plan."""
    if status != "finished":
        return status
    rounds = rounds_of(simulator.present.values())
    left = {name: node for name, node in simulator.present.items() if name not in simulator.finished}
    behind = [one for node in left.values() if (one := node.rounds_made) and one.made + one.empty < one.planned]
    if behind or not left.keys().isdisjoint(workers):
        return STALLED
    return INCOMPLETE if rounds is not None and rounds.empty else status


def shortfall(simulator: Observed, parents: Mapping[str, str]) -> dict[str, Any]:
    """Describe a run that did not come to the end of its plan, for its summary; ``parents`` are above other nodes."""
    rounds = rounds_of(simulator.present.values())
    left = {name: node for name, node in simulator.present.items() if name not in simulator.finished}
    awaited = set[str]().union(*(node.awaited or {parents.get(name, name)} - {name} for name, node in left.items()))
    waits_for = sorted(awaited & simulator.gone or awaited)
    made = {} if rounds is None else {"rounds": rounds.made, "planned": rounds.planned, "empty": rounds.empty}
    return {**made, **({"waits_for": waits_for} if waits_for else {})}


def in_words(found: Mapping[str, Any], status: str, seconds: float, settings: Any) -> str:
    """One line on a shortfall, with what to do."""
    if status == INCOMPLETE:
        return (
            f"{made(found)}: in {counted(found['empty'], 'round')} nobody answered, or there was no sum that could be "
            "used; look at faults and links, or wait longer for those who are late (algorithm.timeout)"
        )
    waits = f"waits for {named(found['waits_for'])}" if found.get("waits_for") else "can make no other update"
    bounded = "timeout" in type(settings).model_fields and settings.timeout is None
    remedy = "algorithm.timeout bounds such waits" if bounded else "look at faults and links"
    return f"{made(found)}: from virtual second {seconds:g} on it {waits}, and more time changes nothing; {remedy}"


def made(found: Mapping[str, Any]) -> str:
    """Say in brief how far a run came."""
    return (
        f"the run made {found['rounds']} of {counted(found['planned'], 'round')}"
        if "planned" in found
        else "the run stopped"
    )


def named(names: Collection[str], most: int = 5) -> str:
    """Names, of many the first few."""
    shown = sorted(names)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
