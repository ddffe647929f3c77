"""Persons whose examples lie at one node or at several: what a guarantee for them has to count together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from gossamer.algorithms.plan import EXAMPLE, Held, Holdings, Problem, Spec
from gossamer.errors import SpecError
from gossamer.privacy.accounting.accountants import Accounted, Parts, joint_epsilon
from gossamer.privacy.guarantees import KnownPersons
from gossamer.privacy.mechanisms import Counts

MOST_KINDS = 32
"""Most kinds of persons that are accounted for: each takes about a tenth of a second."""

Person = tuple[tuple[str, int], ...]
"""Of one person: the nodes that hold examples, and how many."""


def asked(spec: Spec) -> bool:
    """Whether the guarantee is to cover all examples of a person."""
    return spec.budget is not None and spec.budget.rows_per_person is not None


def knowledge(holdings: Holdings | None) -> KnownPersons:
    """Return what is known of where a person's examples are."""
    if holdings is None:
        return KnownPersons.NOTHING
    return KnownPersons.TOGETHER if holdings.together else KnownPersons.SPREAD


def spread(spec: Spec, holdings: Holdings | None) -> bool:
    """Whether a guarantee for persons has to count several nodes together: one for all that a node has does not."""
    return asked(spec) and knowledge(holdings) is KnownPersons.SPREAD and spec.terms.unit == EXAMPLE


def check_room(problem: Problem[Any]) -> None:
    """Refuse more examples of a person than there can be: they would only cost noise.

    Raises
    ------
    SpecError
        If ``budget.rows_per_person`` is above the number of training examples where a person's may be.
    """
    sizes, rows = problem.shard_sizes.values(), problem.spec.rows_per_person
    room, where = (
        (sum(sizes), "all nodes have")
        if spread(problem.spec, problem.holdings)
        else (max(sizes), "the largest shard has")
    )
    if asked(problem.spec) and rows > room:
        raise SpecError(
            f"budget.rows_per_person: {where} {room} training example{'s'[: room != 1]}, and a person is to have up to "
            f"{rows}; take the most that one person has"
        )


def rows_at(problem: Problem[Any]) -> dict[str, int]:
    """The most examples of one person that each node's own epsilon covers."""
    rows = dict.fromkeys(problem.names, problem.spec.rows_per_person)
    if not spread(problem.spec, problem.holdings):
        return rows
    assert problem.holdings is not None
    most: dict[int, int] = {}
    for held in problem.holdings.held:
        for node, number in held:
            most[node] = max(number, most.get(node, 0))
    return {name: most[node] for node, name in enumerate(problem.names)}


def kinds_of_persons(problem: Problem[Any], alike: Mapping[str, Hashable], most: int = MOST_KINDS) -> list[Person]:
    """Kinds of persons, by where examples are, that no other kind exceeds; nodes that are ``alike`` count as one.

    Raises
    ------
    SpecError
        If there are more than ``most``.
    """
    assert problem.holdings is not None
    names = problem.names
    first: dict[Hashable, int] = {}
    for node, name in enumerate(names):
        first.setdefault(alike[name], node)
    same = [first[alike[name]] for name in names]
    found = {tuple(sorted((same[node], -rows) for node, rows in held)) for held in problem.holdings.held}
    front: list[Held] = []
    # One with more examples is never within one with fewer.
    for held in sorted(found, key=lambda held: (sum(rows for _, rows in held), held)):
        if any(_held_within(held, other) for other in front):
            continue
        front.append(held)
        if len(front) > most:
            raise SpecError(
                f"dataset.person: persons' examples lie at nodes in more than {most} ways, too many for a joint "
                "guarantee; take partition: by_person, which keeps them together"
            )
    return [tuple((names[node], -rows) for node, rows in held) for held in front]


def _held_within(held: Held, other: Held) -> bool:
    """Whether ``other`` has at least as many examples everywhere; both sorted, with negative numbers of examples."""
    more = _by_node(other)
    return all(
        len(rows) <= len(more.get(node, ())) and all(-a <= -b for a, b in zip(rows, more[node]))
        for node, rows in _by_node(held).items()
    )


def _by_node(held: Held) -> dict[int, Sequence[int]]:
    return {node: [rows for _, rows in group] for node, group in groupby(held, itemgetter(0))}


def joint(problem: Problem[Any], counts: Mapping[str, Counts], most: int = MOST_KINDS) -> Accounted:
    """Return what is proved of all that nodes release, for the person of whom most is released.

    Raises
    ------
    SpecError
        If persons' examples lie at nodes in more than ``most`` ways.
    """
    delta, relation = problem.spec.delta, problem.spec.privacy.relation
    found = [joint_epsilon(parts, delta, relation) for parts in released_about(problem, counts, most)]
    return max(found, key=lambda accounted: accounted.epsilon)


def released_about(problem: Problem[Any], counts: Mapping[str, Counts], most: int = MOST_KINDS) -> list[Parts]:
    """Releases about each example or person, that the profile is of: of those alike once."""
    persons: list[Person]
    if spread(problem.spec, problem.holdings):
        persons = kinds_of_persons(problem, {name: frozenset(of.items()) for name, of in counts.items()}, most)
    else:
        persons = [((name, rows),) for name, rows in rows_at(problem).items()]
    return [[(counts[name], rows) for name, rows in person] for person in persons]


def advice_on_persons(problem: Problem[Any]) -> list[str]:
    """A warning where the data say whose they are, and the guarantee is for single examples."""
    holdings, spec = problem.holdings, problem.spec
    if holdings is None or asked(spec) or not (spec.private and spec.proved) or holdings.most <= 1:
        return []
    where = f", at up to {holdings.most_nodes} nodes" if holdings.most_nodes > 1 else ""
    return [
        f"dataset.person: persons have up to {holdings.most} training examples{where}, and the guarantee is for each "
        f"example; a budget with rows_per_person: {holdings.most} covers all examples of a person"
    ]
