"""Grids read from text, and their combinations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.errors import SpecError
from gossamer.studies.study import check_runs
from gossamer.studies.sweep import as_grid, read_grid, settings_of


def test_every_combination_with_the_last_key_fastest() -> None:
    found = settings_of(read_grid(["b=1,2", "a=x,y"]), "spec")
    assert [setting.overrides for setting in found] == [
        ["b=1", "a=x"],
        ["b=1", "a=y"],
        ["b=2", "a=x"],
        ["b=2", "a=y"],
    ]
    assert found[0].name == "a=x,b=1"


def test_without_a_grid_there_is_one_setting() -> None:
    (found,) = settings_of({}, "spec")
    assert (found.name, found.overrides) == ("spec", [])


def test_commas_inside_a_value_do_not_end_it() -> None:
    text = 'algorithm.topology=ring, {name: regular, degree: [3, 4]} ,"a,b"'
    assert read_grid([text]) == {
        "algorithm.topology": ["ring", "{name: regular, degree: [3, 4]}", '"a,b"'],
    }


def test_settings_are_called_by_the_names_of_sections() -> None:
    grid = read_grid(["algorithm=gossip,{name: d_psgd, nodes: 4}", "privacy=none,{mechanism: gaussian}", "rate=-1,1"])
    found = settings_of(grid, "spec")
    assert found[2].labels == {"algorithm": "gossip", "privacy": "gaussian", "rate": "-1"}
    assert found[-1].name == "algorithm=d_psgd,privacy=gaussian,rate=1"
    assert found[-1].given["algorithm"] == "{name: d_psgd, nodes: 4}"


def test_settings_are_called_as_labels_say() -> None:
    grid = read_grid(["a=ring,{name: regular, degree: 4}"])
    one, other = settings_of(grid, "spec", read_grid(["a=A(DP)2SGD,4 regular"], "--label"))
    assert (one.labels["a"], other.labels["a"]) == ("A(DP)2SGD", "4 regular")
    assert (one.name, other.name) == ("a=ring", "a=regular")  # whatever they are called, runs are those that are there
    alike = read_grid(["a={name: regular, degree: 2},{name: regular, degree: 4}"])
    names = [one.name for one in settings_of(alike, "spec", read_grid(["a=A(DP)2SGD,4 regular"], "--label"))]
    assert names == ["a=A-DP-2SGD", "a=4-regular"]
    with pytest.raises(SpecError, match="would both be called same"):
        settings_of(grid, "spec", {"a": ["same", "same"]})


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([], r"--label: '\{name: x, b: 1\}' and '\{name: x, b: 2\}' of a would both be called x; give their names"),
        (["a=y"], "--label: expected a name for each of the 2 values of a, found"),
        (["a=y,"], "--label: expected a name for each of the 2 values of a, found"),
        (["a=y (1),y-1"], "would both be called y-1"),
        (["b=y,z"], "--label: 'b' is no key of the grid; expected one of a"),
        (["a=y,z", "a=y,z"], "--label: a is there twice"),
    ],
)
def test_settings_that_are_called_the_same_are_refused(labels: list[str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        settings_of(read_grid(["a={name: x, b: 1},{name: x, b: 2}"]), "spec", read_grid(labels, "--label"))


_VALUES = st.one_of(st.integers(), st.booleans(), st.lists(st.integers(), max_size=3), st.sampled_from(["ring", "a b"]))


@given(st.lists(_VALUES, min_size=1, max_size=4))
def test_values_of_python_are_read_as_the_same_values(values: list[object]) -> None:
    (texts,) = as_grid({"key": values}).values()
    assert [yaml.safe_load(text) for text in texts] == values
    assert read_grid([f"key={','.join(texts)}"])["key"] == texts


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["batch"], "expected key=a,b,c"),
        (["=1,2"], "expected key=a,b,c"),
        (["a=1,,2"], "an empty value of a"),
        (["a="], "an empty value of a"),
        (["a=1,2,1"], "a has the value '1' twice"),
        (["a=1", "a=2"], "a is there twice"),
        (["seed=1,2"], "seed is varied by --seeds"),
    ],
)
def test_what_is_no_grid_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        settings_of(read_grid(texts), "spec")


def test_a_text_is_no_list_of_values() -> None:
    with pytest.raises(SpecError, match="expected a list of values for a"):
        as_grid({"a": "ring"})


@pytest.mark.parametrize(("settings", "seeds", "jobs"), [(1, 0, 1), (1, 1, 0), (101, 100, 1)])
def test_numbers_of_runs_that_cannot_be(settings: int, seeds: int, jobs: int) -> None:
    with pytest.raises(SpecError, match=r"at least 1|at most 10,000 runs"):
        check_runs(settings, seeds, jobs)


def test_names_with_commas_that_make_one_title_are_refused_before_any_run(tmp_path: Path) -> None:
    """A report would draw the runs of both as seeds of one setting."""
    spec = {"algorithm": {"name": "gossip", "nodes": 2}, "stop": {"updates": 4}, "privacy": "none"}
    grid = {"algorithm.batch_size": [8, 16], "algorithm.learning_rate": [0.1, 0.2]}
    labels = {"algorithm.batch_size": ["'a, b'", "a"], "algorithm.learning_rate": ["c", "'b, c'"]}
    with pytest.raises(SpecError, match=r"batch_size=8,.* and .*batch_size=16,.* would both be called 'a, b, c'"):
        gs.sweep(spec, grid, out=tmp_path / "out", labels=labels)
    assert not (tmp_path / "out").exists()


def test_a_name_with_a_comma_stands_in_quotes_that_are_no_part_of_it_and_a_number_is_a_name() -> None:
    labels = read_grid(["a='DP, clipped',\"it's\""], "--label")
    assert [one.labels["a"] for one in settings_of({"a": ["x", "y"]}, "spec", labels)] == ["DP, clipped", "it's"]
    given = {"a": [1, 2]}
    assert [one.labels["a"] for one in settings_of({"a": ["x", "y"]}, "spec", given)] == ["1", "2"]  # type: ignore[arg-type]


def test_settings_and_numbers_of_numpy_are_values_and_what_is_no_value_is_refused() -> None:
    grid = as_grid({"algorithm": [gs.Gossip(nodes=3), gs.FedAvg()], "algorithm.batch_size": [np.int64(8)]})
    assert [yaml.safe_load(text)["name"] for text in grid["algorithm"]] == ["gossip", "fedavg"]
    assert yaml.safe_load(grid["algorithm"][0])["nodes"] == 3
    assert grid["algorithm.batch_size"] == ["8"]
    with pytest.raises(SpecError, match="expected values of a as a spec has them"):
        as_grid({"a": [object()]})
    with pytest.raises(SpecError, match="expected lists of values by key"):
        as_grid(["a"])  # type: ignore[arg-type]
