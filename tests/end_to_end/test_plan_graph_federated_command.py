"""``gossamer plan graph_federated``: figures on stdout, and one line for every mistake."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.cli import main
from gossamer.privacy.accounting.gaussian_dp import gaussian_mu

pytestmark = pytest.mark.usefixtures("called_here")

ASKED = {
    "--epsilon": "2",
    "--delta": "1e-5",
    "--rounds": "50",
    "--step": "0.7",
    "--bound": "10",
    "--size": "2",
    "--graph": "ring",
    "--units": "10",
    "--agents-sampled": "11",
}
ROW = {
    *("temporal", "bands", "sigma", "largest_message_sigma", "mu_g"),
    *("disagreement", "last_disagreement", "centroid", "last_centroid"),
}
Options = dict[str, str | None]


def arguments(changed: Options) -> list[str]:
    """The call; None takes a flag out."""
    merged: Options = {**ASKED, **changed}
    words = (word for flag, value in merged.items() if value is not None for word in (flag, value))
    return ["plan", "graph_federated", *words]


def document(capsys: pytest.CaptureFixture[str], changed: Options | None = None) -> Any:
    assert main([*arguments(changed or {}), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys)
    assert set(found) == {*ROW, "epsilon", "delta", "rounds", "gradient_at", "measure", "guarantees", "choices"}
    assert found["temporal"] == "random_walk"
    mu = gaussian_mu(2, 1e-5)
    assert found["mu_g"] == pytest.approx(mu, rel=1e-12)
    assert found["sigma"] == pytest.approx(2 * 0.7 * 10 / 11 * math.sqrt(50) / mu, rel=1e-12)
    assert found["largest_message_sigma"] == pytest.approx(found["sigma"] * math.sqrt(50), rel=1e-12)
    assert (found["gradient_at"], found["measure"]) == ("released", "mean")
    assert [set(row) for row in found["choices"]] == [ROW] * 8
    assert {key: found[key] for key in ROW} == found["choices"][0]
    assert found["disagreement"] == min(row["disagreement"] for row in found["choices"])
    guarantee = found["guarantees"]["other_units"]
    assert guarantee["epsilon"] == pytest.approx(2, rel=1e-9)
    assert (guarantee["delta"], guarantee["unit"]) == (1e-5, "agent")
    assert found["guarantees"]["own_server"]["privacy"] == "none"


def test_random_walk_disagreement_in_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Released models and a walk: l^2 + l^4 + ... + l^2i on each eigenvalue 1/3 + 2/3 cos(2 pi k/10) of the ring."""
    found = document(capsys)
    eigenvalues = 1 / 3 + 2 / 3 * np.cos(2 * np.pi * np.arange(1, 10) / 10)
    sums = np.cumsum(eigenvalues[:, None] ** (2 * np.arange(1, 51)), axis=1).sum(axis=0)
    assert found["disagreement"] == pytest.approx(2 * found["sigma"] ** 2 / 10 * sums.mean(), rel=1e-9)
    assert found["last_disagreement"] == pytest.approx(2 * found["sigma"] ** 2 / 10 * sums[-1], rel=1e-9)
    assert found["last_centroid"] == pytest.approx(2 * found["sigma"] ** 2 / 10 * 50, rel=1e-9)


