"""Parties that release, with noise and once, how their held-out examples are scored: charged, proved, and what for."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.special import expit
from tests.oracle.specs import SPECS
from tests.unit.experiment.test_resuming import SECRET, Killed, files, resume

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import CallerError, RunWarning
from gossamer.experiment.audits.leak_audit import audit_leak
from gossamer.experiment.preparation.held_out import OBSERVER, SUM, doubts_of_held_out
from gossamer.experiment.preparation.prepare import FromMemory, prepare
from gossamer.objectives.released_scores import ReleasedScores
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.sides.home import GridNoise
from gossamer.sides.pool import Pool
from gossamer.verify.gossamer_verify import verify

WARDS = 3
SPEC: dict[str, Any] = {
    "dataset": {"name": "in memory", "labels": ["no", "yes"], "test_fraction": 0.4},
    "objective": "logistic",
    "partition": "natural",
    "algorithm": {"name": "gossip", "nodes": WARDS, "updates_per_node": 6, "batch_size": 20, "learning_rate": 1.0},
    "budget": {"epsilon": 3, "delta": 1e-5},
    "evaluation": {"name": "off", "release": "private", "epsilon": 0.5},
}


def wards(rows: int = 900, **more: Any) -> gs.Data:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(rows, 2))
    yes = rng.random(rows) < expit(x @ [1.5, -1.0])
    owners = np.array([f"ward {number}" for number in range(WARDS)])[np.arange(rows) % WARDS]
    return gs.Data(x, np.where(yes, "yes", "no"), **{"owners": owners, **more})


def run(out: Path | None = None, data: gs.Data | None = None, **changed: Any) -> gs.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        spec = {**SPEC, **changed}
        secret = SECRET if gs.parse_spec(spec).secretive else None
        return gs.run(spec, out, data=wards() if data is None else data, secret=secret, checkpoint=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluation") / "out"
    run(out)
    return out


@pytest.mark.parametrize(("asked", "odds"), [("0.1", (6 / 26) ** 1.5), ("0.5", 1.0), ("0", 31**-1.5)])
def test_figures_at_another_threshold_are_made_of_the_histograms_that_are_there(
    asked: str, odds: float, folder: Path, tmp_path: Path
) -> None:
    """Nothing is released for it. With no declared prevalence bins meet at odds of (k/(32 - k))^1.5, k from 1 to 31."""
    before, told = files(folder), odds / (1 + odds)
    assert main(["report", str(folder), "--threshold", asked, "--public", "--out", str(tmp_path / "page")]) == 0
    assert files(folder) == before
    page = (tmp_path / "page" / "report.html").read_text()
    found = ReleasedScores.read(folder)
    assert found is not None
    assert found.summary(float(asked))["threshold"] == pytest.approx(told)
    one = found.summary(float(asked))["figures"]["sensitivity"]
    assert f"sensitivity at {told:.3g}" in page
    assert f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})" in page


@pytest.mark.parametrize("changed", [{}, {"by": "federation"}])
def test_the_file_says_what_the_run_said_and_whether_it_is_of_a_sum(changed: dict[str, Any], tmp_path: Path) -> None:
    run(tmp_path / "out", evaluation={**SPEC["evaluation"], **changed})
    found = ReleasedScores.read(tmp_path / "out")
    assert found is not None
    assert found.summary() == json.loads((tmp_path / "out" / "summary.json").read_text())["private_evaluation"]
    assert main(["report", str(tmp_path / "out"), "--threshold", "0.1", "--card"]) == 0
    page, card = ((tmp_path / "out" / name).read_text() for name in ("report.html", "model-card.md"))
    (heading,) = re.findall(r"<h3 id=.evaluation-1.>(.*?)</h3>", page)
    assert ("the sum of all parties" in heading) == ("the sum of all parties" in card) == bool(changed)
    assert f"sensitivity at {found.summary(0.1)['threshold']:.3g}" in card


def test_parts_that_are_not_there_are_refused(folder: Path, tmp_path: Path) -> None:
    for places in ([], [folder, tmp_path]):
        with pytest.raises(CallerError, match="expected what parties released"):
            ReleasedScores.together([ReleasedScores.read(place) for place in places])  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
def test_a_sweep_has_its_runs_figures_at_the_threshold(table: Path, tmp_path: Path) -> None:
    dataset = {**TABLE["dataset"], "path": str(table)}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**TABLE, "dataset": dataset}))
    sweep = ["sweep", str(tmp_path / "spec.yaml"), "--grid", "budget.epsilon=3", "--seeds", "1"]
    assert main([*sweep, "--out", str(tmp_path / "sweep")]) == 0
    assert main(["report", str(tmp_path / "sweep"), "--threshold", "0.1"]) == 0
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "sensitivity at 0.0998" in page  # (6/26)^1.5, of the odds at which bins meet, where none is declared
    assert "sensitivity at 0.5" not in page


def test_a_threshold_takes_the_file_and_a_summary_that_is_damaged_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    released = summary["private_evaluation"]
    damaged = [released, released | {"threshold": "half"}, released | {"missing": 3}]
    for number, one in enumerate(damaged):
        (tmp_path / "summary.json").write_text(json.dumps({**summary, "private_evaluation": one}))
        assert main(["report", str(tmp_path), *(["--threshold", "0.1"] if number == 0 else [])]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert ("evaluation.json" if number == 0 else "the results folder of a run") in error
        assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(("threshold", "said"), [("1.5", "0 to 1"), ("half", "number"), ("0.1", "nothing")])
def test_a_threshold_that_is_none_or_of_nothing_is_refused(
    threshold: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "out", evaluation={"name": "off"})
    before = files(tmp_path / "out")
    assert main(["report", str(tmp_path / "out"), "--threshold", threshold]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize(("prevalence", "said"), [(0.02, True), (0.5, False)])
def test_scores_beyond_the_grid_are_warned_of(
    prevalence: float, said: bool, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Around 2 % it ends at log odds of 1.1; urgent rows, half of all, have 1.4, those of 0.8. Around a half at 5."""
    dataset = {**TABLE["dataset"], "path": str(table), "prevalence": prevalence}
    algorithm = {**TABLE["algorithm"], "updates_per_node": 40}
    evaluation = {**SPEC["evaluation"], "epsilon": 50}
    spec = {**TABLE, "dataset": dataset, "algorithm": algorithm, "evaluation": evaluation, "privacy": {"clip": 4}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**spec, "budget": {"epsilon": 100, "delta": 1e-5}}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "out")]) == 0
    assert ("beyond the grid of the histograms" in capsys.readouterr().err) == said


