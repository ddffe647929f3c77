"""Loops inside other libraries: events of ``dp_accounting`` as they are charged, and what a mod lets out of a client.

Messages here are stand-ins; `tests/end_to_end/test_flower_mod.py` has Flower's own.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant

import gossamer as gs
from gossamer.errors import GossamerError

pytestmark = pytest.mark.filterwarnings("ignore:a new ledger:gossamer.errors.RunWarning")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "wards.csv").write_text("age,label\n" + "".join(f"{row},{row % 5}\n" for row in range(60)))
    path = tmp_path / "policy.yaml"
    path.write_text("data: {wards: {epsilon: 10, delta: 1.0e-5, path: wards.csv}}\n")
    return path


SAMPLED = SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.5)), 20)
THREE = SelfComposedDpEvent(ComposedDpEvent([GaussianDpEvent(8.0)]), 3)
EVENT = ComposedDpEvent([SAMPLED, GaussianDpEvent(6.0), THREE])


@pytest.mark.parametrize("event", [GaussianDpEvent(2.0), SAMPLED, EVENT])
def test_an_event_is_charged_as_what_it_consists_of(event: Any, policy: Path) -> None:
    """Epsilon is that of dp_accounting's own accountant of the event: both round up, by at most 2 in 1,000 here."""
    other = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
    plan = gs.releases_of(event)
    with gs.LoopLedger(policy, "loop", plan) as ledger:
        assert ledger.guarantee.epsilon == pytest.approx(other.get_epsilon(1e-5), rel=2e-3)
        gs.charge_event(ledger, event)
        assert ledger.releases == sum(one.number for one in plan)
        with pytest.raises(gs.BudgetSpent):
            gs.charge_event(ledger, GaussianDpEvent(9.0))


@pytest.mark.parametrize(
    "event",
    [
        LaplaceDpEvent(1.0),
        NoOpDpEvent(),
        PoissonSampledDpEvent(0.5, ComposedDpEvent([GaussianDpEvent(1.0)])),  # of one sample, so no composition
        ComposedDpEvent([GaussianDpEvent(1.0), LaplaceDpEvent(1.0)]),
        SelfComposedDpEvent(GaussianDpEvent(1.0), 0),
        "an event",
    ],
)
def test_another_event_is_refused_by_name(event: Any) -> None:
    with pytest.raises(GossamerError) as refused:
        gs.releases_of(event)
    named = "number" if isinstance(event, SelfComposedDpEvent) else "found "
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


class Array:
    def __init__(self, values: Any) -> None:
        assert isinstance(values, np.ndarray)  # or Flower refuses it
        self._values = values

    def numpy(self) -> Any:
        return self._values


class ArrayRecord(dict[str, Array]):
    pass


class Content(dict[str, Any]):
    @property
    def array_records(self) -> dict[str, ArrayRecord]:
        return {name: one for name, one in self.items() if isinstance(one, ArrayRecord)}


def message(kind: str = "train", **records: Any) -> Any:
    return SimpleNamespace(content=Content(records), metadata=SimpleNamespace(message_type=kind))


def model(w: Any, seen: int = 0, dtype: Any = np.float32) -> ArrayRecord:
    w = np.asarray(w, dtype)
    return ArrayRecord(w=Array(w[1:]), first=Array(np.array(w[0])), seen=Array(np.array(seen)))


def answered(mod: Any, move: Any, **more: Any) -> Any:
    """What leaves the mod of a client that moves the model [ones of 10] so, and tells what it has seen."""
    told = {"metrics": {"num-examples": 48, "train_loss": 0.25}, **more}
    asked = message(arrays=model(np.ones(10)))
    return mod(asked, None, lambda *_: message(arrays=model(np.ones(10) + move, seen=48), **told))


def test_an_update_leaves_clipped_noised_and_charged_with_nothing_beside_it(policy: Path) -> None:
    """Noise of 0.2 in 10 numbers is at most 6 deviations off in all but 2 of 10^8 runs; they were moved by 3."""
    with gs.LoopLedger(policy, "mod", gs.Releases(1, 2.0), clip=0.1) as ledger:
        mod = gs.FlowerMod(ledger, 2.0)
        content = answered(mod, np.full(10, 3.0), status={"code": 0, "message": "48 rows"}).content
        assert ledger.releases == 1
        moved = content["arrays"]["w"].numpy() - 1
        np.testing.assert_allclose(moved, 0.05 / 10**0.5, atol=6 * 0.2)
        assert moved.std() > 0.03  # below which 10 such numbers are in 1 of 10^6 runs
        assert content["arrays"]["w"].numpy().dtype == np.float32
        assert content["arrays"]["seen"].numpy() == 0  # as it was sent
        assert content["metrics"] == {"num-examples": 1}
        assert content["status"] == {"code": 0, "message": ""}
        with pytest.raises(gs.BudgetSpent):
            answered(mod, 0.0)