def test_hidden_state(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole update may move: 11 times the noise, for the unit, and no need of the number of agents."""
    released = document(capsys)
    hidden = document(capsys, {"--gradient-at": "hidden", "--agents-sampled": None})
    assert hidden["sigma"] == pytest.approx(11 * released["sigma"], rel=1e-9)
    assert hidden["centroid"] == 0
    assert hidden["guarantees"]["other_units"]["unit"] == "federated unit"
    assert document(capsys, {"--gradient-at": "hidden"}) == hidden


def test_measure_and_contraction(capsys: pytest.CaptureFixture[str]) -> None:
    asked: Options = {"--gradient-at": "hidden", "--graph": "star", "--rounds": "100"}
    assert document(capsys, asked)["temporal"] == "random_walk"
    last = document(capsys, {**asked, "--measure": "last"})
    assert (last["temporal"], last["bands"], last["measure"]) == ("banded", 2, "last")
    assert last["last_disagreement"] == min(row["last_disagreement"] for row in last["choices"])
    less = document(capsys, {**asked, "--contraction": "0.5"})
    assert less["disagreement"] < document(capsys, asked)["disagreement"]


def test_a_matrix_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    third = "0.3333333333333333"
    rows = [[third if (i - j) % 10 in (0, 1, 9) else "0" for j in range(10)] for i in range(10)]
    expected = document(capsys)
    for name, mark in (("ring.txt", " "), ("ring.csv", ",")):
        Path(name).write_text("# a ring\n" + "\n".join(mark.join(row) for row in rows), encoding="utf-8")
        found = document(capsys, {"--graph": name, "--units": None})
        assert found["disagreement"] == pytest.approx(expected["disagreement"], rel=1e-9)


def test_the_table_says_what_is_taken_and_what_is_guaranteed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments({})) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("random_walk")
    assert "Taken: random_walk, the least disagreement (mean over rounds;" in printed
    assert next(line.split()[:2] for line in printed.splitlines() if line.startswith("banded")) == ["banded", "2"]
    assert "Guarantee: (2, 1e-05)-differential privacy for each agent" in printed
    assert "Theorem 2 claims" in printed


def test_the_ends_of_the_ranges_are_inside(capsys: pytest.CaptureFixture[str]) -> None:
    least = document(capsys, {"--rounds": "1", "--units": "2", "--delta": "1e-200", "--contraction": "1"})
    assert (least["rounds"], least["temporal"]) == (1, "independent")
    assert main(arguments({"--measure": "last"})) == 0
    assert "(after the last round;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--rounds": "100001"}, "--rounds must be a whole number >= 1 and <= 100000, found 100001"),
        ({"--units": "2001"}, "--units must be a whole number >= 2 and <= 2000, found 2001"),
        ({"--contraction": "1.5"}, "--contraction must be a finite number > 0 and <= 1, found 1.5"),
        ({"--epsilon": None, "--graph": None}, "plan graph_federated needs --epsilon, --graph"),
        ({"--agents-sampled": None}, "needs --agents-sampled with --gradient-at released"),
        ({"--rounds": "0"}, "--rounds must be a whole number >= 1 and <= 100000, found 0"),
        ({"--step": "-0.1"}, "--step must be a finite number > 0, found -0.1"),
        ({"--step": "nan"}, "--step must be a finite number > 0, found nan"),
        ({"--bound": "inf"}, "--bound must be a finite number > 0, found inf"),
        ({"--epsilon": "0"}, "--epsilon must be a finite number > 0, found 0"),
        ({"--delta": "1"}, "--delta must be a finite number >= 1e-200 and < 1, found 1"),
        ({"--size": "0"}, "--size must be a whole number >= 1 and <= 1e+15, found 0"),
        ({"--agents-sampled": "0"}, "--agents-sampled must be a whole number >= 1 and <= 1e+15, found 0"),
        ({"--units": "1"}, "--units must be a whole number >= 2 and <= 2000, found 1"),
        ({"--units": None}, "plan graph_federated --graph ring needs --units"),
        ({"--contraction": "0"}, "--contraction must be a finite number > 0 and <= 1, found 0"),
        ({"--graph": "nowhere.txt"}, "nowhere.txt: No such file or directory"),
        ({"--graph": "empty.txt"}, "--units goes with one of ring, line,"),
        ({"--graph": "nowhere.txt", "--units": None}, "--graph is one of ring, line,"),
        ({"--graph": "empty.txt", "--units": None}, "found no number in empty.txt"),
        ({"--graph": "words.txt", "--units": None}, "words.txt: it is no table of numbers with rows of one length"),
        ({"--graph": "ragged.txt", "--units": None}, "ragged.txt: it is no table of numbers"),
        ({"--graph": "asymmetric.txt", "--units": None}, "symmetric mixing matrices"),
        ({"--graph": "split.txt", "--units": None}, "found 2 groups that never mix"),
        ({"--graph": "sums.txt", "--units": None}, "doubly stochastic, found row 0"),
        ({"--graph": "own.txt", "--units": None}, "a weight a_pp > 0; unit 0 has 0"),
        ({"--step": "1e200"}, "the largest floating-point number"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], changed: Options, message: str) -> None:
    for name, text in {
        "empty.txt": "# nothing\n",
        "words.txt": "a b\nc d\n",
        "ragged.txt": "1 0\n1\n",
        "asymmetric.txt": "0.2 0.3 0.5\n0.5 0.2 0.3\n0.3 0.5 0.2\n",
        "split.txt": "1 0\n0 1\n",
        "sums.txt": "0.5 0.6\n0.6 0.5\n",
        "own.txt": "0 1\n1 0\n",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    assert main(arguments(changed)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gossamer: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