def test_each_party_is_charged_once_and_the_guarantee_is_that_of_one_gaussian_release(folder: Path) -> None:
    """Epsilon of N(0, 1) against N(1/z, 1) by its closed form, for the noise in the ledger; a row moves a sum by 1."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    held_out = [line for line in lines if line.get("protects") == "held-out example"]
    assert [(line["node"], line["releases"]) for line in held_out] == [(f"node-{n}/held-out", 1) for n in range(WARDS)]
    (multiplier,) = {line["noise_multiplier"] for line in held_out}
    card = json.loads((folder / "guarantee.json").read_text())
    training, entry = card["guarantees"]
    assert entry["unit"] == "held-out example of a node's shard"
    assert gaussian_epsilon(1 / multiplier, 1e-5) <= entry["epsilon"] * (1 + 1e-9) <= 0.5
    assert entry["epsilon"] > 0.499
    assert any("held-out ones have a guarantee of their own" in line for line in training["assumptions"])
    assert not any("test examples and the scores on them are not" in line for line in training["assumptions"])


def test_replacing_a_row_is_covered_by_twice_the_noise(tmp_path: Path) -> None:
    """It moves the sum by 2 at most, whatever the tree; persons by as many rows as they have."""
    for relation, persons, moved in (("replace_one", None, 2), ("add_or_remove_one", 3, 3)):
        budget = {"epsilon": 3, "delta": 1e-5, "rows_per_person": persons}
        data = wards(persons=np.arange(900) // 9 * 3 + np.arange(900) % 3) if persons else None
        privacy = {"neighboring_relation": relation}
        result = run(tmp_path / relation, data, privacy=privacy, budget=budget)
        lines = [json.loads(line) for line in (tmp_path / relation / "ledger.jsonl").read_text().splitlines()]
        (multiplier,) = {line["noise_multiplier"] for line in lines if line.get("protects") == "held-out example"}
        assert gaussian_epsilon(moved / multiplier, 1e-5) == pytest.approx(0.5, rel=2e-3)
        assert gaussian_epsilon(moved / multiplier, 1e-5) <= result.guarantees[OBSERVER].epsilon * (1 + 1e-9) <= 0.5


def test_the_second_implementation_finds_that_it_follows_and_that_a_second_release_does_not(folder: Path) -> None:
    found = verify(folder)
    assert found["follows"]
    assert [one["verdict"] for one in found["guarantees"]] == ["follows", "follows"]
    assert found["guarantees"][1]["plans"][0]["epsilon"] == pytest.approx(0.5, rel=1e-3)
    assert found["guarantees"][1]["plans"][0]["parties"] == [f"node-{n}/held-out" for n in range(WARDS)]
    card = json.loads((folder / "guarantee.json").read_text())
    card["guarantees"][1]["epsilon"] = 0.4
    (folder / "less.json").write_text(json.dumps(card))
    assert "promised 0.4" in verify(folder, folder / "less.json")["guarantees"][1]["verdict"]
    (folder / "less.json").unlink()


def test_receipts_are_on_disk_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, seen = Pool.compute, list[int]()

    def look(pool: Pool, tickets: Any) -> Any:
        if any("held-out" in name for name in pool.sides):
            lines = (tmp_path / "out" / "receipts.jsonl").read_text().splitlines()
            seen.append(sum('"of": "node-' in line and "held-out" in line for line in lines))
        return compute(pool, tickets)

    monkeypatch.setattr(Pool, "compute", look)
    run(tmp_path / "out")
    assert seen == [WARDS]


def test_a_run_that_is_killed_while_parties_release_draws_the_same_and_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    compute = Pool.compute

    def kill(pool: Pool, tickets: Any) -> Any:
        if any("held-out" in name for name in pool.sides):
            raise Killed
        return compute(pool, tickets)

    monkeypatch.setattr(Pool, "compute", kill)
    with pytest.raises(Killed):
        run(tmp_path / "out")
    monkeypatch.setattr(Pool, "compute", compute)
    resume(tmp_path / "out", data=wards())
    assert files(tmp_path / "out") == files(folder)


@pytest.mark.parametrize("changed", ["owners", "epsilon"])
def test_a_run_is_not_made_again_with_another_release_of_the_same_rows(changed: str, tmp_path: Path) -> None:
    """It would have noise of its own, so it would be a second release that nothing is charged for."""

    def written(name: str, first: int) -> str:
        lines = [f"{n % 100},w{(n + first) % 3},{'yes' if n % 5 < 2 else 'no'}" for n in range(300)]
        (tmp_path / name).write_text("\n".join(["age,ward,died", *lines]) + "\n")
        return str(tmp_path / name)

    dataset = {**TABLE["dataset"], "columns": {"age": [0, 100]}}
    del dataset["test_fraction"]
    dataset |= {"path": written("train.csv", 0), "test_path": written("test.csv", 0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        out = tmp_path / "out"
        gs.run({**TABLE, "dataset": dataset}, out)
        again = gs.repeat_run(out)
        assert (
            again.summary["private_evaluation"] == json.loads((out / "summary.json").read_text())["private_evaluation"]
        )
        if changed == "owners":
            written("test.csv", 1)
        else:
            text = (out / "spec.yaml").read_text()
            assert text.count("epsilon: 0.5") == 1
            (out / "spec.yaml").write_text(text.replace("epsilon: 0.5", "epsilon: 0.6"))
        with pytest.raises(CallerError, match="what is released of them"):
            gs.repeat_run(out, tmp_path / "again")
    assert not (tmp_path / "again" / "evaluation.json").exists()


def test_other_noise_for_other_examples_epsilons_and_models_and_the_run_itself_is_what_it_was(folder: Path) -> None:
    def drawn(**changed: Any) -> tuple[Any, Any]:
        result = run(**changed)
        return result.model.vector, result.summary.get("private_evaluation")

    model, first = drawn()
    without, none = drawn(evaluation="off")
    assert none is None
    assert np.array_equal(model, without)
    assert drawn()[1] == first
    assert drawn(evaluation={**SPEC["evaluation"], "epsilon": 0.51})[1]["figures"] != first["figures"]
    # Numbers of the noise, in steps of the grid: had they been shared, the difference would be that of the counts.
    told = json.loads((folder / "evaluation.json").read_text())
    deviations = {one["noise"] for one in told["parties"].values()}
    assert len(deviations) == 1
    assert deviations.pop() == pytest.approx(7.03, rel=0.01)


def test_with_hardly_any_noise_figures_are_those_of_the_test_examples(tmp_path: Path) -> None:
    """At epsilon 100 the noise is about 0.1 of a row, so bins alone are between: 0.01 on so few rows."""
    result = run(tmp_path / "out", evaluation={**SPEC["evaluation"], "epsilon": 100})
    figures = result.summary["private_evaluation"]["figures"]
    assert figures["auroc"]["value"] == pytest.approx(result.summary["metrics"]["test_auroc"], abs=0.01)
    assert figures["sensitivity"]["value"] == pytest.approx(result.summary["metrics"]["test_sensitivity"], abs=0.03)
    told = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    rows = sum(np.sum(one["counts"]) for one in told["parties"].values())
    assert rows == pytest.approx(360, abs=20)


def test_rows_are_those_of_their_owner(tmp_path: Path) -> None:
    """One ward has half as many rows."""
    keep = (np.arange(900) % WARDS != 0) | (np.arange(900) % 2 == 0)
    whole = wards()
    data = gs.Data(whole.train.features[keep], whole.train.labels[keep], owners=np.asarray(whole.train.owners)[keep])
    run(tmp_path / "out", data, evaluation={**SPEC["evaluation"], "epsilon": 100})
    parties = json.loads((tmp_path / "out" / "evaluation.json").read_text())["parties"]
    rows = [float(np.sum(one["counts"])) for one in parties.values()]
    assert rows[0] == pytest.approx(60, abs=15)
    assert rows[1:] == pytest.approx([120, 120], abs=15)


def test_without_noise_it_says_so_and_reproducible_noise_guarantees_nothing() -> None:
    none = run(privacy="none", budget=None)
    assert math.isinf(none.guarantees[OBSERVER].epsilon)
    assert none.summary["private_evaluation"]["epsilon"] is None
    again = run(privacy={"noise_secret": "reproducible"})
    assert again.guarantees[OBSERVER].would_be is not None
    assert again.guarantees[OBSERVER].would_be.epsilon <= 0.5


@pytest.mark.parametrize(
    ("changed", "data", "said"),
    [
        ({"evaluation": {"release": "private"}}, {}, "epsilon is missing"),
        ({"evaluation": {"epsilon": 0.5}}, {}, "release is missing"),
        ({"evaluation": {"release": "private", "epsilon": 0}}, {}, "evaluation.epsilon"),
        ({"evaluation": {"release": "private", "epsilon": -1}}, {}, "evaluation.epsilon"),
        ({"evaluation": {"release": "private", "epsilon": 1e-4}}, {}, "evaluation.epsilon: 0.0001 .* raise it"),
        ({"objective": "hinge"}, {}, "the hinge loss"),
        (
            {"stop": {"accuracy": 0.9, "epochs": 1}, "evaluation": {"release": "private", "epsilon": 1}},
            {},
            "public_path",
        ),
        ({"budget": {"epsilon": 3, "delta": 1e-5, "rows_per_person": 2}}, {}, "dataset.person"),
    ],
)
def test_bad_input_is_one_clear_line(changed: Any, data: Any, said: str) -> None:
    with pytest.raises(CallerError, match=said) as error:
        run(data=wards(**data), **changed)
    assert "\n" not in str(error.value)


def test_a_regression_and_many_classes_are_refused() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 2))
    owners = np.arange(90) % WARDS
    spec = {"dataset": {"name": "in memory"}, "objective": "squared"}
    with pytest.raises(CallerError, match="found a regression"):
        run(None, gs.Data(x, x[:, 0], owners=owners, task="regression", target_range=[-4, 4]), **spec)
    with pytest.raises(CallerError, match="found 3 classes"):
        run(None, gs.Data(x, np.arange(90) % 3, owners=owners), dataset={"name": "in memory"}, objective="softmax")


def test_a_party_without_held_out_rows_and_unknown_owners_are_refused() -> None:
    few = np.concatenate([[0], np.arange(1, 900) % 2 + 1])
    with pytest.raises(CallerError, match="found none at node-0"):
        run(data=wards(owners=few), algorithm={**SPEC["algorithm"], "batch_size": 1})
    own = wards(x_test=np.zeros((10, 2)), y_test=np.array(["yes", "no"] * 5))
    with pytest.raises(CallerError, match="whose each held-out example is"):
        run(data=own)


def test_persons_with_examples_on_both_sides_are_never_made_by_a_split() -> None:
    persons = np.arange(900) // 2 * 3 + np.arange(900) % 3
    result = run(data=wards(persons=persons), budget={"epsilon": 3, "delta": 1e-5, "rows_per_person": 2})
    assert result.guarantees[OBSERVER].rows_per_person == 2
    assert "none to train on, which has been checked" in str(result.guarantees[OBSERVER])


def test_persons_with_several_held_out_rows_are_refused_where_each_is_said_to_have_one(tmp_path: Path) -> None:
    """A guarantee that says so of known persons would be wrong by as many rows as they have."""

    def written(name: str, persons: Any) -> str:
        lines = [f"{n % 100},{person},{'yes' if n % 3 else 'no'}" for n, person in enumerate(persons)]
        (tmp_path / name).write_text("\n".join(["age,who,died", *lines]) + "\n")
        return str(tmp_path / name)

    dataset = {"name": "t", "target": "died", "person": "who", "labels": ["no", "yes"], "columns": {"age": [0, 100]}}
    dataset["path"] = written("train.csv", range(300))
    changed = {"partition": "iid", "budget": {"epsilon": 3, "delta": 1e-5, "rows_per_person": 1}}
    for tested, found in (
        (np.arange(600, 660) // 2, "a person with 2"),
        (range(290, 350), "10 persons"),
        (range(300, 360), ""),
    ):
        spec = {**SPEC, **changed, "dataset": {**dataset, "test_path": written("test.csv", tested)}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            if not found:
                assert gs.run(spec).guarantees[OBSERVER].rows_per_person == 1
                continue
            with pytest.raises(CallerError, match=found):
                gs.run(spec)


def test_an_outcome_that_a_party_does_not_have_lets_its_area_be_anything_and_counts_for_all() -> None:
    given = wards()
    labels = np.where(np.arange(900) % WARDS == 0, "no", given.train.labels)
    data = gs.Data(given.train.features, labels, owners=given.train.owners)
    found = run(data=data, evaluation={**SPEC["evaluation"], "epsilon": 100}).summary["private_evaluation"]
    assert found["parties"]["node-0"]["auroc"]["low"] < 0.1
    assert found["parties"]["node-0"]["auroc"]["high"] > 0.9
    assert found["parties"]["node-1"]["auroc"]["value"] is not None
    assert found["figures"]["prevalence"]["value"] == pytest.approx((labels == "yes").mean(), abs=0.03)


TABLE = {
    **SPEC,
    "dataset": {
        "name": "wards",
        "target": "died",
        "owner": "ward",
        "labels": ["no", "yes"],
        "columns": {"age": [0, 100], "sex": ["f", "m", "x"], "urgent": "boolean"},
        "test_fraction": 0.4,
    },
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 rows, of which 100 are of the third sex, and half are urgent; the urgent ones die."""
    path = tmp_path_factory.mktemp("table") / "wards.csv"
    rng = np.random.default_rng(5)
    lines = ["age,sex,urgent,ward,died"]
    for number in range(900):
        urgent = number % 2
        died = rng.random() < (0.8 if urgent else 0.3)
        sex = "x" if number % 9 == 0 else "fm"[number % 9 % 2]
        lines.append(f"{rng.integers(100)},{sex},{'yes' if urgent else 'no'},w{number % 3},{'yes' if died else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("epsilon", "prevalence", "said"), [(0.5, None, False), (0.5, 0.08, True), (0.1, None, True)])
def test_check_says_beforehand_where_no_figure_will_be_shown_and_none_is(
    epsilon: float,
    prevalence: float | None,
    said: bool,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of 359 rows: noise of 7.03 at three parties takes 75 of each outcome; there are 180 by a half, 29 by 8 %."""
    dataset = {**TABLE["dataset"], "path": str(table), "prevalence": prevalence}
    spec = {**TABLE, "dataset": dataset, "evaluation": {**SPEC["evaluation"], "epsilon": epsilon}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        assert main(["check", str(tmp_path / "spec.yaml")]) == 0
        told = " ".join("".join(capsys.readouterr()).split())
        figures = gs.run(spec).summary["private_evaluation"]["figures"]
    assert ("will show no figure of 359 held-out rows" in told) == said
    assert {one["low"] is None for name, one in figures.items() if name != "constant_brier"} == {said}


def test_bins_are_around_the_declared_prevalence(tmp_path: Path) -> None:
    """In the file as well, so that whoever reads it later has the same grid: logarithms of odds of 0.2, a quarter."""
    dataset = {**SPEC["dataset"], "prevalence": 0.2}
    result = run(tmp_path / "out", dataset=dataset)
    edges = json.loads((tmp_path / "out" / "evaluation.json").read_text())["edges"]
    assert edges[len(edges) // 2] == pytest.approx(math.log(0.25))
    again = ReleasedScores.read(tmp_path / "out")
    assert again is not None
    assert again.summary()["figures"] == result.summary["private_evaluation"]["figures"]


@pytest.mark.parametrize(("group", "rows"), [("sex", [160, 160, 40]), ("urgent", [180, 180])])
def test_groups_are_counted_apart_at_no_further_epsilon(
    group: str, rows: list[int], table: Path, tmp_path: Path
) -> None:
    """One row is still in one cell, so the noise is that of a release without groups."""
    dataset = {**TABLE["dataset"], "path": str(table)}
    evaluation = {**SPEC["evaluation"], "epsilon": 20, "group": group}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        result = gs.run({**TABLE, "dataset": dataset, "evaluation": evaluation}, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    counts = np.sum([one["counts"] for one in told["parties"].values()], axis=(0, 2, 3))
    assert counts == pytest.approx(rows, abs=25)
    found = result.summary["private_evaluation"]
    assert list(found["groups"]) == told["groups"]
    if group == "urgent":
        assert [one["prevalence"]["value"] for one in found["groups"].values()] == pytest.approx([0.3, 0.8], abs=0.12)
    assert verify(tmp_path / "out")["follows"]


@pytest.mark.parametrize("released", [True, False])
def test_a_party_whose_held_out_rows_are_of_one_class_is_said(
    released: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{n % 100},w{n % 3},{'yes' if n % 5 < 2 and n % 3 else 'no'}" for n in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["age,ward,died", *lines]) + "\n")
    dataset = {**TABLE["dataset"], "path": str(tmp_path / "t.csv"), "columns": {"age": [0, 100]}}
    spec = {**TABLE, "dataset": dataset, "evaluation": SPEC["evaluation"] if released else {}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "out")]) == 0
    party = "node-0" if released else "w0"
    assert f"warning: all held-out rows of {party} are of one class, so" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["age", "ward", "nothing"])
def test_a_group_that_is_no_declared_category_is_refused(group: str, table: Path) -> None:
    spec = {**TABLE, "dataset": {**TABLE["dataset"], "path": str(table)}}
    for release in (SPEC["evaluation"], {}):
        with pytest.raises(CallerError, match="expected a column of categories"):
            gs.run({**spec, "evaluation": {**release, "group": group}})


@pytest.mark.parametrize("name", ["graph-walk", "allreduce-none", "increasing-sequential"])
def test_models_of_all_algorithms_are_made_of_what_was_released(name: str, tmp_path: Path) -> None:
    """Also where sums are raw within a unit: what a model says of held-out examples is charged as everywhere."""
    dataset = {"name": "digits", "positive": [0, 1, 2, 3, 4]}
    spec = {**SPECS[name], "dataset": dataset, "objective": "logistic", "seed": 7, "evaluation": SPEC["evaluation"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        result = gs.run(spec, tmp_path / "out")
    held_out = verify(tmp_path / "out")["guarantees"][-1]
    assert held_out["unit"] == "held-out example of a node's shard"
    private = math.isfinite(result.guarantees[OBSERVER].epsilon)
    assert held_out["verdict"] == ("follows" if private else "promises nothing")
    assert result.summary["private_evaluation"]["figures"]


def test_a_held_out_row_that_is_another_shows_in_its_party_s_histogram_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of a leak audit: all else that anybody sees is the same bytes, and the sum moves by the root of 2 at most.

    Its cell and another one are both columns of a length of 1, of which those of two outcomes are at right angles.
    """
    whole = wards()
    train = {"x": whole.train.features, "y": whole.train.labels, "owners": whole.train.owners}
    rng, sums = np.random.default_rng(3), dict[str, list[Any]]()
    x_test, y_test = rng.normal(size=(60, 2)), np.where(rng.random(60) < 0.5, "yes", "no")
    noisy = GridNoise.noisy
    for name, value in (("one", 0.1), ("other", 50.0)):

        def look(grid: Any, total: Any, *more: Any, name: str = name) -> Any:
            sums.setdefault(name, []).append(np.array(total))
            return noisy(grid, total, *more)

        monkeypatch.setattr(GridNoise, "noisy", look)
        x_test[7], y_test[7] = value, "yes" if name == "one" else "no"
        data = gs.Data(**train, x_test=x_test.copy(), y_test=y_test.copy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            spec = {**SPEC, "partition": "iid"}
            gs.run(spec, tmp_path / name, data=data, secret=SECRET, trace=tmp_path / f"{name}.trace")
    first, second = files(tmp_path / "one"), files(tmp_path / "other")
    seen = ("receipts.jsonl", "guarantee.json", "ledger.jsonl", "model.safetensors", "model.json", "spec.yaml")
    assert all(first[name] == second[name] for name in seen)
    assert (tmp_path / "one.trace").read_bytes() == (tmp_path / "other.trace").read_bytes()
    apart = [float(np.linalg.norm(a - b)) for a, b in zip(sums["one"], sums["other"], strict=True)]
    assert sorted(apart)[:-1] == [0.0] * (WARDS - 1)
    assert max(apart) == pytest.approx(math.sqrt(2))


TOGETHER = {**SPEC["evaluation"], "by": "federation", "honest": 1.0}


def test_a_sum_over_parties_has_the_noise_of_one_of_which_each_adds_its_share(tmp_path: Path) -> None:
    """One Gaussian release for epsilon takes z, by its closed form; of h parties counted on each adds z / sqrt(h)."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    for honest, counted in ((1.0, 3), (0.6, 2), (0.1, 1)):
        out = tmp_path / str(honest)
        result = run(out, evaluation={**TOGETHER, "honest": honest})
        told = json.loads((out / "evaluation.json").read_text())
        assert [*told["parties"]] == ["all"]
        assert told["parties"]["all"]["rows"] == pytest.approx(360, abs=1)
        lines = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
        held_out = [line for line in lines if line.get("protects") == "held-out example"]
        assert [line["releases"] for line in held_out] == [1] * WARDS
        (share,) = {line["noise_multiplier"] for line in held_out}
        assert gaussian_epsilon(1 / (share * math.sqrt(counted)), 1e-5) == pytest.approx(0.5, rel=2e-3)
        assert told["parties"]["all"]["noise"] == pytest.approx(share * math.sqrt(WARDS), rel=1e-2)
        assert result.summary["private_evaluation"]["epsilon"] <= 0.5
        own = result.guarantees[OBSERVER].epsilon
        assert gaussian_epsilon(1 / share, 1e-5) == pytest.approx(own, rel=2e-3)
        assert (SUM in result.guarantees) == (counted > 1)
        if counted > 1:
            found = result.guarantees[SUM]
            assert found.epsilon <= 0.5 < own
            assert ("up to 0 of the" in found.observer) == (counted == WARDS)
            assert any(f"{counted} parties, this one included" in line for line in found.assumptions)
        assert verify(out)["guarantees"][-1]["verdict"] == "follows"


def test_a_sum_over_parties_is_that_of_their_histograms(tmp_path: Path) -> None:
    """At epsilon 100 the noise is about 0.1 of a row, so the counts of both outcomes are there."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    result = run(tmp_path / "out", evaluation={**TOGETHER, "epsilon": 100})
    (counts,) = json.loads((tmp_path / "out" / "evaluation.json").read_text())["parties"]["all"]["counts"]
    prevalence = result.summary["private_evaluation"]["figures"]["prevalence"]["value"]
    assert np.sum(counts) == pytest.approx(360, abs=6)
    assert prevalence == pytest.approx(np.sum(counts[1]) / np.sum(counts), abs=1e-9)
    figures = result.summary["private_evaluation"]["figures"]
    assert figures["auroc"]["value"] == pytest.approx(result.summary["metrics"]["test_auroc"], abs=0.01)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"by": "federation"}, "release is missing"),
        ({**SPEC["evaluation"], "honest": 1.0}, "by: federation is missing"),
        ({**TOGETHER, "honest": 0}, "evaluation.honest"),
    ],
)
def test_sums_over_parties_that_are_none_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError, match=said) as error:
        run(evaluation=changed)
    assert "\n" not in str(error.value)