@pytest.mark.parametrize(("relation", "length"), [("add_or_remove_one", 0.5), ("replace_one", 1.0)])
def test_updates_are_as_long_as_the_relation_allows(
    relation: str, length: float, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates are up to twice their length apart: a clip where a row comes, two where one is replaced."""
    text = policy.read_text().replace("{epsilon: 10", f"{{relation: {relation}, epsilon: 10")
    policy.write_text(text)
    given = []
    monkeypatch.setattr(
        "gossamer.loops.guests.GridGaussian.release", lambda self, update, words: given.append(update) or update
    )
    with gs.LoopLedger(policy, "mod", gs.Releases(3, 4.0), clip=1.0) as ledger:
        mod = gs.FlowerMod(ledger, 4.0)
        for move in (np.full(10, 3.0), np.full(10, np.nan), np.full(10, 1e-3)):
            answered(mod, move)
    lengths = [float(np.linalg.norm(one)) for one in given]
    assert lengths == [pytest.approx(length, rel=1e-6), 0, pytest.approx(1e-3 * 10**0.5, rel=1e-3)]


def test_what_is_no_update_is_refused_and_not_charged(policy: Path) -> None:
    with gs.LoopLedger(policy, "mod", gs.Releases(3, 4.0)) as ledger:
        mod = gs.FlowerMod(ledger, 4.0)
        with pytest.raises(GossamerError, match="a server asked to evaluate; let it test by itself"):
            mod(message("evaluate", arrays=model(np.ones(10))), None, lambda *_: pytest.fail("the app was asked"))
        with pytest.raises(GossamerError, match="one model in a message, an ArrayRecord, found 2"):
            mod(message(arrays=model(np.ones(10)), more=model(np.ones(10))), None, lambda *_: pytest.fail("asked"))
        with pytest.raises(GossamerError, match="expected arrays of floating-point numbers, found none"):
            mod(message(arrays=model(np.ones(10), dtype=np.int64)), None, lambda *_: pytest.fail("the app was asked"))
        assert ledger.releases == 0


def failing(*_: Any) -> Any:
    raise ValueError("could not convert string to float: 'Jane Doe'")


@pytest.mark.parametrize(
    ("app", "why"),
    [
        (failing, "Jane Doe"),
        (lambda *_: message(arrays=model(np.ones(3))), r"sent, .*\(9,\).*, found .*\(2,\)"),
        (lambda *_: message(arrays=model(np.ones(10)), more=model(np.ones(10))), "an ArrayRecord, found 2"),
        (lambda *_: message(arrays=model(["Jane Doe"] * 10, dtype=object)), "Cannot cast"),
    ],
)
def test_a_client_that_fails_is_charged_and_its_words_stay_at_home(app: Any, why: str, policy: Path) -> None:
    """A SuperNode sends the words of whatever is raised to the server, and keeps its causes in its own log.

    Were it not charged, a server could have it fail by models of its choice as often as it wants to know something.
    """
    with gs.LoopLedger(policy, "mod", gs.Releases(2, 4.0)) as ledger:
        mod = gs.FlowerMod(ledger, 4.0)
        with pytest.raises(GossamerError) as told:
            mod(message(arrays=model(np.ones(10))), None, app)
        assert str(told.value) == "this client failed, or gave no model such as it was sent; see its own log"
        with pytest.raises(Exception, match=why):
            raise told.value.__cause__ or told.value
        assert ledger.releases == 1


def test_an_app_is_not_asked_once_the_plan_is_used_up(policy: Path) -> None:
    with gs.LoopLedger(policy, "mod", gs.Releases(1, 4.0)) as ledger:
        answered(mod := gs.FlowerMod(ledger, 4.0), 0.0)
        with pytest.raises(gs.BudgetSpent):
            mod(message(arrays=model(np.ones(10))), None, lambda *_: pytest.fail("the app was asked"))


def test_an_app_that_changes_what_it_was_sent_moves_no_more_by_it(policy: Path) -> None:
    """Noise of 0.2 in 10 numbers is at most 6 deviations off in all but 2 of 10^8 runs; they were moved by 300."""

    def train(asked: Any, _: Any) -> Any:
        for array in asked.content["arrays"].values():
            array.numpy()[...] += 300
        return message(arrays=asked.content["arrays"])

    with gs.LoopLedger(policy, "mod", gs.Releases(1, 2.0), clip=0.1) as ledger:
        sent = gs.FlowerMod(ledger, 2.0)(message(arrays=model(np.ones(10))), None, train).content["arrays"]
    assert np.abs(sent["w"].numpy() - 1).max() < 0.05 + 6 * 0.2
    assert sent["seen"].numpy() == 0


def test_each_message_may_have_a_process_of_its_own(policy: Path) -> None:
    """As SuperNodes have them: what one had charged ahead, by default 5 of 100 here, would be lost at its end."""
    for number in range(1, 4):
        with gs.LoopLedger(policy, "mod", gs.Releases(100, 40.0)) as ledger:
            answered(gs.FlowerMod(ledger, 40.0), 0.0)
            assert ledger.releases == number


@pytest.mark.parametrize("number", [np.inf, np.nan, 65504])
def test_what_a_server_sends_is_no_reason_to_fail(number: float, policy: Path) -> None:
    """Warnings are errors here: of infinity less infinity, and of sums that float16 cannot hold."""
    with gs.LoopLedger(policy, "mod", gs.Releases(1, 4.0), clip=1e4) as ledger:
        asked = message(arrays=model(np.full(10, number), dtype=np.float16))
        sent = gs.FlowerMod(ledger, 4.0)(asked, None, lambda asked, _: message(arrays=asked.content["arrays"]))
    assert np.isfinite(sent.content["arrays"]["w"].numpy()).all()
