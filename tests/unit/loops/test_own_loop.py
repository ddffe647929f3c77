"""Loops of an owner's own: what they charge is on disk first, within the plan, and what receipts say of it follows."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from tests.kills import killing

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import GossamerError
from gossamer.keys.identity import Identity
from gossamer.runtimes.storage.file import StorageError
from gossamer.runtimes.storage.ledger import LedgerFile

PLAN = gs.Releases(6, noise_multiplier=4.0)
"""Full batches: mu is sqrt(6)/4, and soon found."""

pytestmark = pytest.mark.filterwarnings("ignore:a new ledger:gossamer.errors.RunWarning")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """An owner's policy and data."""
    rows = "".join(f"{row},{row % 5}\n" for row in range(60))
    (tmp_path / "wards.csv").write_text(f"age,label\n{rows}")
    path = tmp_path / "policy.yaml"
    path.write_text("data: {wards: {epsilon: 6, delta: 1.0e-5, path: wards.csv}}\n")
    return path


def on_disk(policy: Path) -> dict[str, tuple[int, int]]:
    """Releases charged by each run, and receipts of them, as another process reads the ledger."""
    file = LedgerFile(policy.with_suffix(".ledger"))
    try:
        found = {}
        for spent in file.runs("wards"):
            kept = file.witnessed(spent.run)
            found[spent.run] = spent.releases, 0 if kept is None else kept.receipts
        return found
    finally:
        file.close()


def verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["verify", "--json", str(folder)])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else {"refused": printed.err}