def test_a_sum_over_one_party_is_refused() -> None:
    with pytest.raises(CallerError, match="two parties or more"):
        run(data=wards(owners=np.zeros(900, int)), algorithm={**SPEC["algorithm"], "nodes": 1}, evaluation=TOGETHER)


@pytest.mark.parametrize(("honest", "all_of_them"), [(0.6, False), (0.7, True)])
def test_counting_on_every_party_is_told_to_prove_less_against_one(honest: float, all_of_them: bool) -> None:
    prepared = prepare(gs.parse_spec({**SPEC, "evaluation": {**TOGETHER, "honest": honest}}), FromMemory(wards()))
    assert any("against a party, which knows its own noise" in line for line in doubts_of_held_out(prepared)) == (
        all_of_them
    )


@pytest.mark.parametrize("changed", [{}, {"by": "federation", "honest": 0.7}])
def test_a_leak_audit_finds_that_a_training_row_shows_in_the_histograms_by_the_model_alone(
    changed: dict[str, Any],
) -> None:
    if changed:
        pytest.importorskip("cryptography", reason="needs the extra secure")
    spec = {**SPEC, "evaluation": {**SPEC["evaluation"], **changed}}
    spec["algorithm"] = {**SPEC["algorithm"], "updates_per_node": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        found = audit_leak(prepare(gs.parse_spec(spec), FromMemory(wards(300))), pairs=2)
    assert found.leak is None
    assert found.releases == 2 * WARDS * 3
