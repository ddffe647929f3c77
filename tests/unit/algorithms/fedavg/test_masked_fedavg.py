"""FedAvg with masks: the model without them, noise that is shared, and what a server that is not trusted is sent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.masked_messages import check_masked

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Leave, Newest
from gossamer.algorithms.clients.planning import ALONE
from gossamer.algorithms.masked_round import MaskingReply
from gossamer.algorithms.plan import EVERYBODY, Plan
from gossamer.cli import main
from gossamer.errors import PeerError, RunWarning
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import nodes_of, prepare
from gossamer.experiment.results.records import Result
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.masking import MaskedSum
from gossamer.privacy.masking import Phase as MaskingStep
from gossamer.privacy.masking.sums import reply_bytes
from gossamer.protocol.effects import Record, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Elapsed, PeerDown, PeerUp, Received, Resumed, Started
from gossamer.protocol.node import restore_state, state_of
from gossamer.sides.masked_side import MemberRule
from gossamer.sides.plan import Trust
from gossamer.sides.secure_unit import SecureUnit
from gossamer.vectors import Blank, Masked, Public

CLIP, SIZE = 10.0, 650
ALL_SIX = [f"node-{number}" for number in range(6)]
FELLOW = "node-1"
GONE = [{"node": 1, "start": 0.0}, {"node": 4, "start": 0.0}]


def spec(masking: Any = None, privacy: Any = None, gone: Any = (), budget: Any = None, **algorithm: Any) -> Any:
    given = {"name": "fedavg", "nodes": 6, "rounds": 3, "local_steps": 4, "batch_size": 1000, **algorithm}
    return parse_spec(
        {
            "dataset": "digits",
            "algorithm": given if masking is None else {**given, "masking": masking},
            "privacy": privacy or {"mechanism": "none", "clip": CLIP},
            **({} if budget is None else {"budget": budget}),
            **({"faults": {"absences": list(gone)}} if gone else {}),
        }
    )


def model(found: Result) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in found.model.values()]).astype(np.float64)


def planned(**changes: Any) -> Plan:
    found = plan_run(prepare(spec(**changes)))
    return found


@pytest.mark.parametrize("gone", [(), GONE])
def test_masked_sums_give_the_model_without_masks_to_the_rounding_of_integers(gone: Any) -> None:
    """A third of six clients vanishes in one case. Steps are on all of a client's data, as no two runs share shuffles.

    An update becomes integers of 2^-16, each within half a step; so does the mean, and a client whose updates no clip
    shortens passes on an error of its model at most, as steps of a convex smooth loss do not expand: three rounds add
    up to 3/2 steps, in L2 norm sqrt(d) times that. float32, in sums of another order, adds a hundredth of that at most.
    """
    options = {"gone": gone, "timeout": 50.0}
    plain = model(run(spec(**options)))
    found = run(spec({"name": "secure", "fraction_bits": 16}, **options))
    assert found.summary["fedavg"] == {"steps": 3, "masked_sums_refused": 0}
    off = model(found) - plain
    assert 0 < np.linalg.norm(off) <= 1.01 * 1.5 * math.sqrt(SIZE) * 2.0**-16
    assert np.abs(plain - model(run(spec(rounds=1, **options)))).max() > 0.01  # it has learnt something


def test_below_the_threshold_nothing_is_unmasked_and_the_model_stays() -> None:
    gone = [*GONE, {"node": 2, "start": 0.0}]
    with pytest.warns(RunWarning, match="made 0 of 3 rounds: in 3 rounds nobody answered, or there was no sum"):
        found = run(spec("secure", gone=gone, timeout=50.0))
    with pytest.warns(RunWarning, match="made 0 of 1 round"):
        start = run(spec(rounds=1, gone=[{"node": n, "start": 0.0} for n in range(6)], timeout=1.0, masking="secure"))
    assert found.summary["fedavg"] == {"steps": 3, "masked_sums_refused": 3}
    assert found.summary["status"] == "incomplete"
    assert found.summary["shortfall"] == {"rounds": 0, "planned": 3, "empty": 3}
    np.testing.assert_array_equal(model(found), model(start))


def pushing(monkeypatch: pytest.MonkeyPatch, vector: Callable[[SecureUnit], np.ndarray]) -> None:
    """Have one client mask another vector than its update, whatever it was to encode."""
    honest = MemberRule._encoded

    def encoded(side: MemberRule, kept: Any) -> Any:
        if side._name != FELLOW:
            return honest(side, kept)
        return np.rint(vector(side.unit) / side.unit.fixed.resolution).astype(np.int64).astype(side.unit.group.dtype)

    monkeypatch.setattr(MemberRule, "_encoded", encoded)


NOISY = {"clip": CLIP, "noise_multiplier": 0.5}


@pytest.mark.parametrize("privacy", [None, NOISY])
def test_a_sum_longer_than_honest_clients_can_make_it_is_counted_and_not_applied(
    monkeypatch: pytest.MonkeyPatch, privacy: Any
) -> None:
    """One of six pushes 500 in each of 650 numbers, 12,700 long: integers of the range, and so is their sum.

    Updates are 10 long at most. With noise of 5 in a number of each, six add up to a length of 60 and
    5 sqrt(6) (sqrt(650) + sqrt(128 log 2)) = 428 but for a probability of 2^-64.
    """
    options = {"rounds": 2, "local_steps": 1}
    masking = {"name": "secure", "fraction_bits": 10}
    pushing(monkeypatch, lambda unit: np.full(SIZE, 500.0))
    with pytest.warns(RunWarning) as warned:
        found = run(spec(masking, privacy, **options))
    assert [str(one.message)[:25] for one in warned] == ["the run made 0 of 2 round", "2 masked sums were longer"]
    monkeypatch.undo()
    assert found.summary["fedavg"] == {"steps": 2, "masked_sums_refused": 0, "masked_sums_out_of_range": 2}
    gone = [{"node": n, "start": 0.0} for n in range(6)]
    with pytest.warns(RunWarning, match="made 0 of 2 rounds"):
        start = run(spec("secure", privacy, gone=gone, timeout=1.0, **options))
    np.testing.assert_array_equal(model(found), model(start))


def test_what_a_fellow_pushes_within_the_range_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take the place of all six: the sum of six updates of length 10 has a length of 60, less the others'."""
    options = {"rounds": 1, "local_steps": 1, "local_learning_rate": 1e-9}
    pushing(monkeypatch, lambda unit: np.r_[0.99 * 6 * CLIP, np.zeros(SIZE - 1)])
    found = run(spec({"name": "secure", "fraction_bits": 10}, **options))
    monkeypatch.undo()
    assert "masked_sums_out_of_range" not in found.summary["fedavg"]
    moved = model(found) - model(run(spec(**options)))
    assert abs(moved).max() == pytest.approx(0.99 * CLIP, rel=1e-3)


