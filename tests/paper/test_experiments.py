"""The studies in experiments: their specs are sound, and what is expected of them comes out."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gossamer.data.split import Split
from gossamer.objectives.glm import LinearModel

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
STUDIES = {
    "adp2sgd": ("table-1", "figure-2", "figure-3", "figure-4"),
    "mapa": ("figure-4", "figure-5", "figure-6", "figure-7", "figure-9", "proved-linear", "proved-cnn"),
    "increasing": (
        "table-3",
        "table-3-large",
        "figure-3",
        "figures-4-5",
        "figures-6-7",
        "figure-8",
        "figure-9",
        "figures-10-11",
        "figures-12-13",
        "dp",
    ),
    "gfl": ("figure-2", "figure-3", "figure-4", "figure-5", "guarantees"),
}
EACH = [(paper, study) for paper, studies in STUDIES.items() for study in studies]
# What is run again: all that takes minutes at most, and of the rest a part.
AGAIN: list[tuple[str, str, dict[str, str]]] = [
    *(("adp2sgd", study, {}) for study in STUDIES["adp2sgd"]),
    ("mapa", "figure-4", {}),
    ("mapa", "figure-5", {}),
    ("mapa", "figure-6", {"problem": "lr usps"}),
    ("increasing", "table-3", {"problem": "a9a strongly convex"}),
    ("increasing", "figure-3", {}),
    ("increasing", "figures-4-5", {"problem": "a9a convex"}),
    ("increasing", "figures-6-7", {"problem": "ijcnn1 convex"}),
    ("gfl", "figure-5", {}),
    ("gfl", "guarantees", {}),
]

Record = dict[str, Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The studies of a paper, from its script; nothing of it stays imported."""

    def load_paper(paper: str) -> Any:
        monkeypatch.syspath_prepend(EXPERIMENTS)
        for name in ("figures", "sweeps", "checks", "experiments_run"):  # each paper has figures of its own
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            del sys.modules[name]
        spec = importlib.util.spec_from_file_location("experiments_run", EXPERIMENTS / paper / "run.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["experiments_run"] = module
        spec.loader.exec_module(module)
        return module.PAPER

    return load_paper


def expected_of(paper: str, study: str) -> list[Record]:
    """The expectations of a study, one a combination."""
    from checks import expanded

    return list(expanded(json.loads((EXPERIMENTS / paper / study / "expected.json").read_text())))


def unmet(expected: list[Record], records: list[Record]) -> list[str]:
    from checks import unmet as found

    return found(expected, records)


def spoilt(record: Record) -> Record:
    """The record of a run in which nothing was learnt in many rounds, or of an attack that found nothing.

    Or one whose models stay as far from the best one whatever the noise.
    """
    nothing = {"mean_model_test_accuracy": 0.1, "balanced_accuracy": 0.1, "gradient_norm": 1.0}
    curve = [{**row, **nothing} for row in record.get("curve", [])[:1]]
    never = dict.fromkeys(record.get("iterations_to", {}))
    steady = {"steady": dict.fromkeys(record["steady"], 0.5), "last_stable_round": None} if "steady" in record else {}
    return {**record, **steady, "curve": curve, "iterations_to": never, "ssim": 0.0, "cosine": 0.0, "rounds": 10**6}


@pytest.mark.some(8)
@pytest.mark.parametrize(("paper", "study"), EACH)
def test_specs_are_sound(load: Callable[[str], Any], paper: str, study: str) -> None:
    studies = load(paper)
    assert studies.studies == STUDIES[paper]
    for full in (False, True):
        places = [variant.name for variant in studies.variants(study, full=full)]
        assert len(places) == len(set(places)) > 0


@pytest.mark.some(13)
@pytest.mark.parametrize(("paper", "study"), EACH)
def test_the_results_that_are_shown_are_as_expected(load: Callable[[str], Any], paper: str, study: str) -> None:
    """What the README's figures and tables were made from."""
    studies = load(paper)
    records = json.loads((EXPERIMENTS / paper / study / "results.json").read_text())
    assert [record["name"] for record in records] == [variant.name for variant in studies.variants(study)]  # all of it
    expected = expected_of(paper, study)
    assert expected
    assert unmet(expected, records) == []
    assert unmet(expected, [spoilt(record) for record in records])


@pytest.mark.some(4)
@pytest.mark.parametrize(("paper", "study"), EACH)
def test_results_are_drawn_from_records_alone(
    load: Callable[[str], Any], paper: str, study: str, tmp_path: Path
) -> None:
    """A figure of the records that are kept; of what the figure shows, eyes must judge."""
    records = json.loads((EXPERIMENTS / paper / study / "results.json").read_text())
    load(paper).draw(study, records, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.some(11)
@pytest.mark.parametrize(("paper", "study"), [(paper, study) for paper, study in EACH if paper != "adp2sgd"])
def test_condensed_records_are_condensed_already(load: Callable[[str], Any], paper: str, study: str) -> None:
    """So drawing again changes nothing."""
    records = json.loads((EXPERIMENTS / paper / study / "results.json").read_text())
    assert load(paper).placed(study, records) == records


@pytest.mark.parametrize("looks", [1, 2, 20, 21, 40, 41, 400])
def test_thinned_curves_keep_their_end(load: Callable[[str], Any], looks: int) -> None:
    load("increasing")
    condense = sys.modules["experiments_run"].condense
    curve = [{"rounds": look} for look in range(looks)]
    thinned = condense("table-3", {"curve": curve})["curve"]
    assert thinned[-1] == curve[-1]
    assert min(looks, 10) <= len(thinned) <= 20
    assert len({second["rounds"] - first["rounds"] for first, second in itertools.pairwise(thinned)}) <= 1
    assert condense("dp", {"curve": curve})["curve"] == curve[-1:]


def test_balanced_accuracy_of_one_answer_is_a_half(load: Callable[[str], Any]) -> None:
    """w = 0, b = -1 says class 0 of everything; w = (10, 0), b = -5 tells x_1 = 1 from x_1 = 0."""
    load("increasing")
    balanced_accuracy = sys.modules["experiments_run"].balanced_accuracy
    features = np.array([[0, 1], [0, 0], [0, 1], [1, 0]], np.float32)
    dataset = SimpleNamespace(test=Split(features, np.array([0, 0, 0, 1])), classes=2)
    prepared = SimpleNamespace(dataset=dataset, objective=LinearModel("logistic", 2, 2))
    assert balanced_accuracy(prepared, np.array([0.0, 0.0, -1.0])) == {"balanced_accuracy": 0.5}
    assert balanced_accuracy(prepared, np.array([10.0, 0.0, -5.0])) == {"balanced_accuracy": 1.0}
    assert balanced_accuracy(prepared, np.array([0.0, 10.0, -5.0])) == {"balanced_accuracy": pytest.approx(1 / 6)}
    prepared.dataset.classes = 10
    assert balanced_accuracy(prepared, np.zeros(3)) == {}


def test_iterations_to_a_threshold(load: Callable[[str], Any]) -> None:
    """Losses 10 9 ... 0 at updates 0 100 ... 1000: the mean of the five ending in k is k + 2."""
    load("mapa")
    iterations_to = sys.modules["experiments_run"].iterations_to
    curve = [{"updates": 100 * (10 - loss), "mean_model_test_loss": float(loss)} for loss in range(10, -1, -1)]
    assert iterations_to(curve, 8.5) == 400  # mean 8 of 10 9 8 7 6, no earlier five
    assert iterations_to(curve, 8.0) == 500  # under, not at
    assert iterations_to(curve, 2.5) == 1000
    assert iterations_to(curve, 2.0) is None
    assert iterations_to(curve[:4], 100.0) is None


def test_the_steady_state_is_the_mean_of_the_second_half(load: Callable[[str], Any]) -> None:
    """Of looks 0 ... 9 those from 5 on; what is not a number in one of these is none."""
    load("gfl")
    steady = sys.modules["experiments_run"].steady
    curve = [{"centroid_msd": float(look), "disagreement": 1.0, "updates": look} for look in range(10)]
    assert steady(curve) == {"centroid_msd": 7.0, "disagreement": 1.0}
    assert steady([{**row, "disagreement": None} for row in curve])["disagreement"] is None
    assert steady([{"centroid_msd": None}, *curve[1:]])["centroid_msd"] == 7.0


@pytest.mark.parametrize("sparse", [False, True])
def test_each_agents_features_have_noise_of_a_spread_of_its_own(load: Callable[[str], Any], sparse: bool) -> None:
    """Spreads 1 and 0, and rows of nobody; 2,000 draws have a spread of 1 to 0.1 (six deviations)."""
    load("gfl")
    with_noise = sys.modules["experiments_run"].with_noise
    features = np.ones((60, 100), np.float32)
    features[:, 0] = 0
    shards = (np.arange(0, 20), np.arange(20, 40))
    given = sp.csr_array(features) if sparse else features
    noisy = with_noise(given, shards, np.array([1.0, 0.0]), np.random.default_rng(0))
    assert noisy.dtype == np.float32
    noise = (noisy.toarray() if sparse else noisy) - features
    assert noise[:20, 1:].std() == pytest.approx(1, abs=0.1)
    assert not noise[20:].any()
    assert bool(noise[:20, 0].any()) is not sparse  # what is not there stays so
    assert np.array_equal(given.toarray() if sparse else given, features)  # the data set itself is as it was


def test_places_follow_the_sweep(load: Callable[[str], Any]) -> None:
    """An axis may be renamed, and a run left out, after a sweep."""
    studies = load("mapa")
    row = {"updates": 1, "mean_model_test_accuracy": 1 / 3}
    old = [{"name": name, "seed": "7", "curve": [row]} for name in ("quantile/8/1", "quantile/8/11")]
    (found,) = studies.placed("proved-cnn", old)
    assert {key: found[key] for key in ("policy", "budget", "seed")} == {
        "policy": "quantile",
        "budget": "8",
        "seed": "1",
    }
    assert found["curve"][0]["mean_model_test_accuracy"] == 0.33333


def test_what_is_under_revision_says_why_and_is_listed(load: Callable[[str], Any]) -> None:
    """Each study with such expectations has a line in the list of the experiments' page; with a reason to print."""
    load("mapa")
    from checks import under_revision

    page = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    listed = page.partition("## Under revision")[2].partition("\n## ")[0]
    marked = {
        (paper, study)
        for paper, study in EACH
        if under_revision(json.loads((EXPERIMENTS / paper / study / "expected.json").read_text()))
    }
    assert marked == {("adp2sgd", "figure-4"), *(("mapa", f"figure-{number}") for number in (5, 6, 7))}
    for paper, _ in marked:
        assert f"]({paper}/" in listed
    assert under_revision([{"what": "a"}, {"what": "b", "revision": "too short"}]) == ["b: too short"]


SWEEP = """
spec: {dataset: digits, algorithm: {name: gossip}, privacy: {noise_multiplier: 1, clip: 1}, stop: {epochs: 1}}
full: [privacy.clip=3]
axes:
  clip: {"1": [], "2": [privacy.clip=2]}
  {axis}: {"0": [seed=0], "1": [seed=1]}
skip: [{clip: "2", {axis}: "1"}]
"""


def test_a_sweep_goes_on_where_it_was(load: Callable[[str], Any], tmp_path: Path) -> None:
    load("mapa")
    ran: list[str] = []

    def run(study: str, variant: Any, folder: Path | None) -> Record:
        ran.append(variant.name)
        return {"clip_used": variant.experiment.privacy.clip.bound / 3, "seed_used": variant.experiment.seed}

    paper = sys.modules["sweeps"].Paper(tmp_path, ("s",), print, runners={"s": run})
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "sweep.yaml").write_text(SWEEP.replace("{axis}", "seed"))
    *_, records = paper.run_study("s", known=[{"name": "1/1", "kept": True}])
    assert ran == ["1/0", "2/0"]
    assert records == [
        {"name": "1/0", "clip": "1", "seed": "0", "clip_used": 0.33333, "seed_used": 0},
        {"name": "1/1", "kept": True},
        {"name": "2/0", "clip": "2", "seed": "0", "clip_used": 0.66667, "seed_used": 0},
    ]
    assert [[record["name"] for record in found] for found in paper.run_study("s", only={"clip": "2"})] == [["2/0"]]
    assert list(paper.run_study("s", known=records, only={"clip": "2"})) == [records[2:]]

    assert {variant.experiment.privacy.clip.bound for variant in paper.variants("s", full=True)} == {3}

    (tmp_path / "s" / "sweep.yaml").write_text(SWEEP.replace("{axis}", "epsilon"))
    with pytest.raises(ValueError, match=r"names of their own, found .'epsilon'"):
        list(paper.variants("s"))


def test_expectations(load: Callable[[str], Any]) -> None:
    load("mapa")
    records = [{"a": "x", "curve": [{"mean_model_test_accuracy": accuracy}]} for accuracy in (0.5, 0.7, 0.9)] + [
        {"a": "y", "iterations_to": {"4": None}, "curve": [{"mean_model_test_accuracy": 0.6}]}
    ]

    def problems(**expectation: Any) -> list[str]:
        return unmet([{"what": "{name}: it", **expectation, "each": {"name": ["x"]}}], records)

    def of(**more: str) -> Record:
        return {"of": {"a": "{name}"}, "take": "final_accuracy", **more}

    assert problems(left=of(), at_least=0.7) == []
    assert problems(left=of(), at_least=0.71) == ["x: it: 0.7, expected at least 0.71"]
    assert problems(left=of(over="least"), at_most=0.5) == []
    assert problems(left=of(over="most"), at_most=of(over="least"), margin=0.4) == []
    assert problems(left=of(over="most"), at_most=of(over="least"), margin=0.39)
    assert problems(left=of(over="most"), at_most=of(over="least"), factor=1.8) == []
    assert problems(left=of(over="most"), at_most=of(over="least"), factor=1.7)
    both = {"of": {"a": ["x", "y"]}, "take": "final_accuracy"}
    assert unmet([{"what": "both", "left": both, "at_most": 0.65}], records) == []  # of 0.5 0.6 0.7 0.9
    never = {"of": {"a": "y"}, "take": "iterations_to_4"}
    assert unmet([{"what": "never", "left": never, "at_most": math.inf}], records)
    assert problems(left=of(), at_least=0.71, fails="so it is") == []
    assert problems(left=of(), at_least=0.7, fails="so it is") == ["x: it: 0.7, said to fail: so it is"]
    with pytest.raises(ValueError, match="no run"):
        unmet([{"what": "none", "left": {"of": {"a": "z"}, "take": "final_accuracy"}, "at_most": 1}], records)


def test_table_1_clips_at_every_noise_level(load: Callable[[str], Any]) -> None:
    """Without noise too: the levels differ in noise alone, as in A(DP)2SGD's table."""
    clips = {variant.experiment.privacy.clip.bound for variant in load("adp2sgd").variants("table-1")}
    assert clips == {1.0}


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "study", "only"), AGAIN)
def test_what_is_expected_comes_out(
    load: Callable[[str], Any],
    paper: str,
    study: str,
    only: dict[str, str],
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "GOSSAMER_DATA", str(shared_data))
    studies = load(paper)
    expected = [one for one in expected_of(paper, study) if only.items() <= one["left"]["of"].items()]
    assert expected
    *_, records = studies.run_study(study, only=only)
    assert unmet(expected, records) == []
