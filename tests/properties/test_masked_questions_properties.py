"""Agents that were asked different questions are in no sum together, whatever the server tells whom."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.agent_sides import ChargingMaskedSide
from tests.reference.masked_sides import masked_sides
from tests.sampling import examples

from gossamer.keys.identity import Identity
from gossamer.privacy.masking import Phase
from gossamer.privacy.masking.messages import (
    AgentRoster,
    Announcement,
    DeliveredShares,
    EncryptedShares,
    packed,
    unpacked,
)
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep
from gossamer.sides.masked_side import Signing
from gossamer.vectors import Masked, Public

SIZE, CLIP = 3, 10.0
SOME = settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])


def agents_of(count: int, signed: bool, bits: int, threshold: int) -> dict[str, ChargingMaskedSide]:
    names = tuple(f"node-{number}" for number in range(count))
    found = masked_sides(unit_settings(count, 3, bits=bits, threshold=threshold), names, 1, SIZE, CLIP)
    if not signed:
        return found
    identities = {name: Identity.of_seed(name.encode().ljust(32)) for name in names}
    keys = {name: identity.public_key for name, identity in identities.items()}
    unit = next(iter(found.values())).unit
    unit = replace(unit, group=replace(unit.group, signed=True))
    return {
        name: ChargingMaskedSide(
            name, side.shard, 9, unit, side._members, side.terms, signing=Signing(identities[name], keys)
        )
        for name, side in found.items()
    }


@st.composite
def questions(draw: st.DrawFn, most: int) -> list[tuple[str, Any]]:
    """Two or three different ones: another model, round, spec, encoding, or way to make another's update."""
    coordinate = st.integers(0, SIZE - 1)
    bits = st.sampled_from([*range(23), 31])  # of the exponent, some give a model that is too far out
    ways = st.one_of(
        st.tuples(st.just("model"), st.tuples(coordinate, bits)),
        st.tuples(st.just("agreed"), st.binary(max_size=3)),
        st.tuples(st.just("steps"), st.integers(2, 9)),
        st.tuples(st.just("reach"), st.floats(0.5, 0.99)),
    )
    return [("model", None), *draw(st.lists(ways, min_size=1, max_size=most - 1, unique_by=repr))]


def ask(side: ChargingMaskedSide, question: tuple[str, Any], count: int) -> None:
    what, how = question
    model = np.linspace(0.25, 1.0, SIZE, dtype=np.float32)
    if what == "model" and how is not None:
        coordinate, bit = how
        model.view(np.uint32)[coordinate] ^= np.uint32(1 << bit)
    elif what == "agreed":
        side.terms = replace(side.terms, agreed=side.terms.agreed + b"!" + how)
    elif what == "steps":
        last = f"node-{count - 1}"
        queries = {**side.terms.queries, last: replace(side.terms.queries[last], steps=how)}
        side.terms = replace(side.terms, queries=queries)
    elif what == "reach":
        side.unit = replace(side.unit, reach=side.unit.reach * how)
    task = LocalUpdate(0, Public(model), side.terms.queries[side._name])
    side.answer(task, np.full(SIZE, 0.01))


def said(side: ChargingMaskedSide, step: int, incoming: Public = REFUSED) -> Any:
    return side.admit(MaskingStep(0, step, incoming, 0)).answer().released


def masked_together(
    found: Mapping[str, ChargingMaskedSide], lists: Mapping[str, list[str]], asked: Mapping[str, int], forged: bool
) -> list[set[int]]:
    """Whose updates are under masks that cancel, as numbers of questions, for each agent that masks.

    The server shows each agent a list of those that it likes, with that agent's own digest for all if it is ``forged``.
    Then it tries to deliver every set of shares, those of agents that were asked something else first.
    """
    group = next(iter(found.values())).unit.group
    keys = {name: unpacked(said(side, Phase.ANNOUNCE), Announcement, group) for name, side in found.items()}
    sent: dict[str, EncryptedShares] = {}
    for name, side in found.items():
        shown = [keys[other] for other in lists[name]]
        shown = [replace(one, inputs=keys[name].inputs) for one in shown] if forged else shown
        answer = said(side, Phase.SHARE, packed(AgentRoster(0, tuple(sorted(shown, key=lambda one: one.agent)))))
        if answer != REFUSED:
            sent[name] = unpacked(answer, EncryptedShares, group)
    together = []
    for name in sent:
        number = keys[name].agent
        others = [other for other in sent if other != name and number in sent[other].shares]
        sets = [set(some) for count in range(len(others) + 1) for some in itertools.combinations(others, count)]
        for some in sorted(sets, key=lambda some: all(asked[other] == asked[name] for other in some)):
            delivered = DeliveredShares(0, number, {keys[other].agent: sent[other].shares[number] for other in some})
            if type(said(found[name], Phase.MASK, packed(delivered))) is Masked:
                assert len(some) + 1 >= group.minimum
                together.append({asked[name], *(asked[other] for other in some)})
                break
    return together


@SOME
@given(st.data(), st.booleans(), st.sampled_from([32, 64]))
def test_whoever_was_asked_something_else_is_in_no_sum(data: st.DataObject, signed: bool, bits: int) -> None:
    count = data.draw(st.integers(3, 6))
    threshold = data.draw(st.integers(count // 2 + 1, count))
    found = agents_of(count, signed, bits, max(threshold, 2))
    several = data.draw(questions(3))
    asked = {name: data.draw(st.integers(0, len(several) - 1)) for name in found}
    for name, side in found.items():
        ask(side, several[asked[name]], count)
    forged = data.draw(st.booleans())
    alike = data.draw(st.booleans())
    lists = {name: [other for other in found if not alike or asked[other] == asked[name]] for name in found}
    together = masked_together(found, lists, asked, forged)
    assert all(len(numbers) == 1 for numbers in together)
    sizes = [list(asked.values()).count(number) for number in range(len(several))]
    if alike:  # whoever was asked the same goes on, if they are enough
        assert len(together) == sum(size for size in sizes if size >= found["node-0"].unit.group.minimum)


@SOME
@given(st.integers(3, 5), st.booleans(), st.data())
def test_an_agent_is_in_one_sum_of_a_round(count: int, signed: bool, data: st.DataObject) -> None:
    """Any number of lists, in any order: all who mask do so once, and two sums would share an agent."""
    found = agents_of(count, signed, 32, count // 2 + 1)
    for side in found.values():
        ask(side, ("model", None), count)
    group = found["node-0"].unit.group
    keys = {name: unpacked(said(side, Phase.ANNOUNCE), Announcement, group) for name, side in found.items()}
    answered: dict[str, tuple[str, ...]] = {}
    sets = [some for size in range(group.minimum, count + 1) for some in itertools.combinations(found, size)]
    for some in data.draw(st.permutations(sets)):
        roster = packed(AgentRoster(0, tuple(keys[name] for name in some)))
        for name in some:
            if said(found[name], Phase.SHARE, roster) != REFUSED:
                assert answered.setdefault(name, some) == some
    whole = [some for some in sets if all(answered[name] == some for name in some)]
    assert len(whole) <= 1
