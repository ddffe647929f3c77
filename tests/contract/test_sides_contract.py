"""What every data side keeps to, whatever leaves it and wherever it lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference.side_kinds import (
    CASES,
    CLIENTS,
    DATA,
    FREE,
    KINDS,
    MOST,
    NOTHING,
    OBJECTIVE,
    SCOPE,
    SERVER,
    SHARDS,
    WORLDS,
    Disk,
    KilledThere,
    KindOfSide,
    a_round,
    curated,
    model,
    pool_of,
)

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.privacy.tasks import StepSizes
from gossamer.randomness import Stream
from gossamer.sides.machine import Side
from gossamer.sides.plan import ClientUpdate
from gossamer.sides.pool import Pool, open_pool
from gossamer.vectors import Confined, Masked, Public, Released

CHARGED = [case for case in CASES if KINDS[case[0]].charged]
NOISY = [case for case in CASES if KINDS[case[0]].noisy]
BACK = [case for case in CHARGED if KINDS[case[0]].restarts and case[1] != "simulation"]


def ask(pool: Pool, kind: KindOfSide, number: int) -> Any:
    """The answer to the number-th task."""
    (found,) = pool.compute([pool.admit(kind.node, kind.task(pool, number))])
    return found.released


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Has every draw of a random number noted, in every world."""

    def note(noted: list[str]) -> None:
        at, secret = Stream.at, SecretRandomness.bytes
        monkeypatch.setattr(Stream, "at", lambda self, number: (noted.append("drawn"), at(self, number))[1])
        monkeypatch.setattr(
            SecretRandomness, "bytes", lambda self, count: (noted.append("drawn"), secret(self, count))[1]
        )

    return note


@pytest.mark.parametrize(("name", "world"), CHARGED)
def test_a_release_is_charged_before_anything_is_drawn(
    name: str, world: str, drawn: Callable[[list[str]], None]
) -> None:
    """At its admission it is charged and nothing is drawn; all that is drawn for it is drawn after that."""
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    task = kind.task(pool, 0)
    disk.noted.clear()
    drawn(disk.noted)
    ticket = pool.admit(kind.node, task)
    assert [what for what in disk.noted if what in ("charged", "drawn")] == ["charged"]
    pool.compute([ticket])
    assert "drawn" in disk.noted
    assert disk.noted.count("charged") == 1


@pytest.mark.parametrize(("name", "world"), CHARGED)
def test_what_is_beyond_the_plan_is_refused_and_nothing_is_drawn(
    name: str, world: str, drawn: Callable[[list[str]], None]
) -> None:
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    for number in range(MOST):
        assert type(ask(pool, kind, number)) is kind.label
    spent = pool.releases(kind.node)
    task = kind.task(pool, MOST)
    disk.noted.clear()
    drawn(disk.noted)
    with pytest.raises(BudgetSpent, match="refused"):
        pool.admit(kind.node, task)
    assert "drawn" not in disk.noted
    assert "charged" not in disk.noted
    assert pool.releases(kind.node) == spent


@pytest.mark.parametrize(("name", "world"), NOISY)
def test_no_two_releases_share_their_noise(name: str, world: str) -> None:
    """The same data, asked alike, with ids that the node may choose as it likes."""
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    found = [ask(pool, kind, number).values for number in range(MOST)]
    for at, first in enumerate(found):
        for second in found[:at]:
            assert not np.any(first == second)


@pytest.mark.parametrize(("name", "world"), CASES)
def test_no_ticket_has_two_different_answers(name: str, world: str) -> None:
    """Asked again it is refused, or is the very same bytes; its noise is not drawn for anything else."""
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    ticket = pool.admit(kind.node, kind.task(pool, 0))
    (first,) = pool.compute([ticket])
    charged = pool.releases(kind.node)
    kept = name in ("independent stream", "random walk", "masked member", "masked training")
    if name == "round" or (world == "deployment" and kind.charged and not kept):
        with pytest.raises(SpecError, match="answered once"):
            pool.compute([ticket])
    elif not (world == "deployment" and kind.label is Confined):
        (second,) = pool.compute([ticket])
        assert first == second
    # A deployed agent's coins cannot be repeated: asked again, its raw update is another one, inside its scope.
    assert pool.releases(kind.node) == charged