def test_the_noise_that_a_third_leaves_behind_is_what_is_counted() -> None:
    """All others honest, h = 4 of 6: then a sum of four has z C of noise, measured on 650 numbers to 2.8 % (1 sd)."""
    noisy = {"clip": CLIP, "noise_multiplier": 3.0}
    masking = {"name": "secure", "honest": 1.0}
    options = {"gone": GONE, "timeout": 50.0, "rounds": 1}
    plan = planned(masking=masking, privacy=noisy, **options)
    assert plan.figures["honest_clients_counted"] == 4
    for gone, left in ((GONE, 4), ((), 6)):
        exact = model(run(spec(masking, **{**options, "gone": gone})))
        noise = (model(run(spec(masking, noisy, **{**options, "gone": gone}))) - exact) * left
        counted = 3.0 * CLIP
        # Five standard deviations of the estimate, so 3e-7 by chance; 14 % more or less noise would be seen.
        assert abs(noise.std() / (counted * math.sqrt(left / 4)) - 1) < 5 / math.sqrt(2 * SIZE)


def reference(noise: Any, honest: int, sums: int, delta: float) -> float:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    multiplier = noise.scale * math.sqrt(honest) / noise.sensitivity
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(multiplier), sums))
    return float(accountant.get_epsilon(delta))


@pytest.mark.some(1)
@pytest.mark.parametrize(("honest", "h"), [(None, 1), (0.8, 3), (1.0, 4)])
def test_what_is_proved_is_what_dp_accounting_finds_for_the_same_sums(honest: float | None, h: int) -> None:
    """Of h clients' noise, whoever else adds some; and of a client's own, against all others."""
    masking = {"name": "secure"} if honest is None else {"name": "secure", "honest": honest}
    plan = planned(masking=masking, privacy={"clip": 0.5, "noise_multiplier": 6.0}, nodes=6, rounds=8)
    assert plan.figures["honest_clients_counted"] == h
    noise, delta = plan.side("node-0").noise, plan.guarantee.delta
    assert plan.guarantee.epsilon == pytest.approx(reference(noise, h, 8, delta), rel=0.01)
    # What counts others' noise holds against no client that knows some of it, so it is not called "everybody".
    assert set(plan.guarantees) == ({EVERYBODY} if h == 1 else {"server", ALONE})
    if h > 1:
        assert plan.guarantees[ALONE].epsilon == pytest.approx(reference(noise, 1, 8, delta), rel=0.01)
    # The law is that of what is counted, as for clients that noise their updates by themselves.
    law = next(iter(plan.mechanisms.values()))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(
        SelfComposedDpEvent(GaussianDpEvent(law.noise_multiplier / 2), 8)
    )
    assert plan.guarantee.epsilon == pytest.approx(accountant.get_epsilon(delta), rel=0.01)