def test_a_charge_is_on_disk_when_it_returns(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        for number in range(1, 7):
            ledger.charge(4.0)
            assert on_disk(policy) == {"loop/wards": (number, number)}
            assert ledger.releases == number


def test_what_the_plan_does_not_cover_is_refused_and_nothing_is_written(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        for _ in range(6):
            ledger.charge(4.0)
        with pytest.raises(
            gs.BudgetSpent, match=r"plan has left 0 of 6 with noise multiplier 4 at rate 1, .* one more"
        ):
            ledger.charge(4.0)
        assert on_disk(policy) == {"loop/wards": (6, 6)}
    with gs.LoopLedger(policy, "less", PLAN) as ledger:
        with pytest.raises(gs.BudgetSpent, match=r"left 6 of 6 .* covers none with noise multiplier 3.9 at rate 1"):
            ledger.charge(3.9)
        assert on_disk(policy)["less/wards"] == (0, 0)


def test_a_kind_that_a_plan_lists_twice_is_one(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", [PLAN, gs.Releases(2, 4.0)]) as ledger:
        ledger.charge(4.0)
        with pytest.raises(gs.BudgetSpent, match=r"plan has left 7 of 8 with noise multiplier 4 at rate 1, and"):
            ledger.charge(3.0)


def test_a_plan_above_the_budget_is_refused_and_nothing_is_written(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN):
        pass
    with pytest.raises(gs.BudgetSpent, match=r"has spent .* it would take epsilon .* and the budget is 6"):
        gs.LoopLedger(policy, "other", gs.Releases(24, noise_multiplier=3.0))
    assert on_disk(policy) == {"loop/wards": (0, 0)}


def test_a_loop_that_is_opened_again_goes_on(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        ledger.charge(4.0)
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        assert ledger.releases == 1
        for _ in range(5):
            ledger.charge(4.0)
        with pytest.raises(gs.BudgetSpent):
            ledger.charge(4.0)


def test_charges_ahead_that_are_not_used_are_lost_and_counted(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN, ahead=4) as ledger:
        ledger.charge(4.0)
        assert on_disk(policy) == {"loop/wards": (4, 4)}
        assert ledger.releases == 1
    with gs.LoopLedger(policy, "loop", PLAN, ahead=4) as ledger:
        assert ledger.releases == 4
        ledger.charge(4.0)
        ledger.charge(4.0)  # what is left, fewer than are charged at once
        with pytest.raises(gs.BudgetSpent):
            ledger.charge(4.0)
    assert on_disk(policy) == {"loop/wards": (6, 6)}


@pytest.mark.parametrize(("planned", "at_once"), [(1, 1), (39, 1), (100, 5), (1000, 20)])
def test_by_default_a_twentieth_of_the_plan_is_charged_ahead(policy: Path, planned: int, at_once: int) -> None:
    """What a process that is killed can lose, and 20 at most."""
    with gs.LoopLedger(policy, "loop", [gs.Releases(planned, 400.0), gs.Releases(1, 80.0)]) as ledger:
        ledger.charge(400.0)
        assert on_disk(policy) == {"loop/wards": (at_once, at_once)}
        ledger.charge(80.0)
        assert on_disk(policy) == {"loop/wards": (at_once + 1, at_once + 1)}


def test_more_noise_and_lower_rates_are_charged_as_the_least_that_covers_them(policy: Path) -> None:
    plan = [gs.Releases(1, 4.0), gs.Releases(1, 8.0), gs.Releases(2, 8.0, 0.5)]
    with gs.LoopLedger(policy, "loop", plan) as ledger:
        ledger.charge(9.0)  # the second, so that
        ledger.charge(4.0)  # the first is left
        with pytest.raises(gs.BudgetSpent):
            ledger.charge(9.0)
        ledger.charge(8.0, 0.4)
        ledger.charge(8.0, 0.5)
    with gs.LoopLedger(policy, "again", plan) as ledger:
        ledger.charge(9.0, 0.4)  # the third, so that
        ledger.charge(8.0)  # the second is left
        ledger.charge(4.0)


def test_a_charge_that_could_not_be_written_closes_the_ledger(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process has counted it already, and would go on with another chain than what is on disk."""

    def full() -> None:
        raise StorageError("the disk is full")

    with gs.LoopLedger(policy, "loop", PLAN, ahead=2) as ledger:
        ledger.charge(4.0)
        ledger.charge(4.0)
        with monkeypatch.context() as patch:
            patch.setattr(ledger._owned.file, "commit", full)
            with pytest.raises(StorageError, match="the disk is full"):
                ledger.charge(4.0)
        with pytest.raises(StorageError):
            ledger.charge(4.0)
    assert on_disk(policy) == {"loop/wards": (2, 2)}
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        ledger.charge(4.0)
        ledger.write(policy.parent / "out")
    assert verified(policy.parent / "out", capsys)[1]["releases"] == 3


MIXED = [gs.Releases(300, 1.1, 0.02), gs.Releases(50, 2.0, 0.1), gs.Releases(2, 8.0)]


def test_epsilon_is_that_of_the_account_command_and_of_dp_accounting(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = gs.Releases(300, 1.1, 0.02)
    with gs.LoopLedger(policy, "alone", alone) as ledger:
        options = ["--noise-multiplier", "1.1", "--sampling-rate", "0.02", "--steps", "300", "--delta", "1e-5"]
        main(["account", *options, "--json"])
        assert ledger.epsilon(1e-5) == json.loads(capsys.readouterr().out)["epsilon"]
    for left in policy.parent.glob("policy.ledger*"):
        left.unlink()
    with gs.LoopLedger(policy, "mixed", MIXED) as ledger:
        other = PLDAccountant(gs_relation())
        for one in MIXED:
            event = PoissonSampledDpEvent(one.sampling_rate, GaussianDpEvent(one.noise_multiplier))
            other.compose(SelfComposedDpEvent(event, one.number))
        assert ledger.guarantee.epsilon == pytest.approx(other.get_epsilon(1e-5), rel=2e-3)
        # The second implementation, of receipts, agrees as well.
        for one in MIXED:
            ledger.charge(one.noise_multiplier, one.sampling_rate)
        ledger.write(tmp_path / "out")
    code, found = verified(tmp_path / "out", capsys)
    assert code == 0
    assert found["guarantees"][0]["proved_epsilon"] == pytest.approx(other.get_epsilon(1e-5), rel=2e-3)


def gs_relation() -> Any:
    from dp_accounting import NeighboringRelation

    return NeighboringRelation.ADD_OR_REMOVE_ONE


def written(policy: Path, identity: Path | None = None) -> Path:
    """Receipts of three releases of six."""
    folder = policy.parent / "out"
    with gs.LoopLedger(policy, "loop", PLAN, clip=0.5, identity=identity) as ledger:
        for _ in range(3):
            ledger.charge(4.0)
        ledger.write(folder)
    return folder


def test_numbers_of_any_type_are_one_plan(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Receipts write a law down: 4 and 4.0 must not be two, of which one was not planned."""
    with gs.LoopLedger(policy, "loop", gs.Releases(np.int64(6), np.float32(4), 1)) as ledger:  # type: ignore[arg-type]
        ledger.charge(4, 1)
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        ledger.charge(4.0)
        ledger.write(policy.parent / "out")
    assert verified(policy.parent / "out", capsys)[0] == 0


def test_receipts_of_data_that_are_counted_by_replacements(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replacing a row moves a sum by twice the clip: mu of three full batches at noise 8 is 2 sqrt(3)/8."""
    policy.write_text("data: {wards: {epsilon: 9, delta: 1.0e-5, relation: replace_one, path: wards.csv}}\n")
    with gs.LoopLedger(policy, "loop", gs.Releases(3, 8.0)) as ledger:
        ledger.charge(8.0)
        ledger.write(policy.parent / "out")
    code, found = verified(policy.parent / "out", capsys)
    assert code == 0
    assert found["guarantees"][0]["proved_mu"] == pytest.approx(2 * 3**0.5 / 8, rel=1e-3)


def test_receipts_are_verified_and_say_who_charged(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(policy)
    code, found = verified(folder, capsys)
    assert (code, found["follows"], found["releases"]) == (0, True, 3)
    assert found["parties"] == ["wards (as the owner's own loop charged)"]
    lines = [json.loads(line) for line in (folder / "receipts.jsonl").read_text().splitlines()]
    assert [line["clip"] for line in lines if "of" in line] == [0.5] * 3
    (entry,) = json.loads((folder / "guarantee.json").read_text())["guarantees"]
    assert "what was charged, not what the loop did" in entry["assumptions"][0]


def test_receipts_of_another_run_are_not_written_over(policy: Path) -> None:
    folder = written(policy)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with (
        gs.LoopLedger(policy, "other", PLAN) as ledger,
        pytest.raises(gs.DataError, match=r"out: has receipts of run 'loop'; name another folder for 'other'"),
    ):
        ledger.write(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    written(policy)  # those of the run itself are
    (folder / "guarantee.json").unlink()
    (folder / "guarantee.json").mkdir()
    with (
        gs.LoopLedger(policy, "other", PLAN) as ledger,
        pytest.raises(gs.DataError, match=r"out: receipts cannot be written: .*name another folder"),
    ):
        ledger.write(folder)


def test_altered_receipts_are_refused(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line lost, doubled, or with another digit; and a guarantee that promises more."""
    folder = written(policy)
    path = folder / "receipts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for at, line in enumerate(lines):
        for other in ("", line * 2, line.replace("4", "5", 1) if "4" in line else line.replace("0", "1", 1)):
            path.write_text("".join([*lines[:at], other, *lines[at + 1 :]]))
            assert verified(folder, capsys)[0] != 0, (at, other)
    path.write_text("".join(lines))
    assert verified(folder, capsys)[0] == 0
    card = json.loads((folder / "guarantee.json").read_text())
    card["guarantees"][0]["epsilon"] /= 2
    (folder / "guarantee.json").write_text(json.dumps(card))
    assert verified(folder, capsys)[0] == 1


def test_receipts_are_signed_by_the_owner_who_stays_the_same(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [policy.parent / name for name in ("owner.key", "other.key")]
    for key in keys:
        Identity.create(key)
    code, found = verified(written(policy, keys[0]), capsys)
    assert (code, found["signer"]) == (0, Identity.load(keys[0]).public_key.fingerprint)
    with pytest.raises(gs.SpecError, match="with another plan"):
        gs.LoopLedger(policy, "loop", PLAN, clip=0.5, identity=keys[1])
    with pytest.raises(gs.SpecError, match="with another plan"):
        gs.LoopLedger(policy, "loop", PLAN, clip=0.25, identity=keys[0])


def test_what_an_owner_spent_has_it(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(policy)
    assert main(["data", "show", str(policy)]) == 0
    said = capsys.readouterr().out
    assert "loop/wards" in said
    assert "receipts of loop/wards: 3" in said


def test_data_that_changed_are_refused(policy: Path) -> None:
    written(policy)
    with (policy.parent / "wards.csv").open("a") as file:
        file.write("1000,1\n")
    with pytest.raises(gs.DataError, match="changed: 1 example is new"):
        gs.LoopLedger(policy, "loop", PLAN)


def test_one_run_in_two_processes_is_refused_to_one(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", PLAN) as first, gs.LoopLedger(policy, "loop", PLAN) as second:
        first.charge(4.0)
        with pytest.raises(StorageError, match="another process releases in loop/wards, too"):
            second.charge(4.0)
        first.charge(4.0)
        assert on_disk(policy) == {"loop/wards": (2, 2)}
        with pytest.raises(StorageError):
            second.charge(4.0)  # which is closed


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_uses_nothing_that_was_charged_ahead(policy: Path) -> None:
    """Parent and child would use the same four; and what the child closes stays open here."""
    with gs.LoopLedger(policy, "loop", PLAN, ahead=4) as ledger:
        ledger.charge(4.0)
        if not (child := os.fork()):
            code = 1
            try:
                with ledger, pytest.raises(gs.SpecError, match=r"was opened by process .*, forked from it; charge in"):
                    ledger.charge(4.0)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(5):
            ledger.charge(4.0)
    assert on_disk(policy) == {"loop/wards": (6, 6)}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_forked_from_an_open_ledger_opens_none_of_that_file(policy: Path) -> None:
    """SQLite would take the locks of the parent for its own; once that closes, the log is gone, and what is in it."""
    with gs.LoopLedger(policy, "loop", PLAN) as ledger:
        ledger.charge(4.0)
        if not (child := os.fork()):
            code = 1
            try:
                with pytest.raises(StorageError, match=r"was open when this process was forked from another, .* spawn"):
                    gs.LoopLedger(policy, "other", PLAN)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    child = forked(policy, "other")  # now it is closed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert on_disk(policy) == {"loop/wards": (1, 1), "other/wards": (6, 6)}


@pytest.mark.parametrize("ahead", [1, 3])
def test_threads_of_one_ledger_use_what_was_charged_once(policy: Path, ahead: int) -> None:
    with gs.LoopLedger(policy, "loop", gs.Releases(60, 40.0), ahead=ahead) as ledger:

        def charge(number: int) -> None:
            for _ in range(10):
                ledger.charge(40.0)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(charge, range(4)))
        assert ledger.releases == 40
        assert on_disk(policy)["loop/wards"] == (-(-40 // ahead) * ahead,) * 2


def forked(policy: Path, run: str) -> int:
    """A child that charges a run of its own, six times."""
    if child := os.fork():
        return child
    code = 1
    try:
        with gs.LoopLedger(policy, run, PLAN, ahead=2) as ledger:
            for _ in range(6):
                ledger.charge(4.0)
        code = 0
    except gs.BudgetSpent:
        code = 3
    finally:
        os._exit(code)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_do_not_race_for_a_budget(policy: Path) -> None:
    """Each plan alone takes mu^2 = 6/16 of it, and eight together more than there is: those that are refused have no
    entry, and all others have charged everything."""
    with gs.LoopLedger(policy, "first", PLAN) as ledger:
        share = ledger._owned.file.spent("wards") / ledger._owned.budget.renyi.level
        squared = ledger._owned.file.total("wards").squared / ledger._owned.budget.gaussian.level
    fitting = int(max(1 / share, 1 / squared)) - 1
    assert 0 < fitting < 6
    children = [forked(policy, f"run {number}") for number in range(6)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0] * fitting + [3] * (6 - fitting)
    found = on_disk(policy)
    assert found.pop("first/wards") == (0, 0)
    assert list(found.values()) == [(6, 6)] * fitting


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"run": ""}, "a run's name has 1 to 100 printable characters"),
        ({"run": "a/b"}, "a run's name has"),
        ({"plan": []}, "one or more releases, found none"),
        ({"plan": 6}, r"a loop's plan is gs.Releases\(...\) or a list of them, found 6"),
        ({"plan": [PLAN, 6]}, "or a list of them, found .*, 6"),
        ({"clip": 0.0}, "clip must be a finite number > 0, found 0.0"),
        ({"ahead": 0}, "ahead must be a whole number > 0, found 0"),
        ({"plan": gs.Releases(1, 0.2)}, "line 1, smallest_noise_multiplier: .* noise multipliers of 0.3 and more"),
        ({"clip": 11.0}, "largest_clip: found a clip of 11; allowed: up to 10"),
        ({"data": "ward"}, "no data set 'ward'; did you mean wards"),
        ({"policy": "none.yaml"}, "none.yaml"),
    ],
)
def test_mistakes_get_a_line_and_leave_nothing(policy: Path, more: dict[str, Any], match: str) -> None:
    policy.write_text("{largest_clip: 10, smallest_noise_multiplier: 0.3, " + policy.read_text().strip() + "}\n")
    options = {"policy": policy, "run": "loop", "plan": PLAN, **more}
    with pytest.raises(GossamerError, match=match) as found:
        gs.LoopLedger(**options)
    assert "\n" not in str(found.value)
    assert not policy.with_suffix(".ledger").exists()


@pytest.mark.parametrize(
    "one", [(0, 1.0), (1.5, 1.0), (1, 0.0), (1, 1e-160), (1, float("nan")), (1, 1.0, 0.0), (1, 1.0, 1.1), (1, 1, "x")]
)
def test_releases_that_are_none(one: Any) -> None:
    with pytest.raises(gs.SpecError):
        gs.Releases(*one)


def step(accountant: gs.OpacusAccountant, rate: float, noise: float, accumulated: int = 1, clip: float = 1.0) -> None:
    optimizer = SimpleNamespace(noise_multiplier=noise, accumulated_iterations=accumulated, max_grad_norm=clip)
    accountant.get_optimizer_hook_fn(rate)(optimizer)


def test_a_step_with_another_clip_than_the_ledgers_is_refused_and_not_charged(policy: Path) -> None:
    """Its receipt would say that less, or more, of each example was summed than was."""
    with gs.LoopLedger(policy, "loop", PLAN, clip=0.5) as ledger:
        accountant = gs.OpacusAccountant(ledger)
        with pytest.raises(gs.SpecError, match=r"max_grad_norm: found 1; expected 0.5, the ledger's clip"):
            step(accountant, 1.0, 4.0)
        assert len(accountant) == 0
        step(accountant, 1.0, 4.0, clip=0.5)
    assert on_disk(policy) == {"loop/wards": (1, 1)}


def test_the_accountant_of_opacus_charges_each_step(policy: Path) -> None:
    with gs.LoopLedger(policy, "loop", gs.Releases(3, 4.0, 0.25)) as ledger:
        accountant = gs.OpacusAccountant(ledger)
        step(accountant, 0.25, 4.0)
        step(accountant, 0.125, 4.0)
        with pytest.raises(gs.BudgetSpent, match="and that covers none with noise multiplier 4 at rate"):
            step(accountant, 0.5, 4.0)
        assert len(accountant) == 2
        assert accountant.get_epsilon(1e-5) == ledger.guarantee.epsilon
        assert accountant.state_dict() == {}
        step(accountant, 0.25, 5.0)
        with pytest.raises(gs.BudgetSpent):
            step(accountant, 0.25, 4.0)
    assert on_disk(policy) == {"loop/wards": (3, 3)}


def test_a_step_on_several_batches_is_charged_as_a_release_of_each(policy: Path) -> None:
    """An example may be in two batches and move the sum by two clips, which one release at twice the rate, as Opacus
    charges it, does not cover: at epsilon 1, P(N > x) - e Q(N > x) of the sum is larger than of that release."""
    rate, noise = 0.125, 4.0

    def delta(shares: tuple[float, ...]) -> float:
        x = np.arange(-80.0, 80.0, 1e-3)
        normal = [np.exp(-(((x - moved) / noise) ** 2) / 2) / (noise * (2 * np.pi) ** 0.5) for moved in range(3)]
        lost = sum(share * each for share, each in zip(shares, normal, strict=False)) - np.e * normal[0]
        return float(np.maximum(lost, 0.0).sum() * 1e-3)

    true = delta(((1 - rate) ** 2, 2 * rate * (1 - rate), rate**2))
    assert true > 2 * delta((1 - 2 * rate, 2 * rate))
    with gs.LoopLedger(policy, "loop", [gs.Releases(2, noise, 2 * rate), gs.Releases(2, 2.8, rate)]) as ledger:
        accountant = gs.OpacusAccountant(ledger)
        step(accountant, rate, noise, accumulated=2)
        assert len(accountant) == 2
        with pytest.raises(gs.BudgetSpent, match=r"covers none with noise multiplier 2\.8284"):
            step(accountant, rate, noise, accumulated=2)


@pytest.mark.filterwarnings("ignore")  # Opacus warns of its own random numbers
def test_opacus_stops_before_a_step_that_is_refused(policy: Path) -> None:
    """The real package, where it is installed: the third step changes no weight."""
    opacus = pytest.importorskip("opacus", reason="no dependency: needs an environment with opacus")
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(60, 3, generator=generator), torch.zeros(60))
    net = torch.nn.Linear(3, 1)
    with gs.LoopLedger(policy, "loop", gs.Releases(2, 4.0, 0.25)) as ledger:
        engine = opacus.PrivacyEngine()
        engine.accountant = gs.OpacusAccountant(ledger)
        net, optimizer, loader = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=15),
            noise_multiplier=4.0,
            max_grad_norm=1.0,
        )
        models: list[Any] = [net.state_dict()]

        def train() -> None:
            for x, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(net(x)[:, 0], y).backward()
                optimizer.step()
                models.append({name: each.clone() for name, each in net.state_dict().items()})

        with pytest.raises(gs.BudgetSpent):
            train()
        assert len(engine.accountant) == 2
        assert len(models) == 3  # and the third step changed nothing
        assert all(torch.equal(each, models[-1][name]) for name, each in net.state_dict().items())
        assert engine.get_epsilon(1e-5) == ledger.guarantee.epsilon
    assert on_disk(policy) == {"loop/wards": (2, 2)}


def test_kills_lose_no_charge_that_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """20 kills: what was charged is what children were told, and at most one lot of each; and receipts have it all."""
    found, _ = killing("own_loop_kills.py", tmp_path, 20, 1)
    assert found["told"] > 0
    assert found["charged"] == found["told"] + found["lost"]
    assert verified(tmp_path / "out", capsys)[1]["releases"] == found["charged"]


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = killing("own_loop_kills.py", tmp_path, 50, 2)
    assert found["lost"] > 0
    assert verified(tmp_path / "out", capsys)[0] == 0