@pytest.mark.parametrize(("name", "world"), BACK)
def test_a_process_that_ends_after_a_charge_leaves_it_and_the_next_one_goes_on(name: str, world: str) -> None:
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    before = ask(pool, kind, 0)
    once = pool.releases(kind.node)
    pool.admit(kind.node, kind.task(pool, 1))  # and killed between the charge and the answer
    pool = pool_of(kind, disk)
    assert pool.releases(kind.node) == 2 * once
    after = ask(pool, kind, 1 if kind.node == SERVER and name != "curator" else 2)
    assert not np.any(before.values == after.values)
    assert pool.releases(kind.node) in (2 * once, 3 * once)


@pytest.mark.parametrize(("name", "world"), BACK)
def test_restarts_give_no_release_more_than_the_plan(name: str, world: str) -> None:
    kind, disk = KINDS[name], Disk(world)
    for number in range(MOST):
        ask(pool_of(kind, disk), kind, number)
    pool = pool_of(kind, disk)
    task = kind.task(pool, MOST)
    with pytest.raises(BudgetSpent, match="refused"):
        pool.admit(kind.node, task)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.charged and kind.restarts])
@pytest.mark.parametrize("point", ["charging a release", "drawing noise"])
def test_a_process_can_be_killed_at_every_point_and_never_charges_too_little(name: str, point: str) -> None:
    """Killed before the charge nothing is charged; killed before the noise, what was charged stays."""
    kind, disk = KINDS[name], Disk("laboratory")
    pool = pool_of(kind, disk)
    ask(pool, kind, 0)
    once = pool.releases(kind.node)
    task = kind.task(pool, 1)
    disk.killed_at = point
    with pytest.raises(KilledThere):
        pool.compute([pool.admit(kind.node, task)])
    disk.killed_at = ""
    assert pool_of(kind, disk).releases(kind.node) == (once if point == "charging a release" else 2 * once)


@pytest.mark.parametrize("world", ["deployment", "laboratory"])
def test_a_masked_member_that_came_back_enters_no_sum_again(world: str) -> None:
    """Its keys are gone, so a second vector of the same sum would have another mask; a later sum it enters."""
    kind, disk = KINDS["masked member"], Disk(world)
    pool = pool_of(kind, disk)
    task = kind.task(pool, 0)
    pool.admit("a", task)
    pool = pool_of(kind, disk)
    assert pool.releases("a") == 1
    (refused,) = pool.compute([pool.admit("a", task)])
    assert type(refused.released) is Public
    assert pool.releases("a") == 1
    assert type(ask(pool, kind, 1)) is Masked
    assert pool.releases("a") == 2


@pytest.mark.parametrize(("name", "world"), CHARGED)
def test_lines_say_whose_data_and_how_often(name: str, world: str) -> None:
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    for number in range(2):
        ask(pool, kind, number)
    (ledger,) = pool.ledgers
    lines = ledger.lines()
    assert lines
    assert all(line["releases"] == 2 for line in lines)
    assert all(line["mechanism"] for line in lines)
    assert kind.line.items() <= lines[0].items()
    if name == "curator":  # the third client was in no sum
        assert [line["node"] for line in lines] == list(CLIENTS[:2])


@pytest.mark.parametrize("world", WORLDS)
def test_a_ticket_is_amended_to_its_own_round_alone(world: str) -> None:
    kind, disk = KINDS["round"], Disk(world)
    pool = pool_of(kind, disk)
    task = a_round(pool, 0)
    ticket = pool.admit("a", task)
    for other in (
        replace(task, id=9),
        replace(task, step_sizes=StepSizes(0.4)),
        replace(task, query=replace(task.query, sampling=KINDS["curator"].task(pool, 0).query.sampling)),
    ):
        with pytest.raises(SpecError, match="another round"):
            pool.amended(ticket, other)
    (found,) = pool.compute([pool.amended(ticket, task.swapped(2, model(1.0), 4).cut(3))])
    assert type(found.released) is Released
    assert pool.releases("a") == 1
    with pytest.raises(SpecError, match="answered once"):
        pool.compute([ticket])  # as it was before