def test_colluders_are_no_part_of_the_noise_that_is_counted() -> None:
    """30 in a round, of whom 20 answer at least: 0.75 of 30 leave 7 that may collude, and 13 whose noise is sure."""
    plan = planned(masking={"name": "secure", "honest": 0.75}, privacy={"clip": 0.5, "noise_multiplier": 6.0}, nodes=30)
    some: Any = plan.side("node-00")
    assert (some.bound.group.minimum - some.honest, some.honest) == (7, 13)
    each = some.noise.scale * some.bound.fixed.resolution
    assert each * math.sqrt(13) == pytest.approx(6.0 * 0.5, rel=1e-6)
    relation = plan.guarantee.neighboring_relation
    alone, shared = (some.revealed(trust).divergence(4.0, relation) for trust in (Trust.NOBODY, Trust.SCOPE))
    assert alone / shared == pytest.approx(13)


def test_being_drawn_by_public_coins_amplifies_nothing() -> None:
    """Who is drawn in R rounds of many pays as one who is in R rounds of R."""
    masking = {"name": "secure", "honest": 0.9}
    privacy = {"clip": 0.5, "noise_multiplier": 6.0}
    plan = planned(masking=masking, privacy=privacy, nodes=12, clients_per_round=6, rounds=16)
    names = tuple(plan.mechanisms)
    drawn = Counter(name for round in range(16) for name in plan.side("node-00").coins(round))
    assert {name: plan.releases[name] for name in names} == {name: drawn[name] for name in names}
    assert max(drawn.values()) < 16
    for name in names:
        whole = planned(masking=masking, privacy=privacy, nodes=6, rounds=drawn[name])
        assert plan.epsilons[name] == pytest.approx(whole.guarantee.epsilon, rel=1e-9)


@pytest.mark.parametrize("honest", [None, 0.9])
def test_a_budget_is_met_and_hardly_less(honest: float | None) -> None:
    masking = {"name": "secure"} if honest is None else {"name": "secure", "honest": honest}
    plan = planned(masking=masking, privacy={"clip": 0.5}, budget={"epsilon": 3.0, "delta": 1e-4})
    assert 2.98 < plan.guarantee.epsilon <= 3.0


