"""What agents of masked sums agree on: every public input of an update is in the digest, and far models are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from tests.unit.sides.test_masked_side import NAMES, ask, give_updates, sides

from gossamer.algorithms.graph_federated.nodes import Assignment
from gossamer.privacy.masking import FixedPoint, Group, Phase
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.privacy.tasks import REFUSED, LocalQuery, LocalUpdate, MaskingStep, TrainingQuery, UpdateQuery
from gossamer.sides.secure_unit import RoundTerms, SecureUnit, inputs_digest, secure_unit
from gossamer.vectors import Public, Released

SIZE = 5
QUERY = LocalQuery(2, 3, 0.1, 10.0)
TRAINING = TrainingQuery(2, 3, 0.1, 0.9, 0.5)


@dataclass(frozen=True)
class Question:
    """All that an agent's digest is made of."""

    unit: SecureUnit
    terms: RoundTerms
    members: tuple[str, ...]
    task: LocalUpdate

    @property
    def digest(self) -> bytes:
        return inputs_digest(self.unit, self.terms, self.members, self.task)


UNIT = secure_unit("unit", 1.0, 4, SIZE, bits=64, minimum=4, fraction_bits=20, agent_noise=2.0, run="run")
BASE = Question(
    UNIT,
    RoundTerms(b"agreed", {**dict.fromkeys(NAMES, QUERY), NAMES[3]: TRAINING}, 7, 100.0),
    NAMES,
    LocalUpdate(3, Public(np.arange(SIZE, dtype=np.float32)), QUERY),
)

Change = Callable[[Question, Any], Question]


INSIDE: dict[type, Callable[[Question], Any]] = {
    SecureUnit: lambda question: question.unit,
    Group: lambda question: question.unit.group,
    FixedPoint: lambda question: question.unit.fixed,
    AgentNoise: lambda question: question.unit.noise,
    RoundTerms: lambda question: question.terms,
    LocalQuery: lambda question: question.terms.queries[NAMES[2]],
    TrainingQuery: lambda question: question.terms.queries[NAMES[3]],
    LocalUpdate: lambda question: question.task,
}
PUT: dict[type, Change] = {
    SecureUnit: lambda question, new: replace(question, unit=new),
    Group: lambda question, new: replace(question, unit=replace(question.unit, group=new)),
    FixedPoint: lambda question, new: replace(question, unit=replace(question.unit, fixed=new)),
    AgentNoise: lambda question, new: replace(question, unit=replace(question.unit, noise=new)),
    RoundTerms: lambda question, new: replace(question, terms=new),
    LocalQuery: lambda question, new: replace(
        question, terms=replace(question.terms, queries={**question.terms.queries, NAMES[2]: new})
    ),
    TrainingQuery: lambda question, new: replace(
        question, terms=replace(question.terms, queries={**question.terms.queries, NAMES[3]: new})
    ),
    LocalUpdate: lambda question, new: replace(question, task=new),
}
OTHER: dict[tuple[type, str], Any] = {
    (SecureUnit, "group"): replace(UNIT.group, length=SIZE + 1),
    (SecureUnit, "fixed"): replace(UNIT.fixed, clip=UNIT.fixed.clip / 2),
    (SecureUnit, "reach"): np.nextafter(1.0, 2.0).item(),
    (SecureUnit, "noise"): None,
    (Group, "size"): 5,
    (Group, "length"): SIZE - 1,
    (Group, "bits"): 32,
    (Group, "threshold"): 4,
    (Group, "minimum"): 3,
    (Group, "context"): b"another",
    (Group, "signed"): False,
    (FixedPoint, "clip"): np.nextafter(UNIT.fixed.clip, 0.0).item(),
    (FixedPoint, "group"): 3,
    (FixedPoint, "bits"): 32,
    (FixedPoint, "fraction_bits"): 4,
    (AgentNoise, "scale"): 12345,
    (AgentNoise, "sensitivity"): 1.5,
    (AgentNoise, "size"): SIZE + 1,
    (RoundTerms, "agreed"): b"another",
    (RoundTerms, "queries"): {**BASE.terms.queries, NAMES[0]: replace(QUERY, steps=1)},
    (LocalQuery, "steps"): 1,
    (LocalQuery, "batch"): 4,
    (LocalQuery, "rate"): np.nextafter(0.1, 1.0).item(),
    (LocalQuery, "clip"): 9.0,
    (TrainingQuery, "steps"): 1,
    (TrainingQuery, "batch"): 4,
    (TrainingQuery, "rate"): np.nextafter(0.1, 1.0).item(),
    (TrainingQuery, "momentum"): np.nextafter(0.9, 1.0).item(),
    (TrainingQuery, "proximal"): np.nextafter(0.5, 1.0).item(),
    (LocalUpdate, "id"): 4,
    (LocalUpdate, "model"): Released(np.arange(SIZE, dtype=np.float32)),
}
ELSEWHERE = {
    (RoundTerms, "rounds"): "decides whether an agent answers, and is in the spec",
    (RoundTerms, "radius"): "the same; computed in floating point, it may differ in its last bits",
    (LocalUpdate, "query"): "an agent answers the one that the terms have for it, and no other",
}
"""What is not in the digest, and why."""


