"""Reading results folders, and figures of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.privacy.sampling import FixedSize, Poisson
from gossamer.report.folders import read_results

pytest.importorskip("matplotlib")
from gossamer.report.figures import Line, Panel, compare, draw

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 3 epochs: 4 nodes, 7 updates each, batches of 3/7 of a shard."""
    out = tmp_path_factory.mktemp("results") / "run"
    experiment = gs.Experiment.model_validate(
        {
            "objective": "softmax",
            "partition": {"name": "sizes", "sizes": [70] * 4},
            "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 30},
            "privacy": {"noise_multiplier": 2.0, "sampling": "poisson"},
            "stop": {"epochs": 3},
            "evaluation": {"every_updates": 7},
        }
    )
    gs.run(experiment, out)
    return out


def test_a_folder_is_read_as_it_was_written(folder: Path) -> None:
    found = read_results(folder)
    assert found.spec["algorithm"]["nodes"] == 4
    assert found.summary == json.loads((folder / "summary.json").read_text())
    assert found.column("updates") == [0, 7, 14, 21, 28]
    assert found.column("mean_model_test_accuracy") == [row["mean_model_test_accuracy"] for row in found.rows]
    assert {line["releases"] for line in found.ledger} == {7}


def test_epochs_are_passes_over_a_nodes_own_examples(folder: Path) -> None:
    """28 updates of 30 expected examples are 840, of 280: 3 passes; a quarter of the updates is a quarter of that."""
    assert read_results(folder).column("epochs") == pytest.approx([0, 0.75, 1.5, 2.25, 3])


def test_epochs_of_fixed_sizes_and_unequal_nodes(folder: Path, tmp_path: Path) -> None:
    """Passes 4 * 5/10 = 2 and 8 * 0.125 = 1: on average 1.5."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    ledger = [
        {"node": "a", "releases": 4, **FixedSize(10, 5).describe()},
        {"node": "b", "releases": 8, **Poisson(0.125).describe()},
    ]
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger))
    assert read_results(tmp_path).column("epochs")[-1] == pytest.approx(1.5)


def test_an_unknown_column_names_the_nearest(folder: Path) -> None:
    with pytest.raises(gs.SpecError, match="'test_acuracy'; did you mean test_accuracy"):
        read_results(folder).column("test_acuracy")


def test_what_is_no_results_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(gs.SpecError, match=r"no results folder: spec\.yaml: No such file"):
        read_results(tmp_path / "absent")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "metrics.jsonl").write_text('{"updates": 1')
    with pytest.raises(gs.SpecError, match="damaged"):
        read_results(tmp_path)


def test_folders_are_compared_in_a_figure(folder: Path, tmp_path: Path) -> None:
    compare({"gossip": [folder, folder]}, tmp_path / "figure.png", x="epochs", title="twice the same")
    assert (tmp_path / "figure.png").read_bytes().startswith(PNG)


def test_lines_of_one_label_share_colour_and_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    lines = [Line("a", [0, 1], [0, 1]), Line("b", [0, 1], [1, 0]), Line("a", [0, 1], [0, 2])]
    draw([[Panel(lines, log_x=True), Panel(lines[1:2])]], tmp_path / "x.png")
    (figure,) = drawn
    left, right = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    colors = [line.get_color() for line in left.lines]
    assert colors[0] == colors[2] != colors[1] == right.lines[0].get_color()
    assert [list(line.get_xdata()) for line in left.lines] == [[1]] * 3  # zero has no place on a logarithmic axis