def test_a_server_is_sent_nothing_but_masks_and_keys(tmp_path: Path) -> None:
    """All messages of a run that reach it: no vector that is not masked is as long as an update."""
    trace = tmp_path / "trace"
    noisy = {"clip": CLIP, "noise_multiplier": 1.0}
    run(spec({"name": "secure", "honest": 0.9}, noisy, gone=GONE, timeout=50.0), trace=trace)
    check_masked(trace, {Fetch, MaskingReply}, 3 * 4, SIZE)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (
            {"masking": {"name": "secure", "threshold": 8}},
            "algorithm.masking of server: a threshold must be more than half of the 6 agents, and no more than all",
        ),
        ({"masking": {"name": "secure", "threshold": 3}}, "more than half of the 6 agents"),
        (
            {"masking": {"name": "secure", "minimum": 3}},
            "a minimum lies between the threshold 4 and the 6 agents, found 3",
        ),
        (
            {"masking": "secure", "clients_per_round": 1},
            "masks need 2 to 65535 agents to hide among, found 1",
        ),
        (
            {"masking": {"name": "secure", "honest": 0.5, "threshold": 5, "minimum": 3}},
            "a minimum lies between the threshold 5 and the 6 agents, found 3",
        ),
        (
            {"masking": {"name": "secure", "honest": 0.5, "threshold": 5, "minimum": 2}},
            "a minimum lies between the threshold 5 and the 6 agents, found 2",
        ),
        ({"masking": {"name": "secure", "honest": 0.5}}, "masks with a threshold of 4 hold against 1 at most"),
        ({"masking": {"honest": 0.5}}, "honest belongs to secure, found none"),
        ({"masking": "secure", "noise_by": "server", "trusted": "server"}, "leave one of the two out"),
        ({"masking": "secure", "cohorts": "secret"}, "clients mask with the others of their round"),
        ({"masking": "secure", "clients_per_round": 3, "over_selection": 1.5}, "nobody who has masked is cut off"),
        ({"masking": "secure", "weights": "declared"}, "masked updates count alike"),
        ({"masking": "secure", "name": "fedasync"}, "there is no sum to hide it in"),
    ],
)
def test_what_does_not_go_with_masks_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: dict[str, Any], expected: str
) -> None:
    """Also more clients than there are for the threshold."""
    content = {
        "dataset": "digits",
        "algorithm": {"name": "fedavg", "nodes": 6, **algorithm},
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    assert main(["check", str(tmp_path / "spec.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert expected in line


def nodes(**algorithm: Any) -> dict[str, Any]:
    prepared = prepare(spec("secure", **algorithm))
    return nodes_of(prepared, plan_run(prepared))


def test_a_client_refuses_a_round_that_no_run_gets_to() -> None:
    """The steps of its sum would have numbers that no store can hold, and the client would end."""
    node = nodes()["node-0"]
    node.handle(Started(), 0.0)
    with pytest.raises(PeerError, match="server sends version 4611686018427387904"):
        node.handle(Received(SERVER, Newest(node.state.request, 2**62, node.state.w)), 1.0)
    assert node.state.version == -1


def test_a_server_that_comes_back_before_it_began_begins() -> None:
    node = nodes()[SERVER]
    node.handle(Received("node-0", Fetch(1)), 0.0)
    effects = node.handle(Resumed(1.0), 1.0)
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["node-0"]
    assert len(node.state.waiting) == 6


def waiting_server(late: str | None = "skipped", *, blank: bool = True, timeout: float | None = 5.0) -> Any:
    """A server that all six clients have asked, and whose messages have no content."""
    node = nodes(timeout=timeout, late=late, rounds=9)[SERVER]
    node.state.x = Public(Blank(SIZE)) if blank else node.state.x
    node.handle(Started(), 0.0)
    for name in ALL_SIX:
        node.handle(Received(name, Fetch(1)), 0.0)
    return node


def reply(node: Any) -> MaskingReply:
    """A reply to the step under way, as long as it is."""
    group, asked = node.unit.group, node.state.sum
    size = reply_bytes(group, asked.step, len(asked.participants or asked.eligible))
    if asked.step == MaskingStep.MASK:
        return MaskingReply(node.state.t, asked.step, Masked(Blank(size // (group.bits // 8), group.dtype)))
    return MaskingReply(node.state.t, asked.step, Public(Blank(size, np.uint8)))


def given(node: Any, event: Any) -> list[str]:
    """Have an event happen; who is given a model then."""
    effects = node.handle(event, 0.0)
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Newest)]


def told(node: Any, name: str) -> list[str]:
    """Have a client reply at the step under way; who is given a model then."""
    return given(node, Received(name, reply(node)))


def whole_round(node: Any, names: Sequence[str]) -> list[str]:
    """Have these clients take all five steps; who is given a model in the next round."""
    asked = [told(node, name) for _ in range(5) for name in names]
    return asked[-1]


def test_a_client_that_was_late_is_waited_for_in_each_sum_or_until_it_is_heard_of_again() -> None:
    others = ALL_SIX[:5]
    for late in (None, "awaited", "skipped"):
        node = waiting_server(late)
        for name in others:
            told(node, name)
        node.handle(Elapsed("step"), 5.0)  # without node-5
        assert node.state.sum.step == MaskingStep.SHARE
        asked = [told(node, name) for _ in range(4) for name in others][-1]
        assert node.state.t == 1
        assert asked == (others if late == "skipped" else ALL_SIX)
        for name in others:
            told(node, name)
        assert node.state.sum.step == (MaskingStep.SHARE if late == "skipped" else MaskingStep.ANNOUNCE)
    assert node.handle(Received("node-5", Fetch(2)), 6.0) == []  # it is back, and would hold up this round
    assert [told(node, name) for _ in range(4) for name in others][-1] == ALL_SIX
    for name in others:
        told(node, name)
    assert node.state.sum.step == MaskingStep.ANNOUNCE, "it is waited for again"
    told(node, "node-5")
    assert node.state.sum.step == MaskingStep.SHARE


def test_a_reply_that_comes_too_late_is_a_sign_of_life() -> None:
    node = waiting_server()
    for name in ALL_SIX[:5]:
        told(node, name)
    announced = reply(node)
    node.handle(Elapsed("step"), 5.0)
    assert node.handle(Received("node-5", announced), 6.0) == []
    assert [told(node, name) for _ in range(4) for name in ALL_SIX[:5]][-1] == ALL_SIX


def test_where_too_few_others_are_left_for_a_sum_all_are_asked_and_the_timeout_decides() -> None:
    """A server that nobody reaches: six clients are late, and four are needed."""
    node = waiting_server()
    for second in (5.0, 10.0):
        node.handle(Elapsed("step"), second)
    assert (node.state.t, node.state.empty) == (2, 2)
    assert set(node.state.late) == set(ALL_SIX)
    assert whole_round(node, ALL_SIX) == ALL_SIX
    assert (node.state.t, node.state.taken, node.state.late) == (3, 1, {})


@pytest.mark.parametrize("end", ["lost", "left"])
def test_a_late_client_that_is_waited_for_once_others_end_is_asked(end: str) -> None:
    """Of five others, four are enough for a sum, so node-5 is not asked in the second round until two of them end."""
    node, others = waiting_server(None, timeout=None), ALL_SIX[:5]
    for name in others:
        told(node, name)
    node.handle(PeerDown("node-5", "silent"), 5.0)
    assert [told(node, name) for _ in range(4) for name in others][-1] == others
    ends = [PeerDown(name, "silent") if end == "lost" else Received(name, Leave()) for name in ("node-3", "node-4")]
    assert [given(node, event) for event in ends] == [[], ["node-5"]]
    assert "node-5" in node.awaited
    assert given(node, PeerUp("node-5")) == []


def test_a_client_that_is_heard_and_acknowledges_nothing_holds_up_no_step_of_a_sum() -> None:
    """What it said before it was given up arrives late, and a session says once more that it is lost.

    That may be before others have announced themselves, so that no session has anything to say of it later.
    """
    for again in (MaskingStep.ANNOUNCE, MaskingStep.SHARE):
        node, others = waiting_server(None, timeout=None), ALL_SIX[:5]
        node.handle(PeerDown("node-5", "silent"), 5.0)
        told(node, "node-5")
        for step in range(5):
            assert node.state.sum.step == step
            if step == again:
                node.handle(PeerDown("node-5", "silent"), 15.0)
            for name in others:
                asked = told(node, name)
        assert (node.state.t, node.state.taken, asked) == (1, 1, others)
        assert whole_round(node, others) == others


def test_who_was_late_for_a_sum_is_remembered_over_a_restart() -> None:
    node = waiting_server(blank=False)
    node.handle(Elapsed("step"), 5.0)
    node.handle(Received("node-2", Fetch(2)), 6.0)
    back = nodes(timeout=5.0, late="skipped", rounds=9)[SERVER]
    restore_state(back, decode(encode(state_of(node))))
    assert back.state.late == {name: name == "node-2" for name in ALL_SIX}


def test_clients_that_are_gone_cost_one_timeout_and_the_model_is_that_of_waiting() -> None:
    """Two of six are away for all of six rounds: 50 s once, and not in each. Models are equal to twice the rounding
    of integers that is derived above, of six rounds.
    """
    masking, options = {"name": "secure", "fraction_bits": 16}, {"timeout": 50.0, "rounds": 6}
    awaited, skipped = (run(spec(masking, gone=GONE, late=late, **options)) for late in ("awaited", "skipped"))
    seconds = [each.summary["virtual_seconds"] for each in (awaited, skipped, run(spec(masking, **options)))]
    assert seconds[0] - seconds[1] >= 5 * (50.0 - seconds[2] / 6)
    off = model(skipped) - model(awaited)
    assert np.linalg.norm(off) <= 2 * 1.01 * 3 * math.sqrt(SIZE) * 2.0**-16


def test_masks_need_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(
        "dataset: digits\nalgorithm: {name: fedavg, nodes: 6, masking: secure}\nprivacy: none\n"
    )
    assert main(["check", str(tmp_path / "spec.yaml")]) == 2
    assert "updates need a bound: give privacy.clip" in capsys.readouterr().err


def test_a_sum_out_of_range_is_written_down_and_the_next_round_begins() -> None:
    """What a deployed server has in its records."""
    server = nodes()[SERVER]
    list(server.handle(Started(), 0.0))
    before = server.state.x
    total = MaskedSum(np.full(SIZE, 6 * server.unit.fixed.limit).astype(server.unit.group.dtype), tuple(range(1, 7)))
    effects = list(server.unmasked(total, 6))
    assert effects[0] == Record("masked_sum_out_of_range", 6.0)
    assert (server.state.t, server.state.taken, server.state.sums_out_of_range) == (1, 0, 1)
    assert server.state.x == before