def test_these_are_all_inputs() -> None:
    """A field that is added to any of these is in one of the tables, or this fails."""
    assert set(OTHER) | set(ELSEWHERE) == {(kind, field.name) for kind in INSIDE for field in fields(kind)}
    assert not set(OTHER) & set(ELSEWHERE)
    assert {field.name for field in fields(Question)} == {"unit", "terms", "members", "task"}


@pytest.mark.parametrize(("kind", "field"), OTHER, ids=lambda value: getattr(value, "__name__", value))
def test_every_input_changes_the_digest(kind: type, field: str) -> None:
    inside = INSIDE[kind](BASE)
    assert getattr(inside, field) != OTHER[kind, field]
    changed = PUT[kind](BASE, replace(inside, **{field: OTHER[kind, field]}))
    assert changed.digest != BASE.digest
    assert len(changed.digest) == 32


@pytest.mark.parametrize(
    "model",
    [
        np.arange(SIZE, dtype=np.float64),
        np.array([0, 1, 2, 3, np.nextafter(np.float32(4), np.float32(5))], np.float32),
        np.array([-0.0, 1, 2, 3, 4], np.float32),
        np.array([0, 1, 2, 4, 3], np.float32),
        np.arange(SIZE + 1, dtype=np.float32),
    ],
)
def test_the_model_is_in_it_to_the_last_bit(model: np.ndarray) -> None:
    assert replace(BASE, task=replace(BASE.task, model=Public(model))).digest != BASE.digest


@pytest.mark.parametrize("members", [NAMES[:3], tuple(reversed(NAMES)), (*NAMES[:3], "node-9")])
def test_who_takes_part_is_in_it(members: tuple[str, ...]) -> None:
    terms = replace(BASE.terms, queries={**BASE.terms.queries, "node-9": QUERY})
    assert replace(BASE, members=members, terms=terms).digest != BASE.digest


def test_it_is_the_same_for_all_who_are_asked_the_same() -> None:
    """Members may be asked for other numbers of steps each: their own query is in nobody's task alone."""
    queries = {name: replace(QUERY, steps=number) for number, name in enumerate(NAMES, 1)}
    terms = replace(BASE.terms, queries=queries)
    tasks = [replace(BASE.task, query=query) for query in queries.values()]
    assert len({replace(BASE, terms=terms, task=task).digest for task in tasks}) == 1
    again = Question(
        replace(UNIT), replace(BASE.terms), (*NAMES,), replace(BASE.task, model=Public(BASE.task.model.values.copy()))
    )
    assert again.digest == BASE.digest