@pytest.mark.parametrize(("name", "world"), [case for case in CASES if case[0] != "round"])
def test_only_rounds_are_amended(name: str, world: str) -> None:
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    ticket = pool.admit(kind.node, kind.task(pool, 0))
    with pytest.raises(SpecError, match="rounds"):
        pool.amended(ticket, a_round(pool, 0))


@pytest.mark.parametrize(("name", "world"), CASES)
def test_only_what_has_a_receipt_leaves_its_trust_scope(name: str, world: str) -> None:
    """`Confined` comes from plans with a scope alone, and is never what was charged."""
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    found = ask(pool, kind, 0)
    assert type(found) is kind.label
    assert (type(found) is Confined) == (not kind.charged)
    assert type(found) is not Confined or (kind.plan.scope and kind.node in kind.plan.scope)
    if type(found) is Released:
        assert kind.charged


@pytest.mark.parametrize("world", WORLDS)
def test_a_plan_without_noise_is_counted_and_never_held_to(world: str) -> None:
    pool = pool_of(FREE, Disk(world))
    for number in range(2 * MOST):
        ask(pool, FREE, number)
    assert pool.releases("a") == 2 * MOST


@pytest.mark.parametrize("world", WORLDS)
def test_a_party_without_data_answers_nothing(world: str) -> None:
    pool = pool_of(NOTHING, Disk(world))
    with pytest.raises(SpecError, match="has no data in this run"):
        ask(pool, NOTHING, 0)
    assert pool.releases("a") == 0


@pytest.mark.parametrize(("name", "world"), CASES)
def test_what_a_side_does_not_do_it_refuses_and_charges_nothing(name: str, world: str) -> None:
    kind, disk = KINDS[name], Disk(world)
    pool = pool_of(kind, disk)
    strange = a_round(pool, 0) if name == "curator" else curated(pool, 0)
    with pytest.raises(SpecError, match=f"found {type(strange).__name__}"):
        pool.admit(kind.node, strange)
    assert pool.releases(kind.node) == 0
    assert "charged" not in disk.noted


@pytest.mark.parametrize("world", ["simulation", "laboratory"])
def test_all_kinds_share_a_pool(world: str) -> None:
    """Computed in one call, answers are in the order of the tickets."""
    disk = Disk(world)
    plans: dict[str, Any] = {
        "a": KINDS["gradient"].plan,
        "b": ClientUpdate(scope=SCOPE),
        SERVER: KINDS["random walk"].plan,
        "c": KINDS["noised update"].plan,
    }
    pool = open_pool(plans, SHARDS, OBJECTIVE, DATA, disk.home())
    asked = [("a", "gradient"), (SERVER, "random walk"), ("b", "raw update"), ("c", "noised update")]
    tickets = [pool.admit(node, KINDS[name].task(pool, 0)) for node, name in asked]
    found = [type(answer.released) for answer in pool.compute(tickets)]
    assert found == [KINDS[name].label for _, name in asked]


@pytest.mark.parametrize(("name", "world"), CHARGED)
def test_the_contract_finds_a_side_that_does_not_charge(
    name: str, world: str, drawn: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract itself fails, where it looks for the charge."""
    monkeypatch.setattr(Side, "charge", lambda self, receipt: self.releases)
    with pytest.raises(AssertionError, match="charged"):
        test_a_release_is_charged_before_anything_is_drawn(name, world, drawn)
    # A stream whose count stands still answers no second record, which is found as well.
    with pytest.raises((pytest.fail.Exception, SpecError), match=r"DID NOT RAISE|the next record is 0"):
        test_what_is_beyond_the_plan_is_refused_and_nothing_is_drawn(name, world, drawn)


def test_a_plan_that_shows_what_is_raw_to_others_than_the_party_trusts_is_refused() -> None:
    plans: dict[str, Any] = {name: ClientUpdate(scope=SCOPE) for name in CLIENTS}
    home = Disk("simulation").home()
    trust = dict.fromkeys((SERVER, *CLIENTS), SERVER)
    assert open_pool(plans, SHARDS, OBJECTIVE, DATA, home, trust=trust).sides
    for other in ({}, trust | {"c": "another"}, trust | {"d": SERVER}):
        with pytest.raises(
            SpecError, match=rf"what is raw of a stays with .*, and its plan shows it to a, b, c, {SERVER}"
        ):
            open_pool(plans, SHARDS, OBJECTIVE, DATA, home, trust=other)