# What is answered at all


def allowed(task: LocalUpdate) -> bool:
    return BASE.terms.allow(NAMES[0], task)


@pytest.mark.parametrize(
    ("length", "expected"), [(0.0, True), (99.9, True), (100.0, True), (100.1, False), (1e12, False), (np.inf, False)]
)
def test_models_within_the_radius(length: float, expected: bool) -> None:
    for dtype in (np.float32, np.float64):
        values = np.zeros(SIZE, dtype)
        values[3] = -length
        assert allowed(replace(BASE.task, model=Public(values))) is expected


def test_a_model_that_is_no_number_has_no_length() -> None:
    assert not allowed(replace(BASE.task, model=Public(np.array([0, 1, np.nan, 0, 0], np.float32))))


def test_a_long_model_of_short_entries_is_beyond_it() -> None:
    assert not allowed(replace(BASE.task, model=Public(np.full(SIZE, 45.0))))
    assert allowed(replace(BASE.task, model=Public(np.full(SIZE, 44.0))))


@pytest.mark.parametrize(("round", "expected"), [(-1, False), (0, True), (6, True), (7, False), (2**53, False)])
def test_rounds_of_the_run(round: int, expected: bool) -> None:
    assert allowed(replace(BASE.task, id=round)) is expected


@pytest.mark.parametrize(
    ("name", "query", "field"),
    [(name, query, at.name) for name, query in ((NAMES[0], QUERY), (NAMES[3], TRAINING)) for at in fields(query)],
)
def test_no_other_query(name: str, query: UpdateQuery, field: str) -> None:
    assert BASE.terms.allow(name, replace(BASE.task, query=query))
    other = replace(query, **{field: OTHER[type(query), field]})
    assert not BASE.terms.allow(name, replace(BASE.task, query=other))


def test_no_other_kind_of_query() -> None:
    """A training of as many steps, examples and the same rate is another question, in the digest too."""
    assert not BASE.terms.allow(NAMES[0], replace(BASE.task, query=TRAINING))
    assert not BASE.terms.allow(NAMES[3], replace(BASE.task, query=QUERY))
    alike = TrainingQuery(QUERY.steps, QUERY.batch, QUERY.rate)
    assert PUT[LocalQuery](BASE, alike).digest != PUT[LocalQuery](BASE, replace(QUERY, clip=np.inf)).digest


# What comes from the server


def test_a_server_decides_on_nothing_else() -> None:
    """Of its messages a round and a model reach the update, and a round, a step and bytes the messages about masks."""
    assert {field.name for field in fields(Assignment)} == {"round", "model"}
    assert {field.name for field in fields(MaskingStep)} == {"round", "step", "incoming", "answer_size", "bits"}
    found = sides()
    give_updates(found)
    first = ask(found["node-0"], Phase.ANNOUNCE)
    for size, bits in ((1, 8), (10**6, 32), (0, 64)):
        assert found["node-0"].admit(MaskingStep(0, 0, REFUSED, size, bits)).answer().released == first
    assert ask(found["node-0"], Phase.ANNOUNCE, Public(np.ones(1, np.uint8))) == REFUSED


def test_the_update_under_the_masks_is_the_one_of_the_digest() -> None:
    """Asked first at one model and then at another, an agent announces and masks what it was asked first."""
    found = sides()
    side = found["node-0"]
    for start, value in ((0.0, 0.25), (1.0, -0.25)):
        task = LocalUpdate(0, Public(np.full(SIZE, start)), side.terms.queries["node-0"])
        side.answer(task, np.full(SIZE, value))
    assert side._round is not None
    assert side._round.update.tolist() == [0.25] * SIZE
    first = LocalUpdate(0, Public(np.zeros(SIZE)), side.terms.queries["node-0"])
    assert side._round.agent.inputs == inputs_digest(side.unit, side.terms, NAMES, first)
