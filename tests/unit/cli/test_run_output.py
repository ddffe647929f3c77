"""What commands print of runs: the words of the algorithm, each thing once, and bounds that are rounded up."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gossamer.algorithms.plan import Words
from gossamer.cli import main
from gossamer.cli.printing import PlainProgress, describe_row, guarantees, node_table
from gossamer.privacy.guarantees import Guarantee, planned, reproducible
from gossamer.privacy.mechanisms import NeighboringRelation

CLIENTS: dict[str, Any] = {"nodes": 20, "local_steps": 1, "batch_size": 4}
TRUSTED = {"noise_by": "server", "trusted": "server"}
SPECS: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": {"name": "fedavg", "rounds": 3, **CLIENTS}},
    "fedavg-trusted": {"algorithm": {"name": "fedavg", "rounds": 3, **CLIENTS, **TRUSTED}},
    "fedbuff-trusted": {
        "algorithm": {"name": "fedbuff", "updates_per_node": 2, "staleness_exponent": 0, **CLIENTS, **TRUSTED}
    },
    "fedavg-masked": {
        "algorithm": {"name": "fedavg", "rounds": 2, "masking": {"name": "secure", "honest": 0.9}, **CLIENTS}
    },
    "audp": {"algorithm": {"name": "audp", "nodes": 3, "updates_per_node": 2}},
    "gossip": {"algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 5, "batch_size": 20}},
    "local": {"algorithm": {"name": "local", "nodes": 3, "updates_per_node": 5}},
    "central": {"algorithm": {"name": "central", "updates_per_node": 5}},
}
ROW = {
    "updates": 3,
    "virtual_seconds": 1.0,
    "mean_model_test_accuracy": 0.5,
    "test_accuracy": 0.4,
    "worst_node_test_accuracy": 0.25,
    "test_loss": 1.0,
    "epsilon_so_far": None,
}


def printed(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, **changes: Any) -> tuple[str, str]:
    """Standard output and error of a run."""
    path = tmp_path / "spec.yaml"
    path.write_text(
        yaml.safe_dump({"dataset": "digits", "privacy": {"noise_multiplier": 4.0}, **SPECS[name], **changes})
    )
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 0
    return tuple(capsys.readouterr())  # type: ignore[return-value]


def test_a_run_ends_with_the_command_that_shows_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal or not, below the folder; as JSON there is the JSON alone."""
    monkeypatch.setenv("TERM", "dumb")
    path, out = tmp_path / "spec.yaml", tmp_path / "my run"
    path.write_text(yaml.safe_dump({"dataset": "digits", "privacy": {"noise_multiplier": 4.0}, **SPECS["local"]}))
    command = ["run", str(path), "--set", "algorithm.updates_per_node=2", "--out", str(out), "--overwrite"]
    for terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda there=terminal: there, raising=False)
        assert main(command) == 0
        said = capsys.readouterr()
        assert said.out.endswith(f"\nResults: {out}\nNext: gossamer report '{out}'\n")
        assert "Next" not in said.err
    assert main([*command, "--json"]) == 0
    assert "Next" not in "".join(capsys.readouterr())


def test_whoever_sits_at_a_terminal_is_told_what_comes_after_a_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same settings; a script, which has no terminal, is told nothing."""
    monkeypatch.setenv("TERM", "dumb")
    path = tmp_path / "my spec.yaml"
    path.write_text(yaml.safe_dump({"dataset": "digits", "privacy": {"noise_multiplier": 4.0}, **SPECS["local"]}))
    same = ["--set", "algorithm.updates_per_node=2", "--seed", "3"]
    assert main(["check", str(path), *same]) == 0
    assert "Next" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["check", str(path), *same]) == 0
    assert capsys.readouterr().err.endswith(f"Next: gossamer run '{path}' {' '.join(same)}\n")


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("name", "planned", "made"),
    [
        ("fedavg", "60 updates of 20 clients", "20 clients and their server made 60 updates"),
        ("fedavg-trusted", "3 sums of updates of 20 clients", "20 clients and their server made 3 sums"),
        ("fedbuff-trusted", "8 sums of updates of 20 clients", "20 clients and their server made 8 sums"),
        ("fedavg-masked", "2 masked sums of 20 clients", "20 clients and their server made 2 masked sums"),
        ("audp", "6 updates of 3 nodes", "3 nodes and their server made 6 updates"),
        ("gossip", "20 updates of 4 nodes", "4 nodes made 20 updates"),
        ("central", "5 updates of 1 node", "1 node made 5 updates"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_run_says_who_makes_what(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, planned: str, made: str
) -> None:
    out, err = printed(capsys, tmp_path, name)
    assert f"plan: {planned}, " in err
    assert f": {made} and sent " in out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fedavg", "accuracy: server's model 0.ddd, clients 0.ddd (worst 0.ddd)"),
        ("audp", "accuracy: server's model 0.ddd, nodes 0.ddd (worst 0.ddd)"),
        ("gossip", "accuracy: mean model 0.ddd, nodes 0.ddd (worst 0.ddd)"),
        ("local", "accuracy: nodes 0.ddd (worst 0.ddd)"),  # nobody has the mean of what nodes learn alone
        ("central", "accuracy: mean model 0.ddd, nodes 0.ddd (worst 0.ddd)"),  # of one
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_figures_are_of_the_model_that_there_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, line: str
) -> None:
    for text in printed(capsys, tmp_path, name, privacy="none"):
        found = [x[x.index("accuracy:") :] for x in text.splitlines() if "accuracy:" in x]
        assert {re.sub(r"\d{3}", "ddd", x) for x in found} - {line.replace("0.ddd", "1.ddd")} == {line}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["fedavg-masked", "fedavg", "gossip"])
@pytest.mark.filterwarnings("ignore")
def test_an_evaluation_is_said_once(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    out, err = printed(capsys, tmp_path, name)
    looks = [line.split("virtual s  ")[0].split() for line in err.splitlines() if "virtual s  " in line]
    updates = [int(look[0]) for look in looks]
    assert updates[0] == 0
    assert len(updates) > 1
    assert len(set(updates)) == len(updates)
    total = int(re.search(r"made (\d+) ", out).group(1))  # type: ignore[union-attr]
    assert total not in updates  # the report has these


def test_a_look_without_another_update_is_no_other_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainProgress()
    lines.total, lines.words = 5, Words("client", "masked sum", "server")
    for seconds in (1.0, 1.5):
        lines.looked({**ROW, "virtual_seconds": seconds})
    assert capsys.readouterr().err.splitlines() == [
        "       3 masked sums         1.0 virtual s  accuracy: server's model 0.500, clients 0.400 (worst 0.250)"
    ]


def test_epsilons_are_rounded_alike_and_never_down() -> None:
    assert describe_row({**ROW, "epsilon_so_far": 7.9974}, Words()).endswith("; epsilon spent 7.998")
    assert describe_row({**ROW, "epsilon_so_far": 7.99701}, Words()).endswith("; epsilon spent 7.998")


# Nodes that are alike


def test_many_nodes_that_are_alike_are_one_line() -> None:
    rows = [(f"node-{i:02}", "4" if i < 12 else "3", "8") for i in range(20)]
    assert node_table(("client", "examples", "epsilon"), [*rows, ("odd", "9", "7")]).splitlines() == [
        "client                 examples  epsilon",
        "node-00 and 11 others  4         8",
        "node-12 and 7 others   3         8",
        "odd                    9         7",
    ]


def test_few_nodes_are_a_line_each() -> None:
    assert len(node_table(("node", "epsilon"), [(f"node-{i}", "8") for i in range(16)]).splitlines()) == 17


def test_many_nodes_that_all_differ_are_cut_short() -> None:
    lines = node_table(("node", "epsilon"), [(f"node-{i}", str(i)) for i in range(20)]).splitlines()
    assert len(lines) == 18
    assert lines[-1] == "... and 4 more"


# Guarantees beside each other


def guarantee(observer: str, *more: str) -> Guarantee:
    found = planned(1.0, 1e-5, NeighboringRelation.REPLACE_ONE, "PLD", *more)
    return replace(found, observer=observer)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("noise", [lambda found: found, reproducible])
def test_what_the_first_guarantee_assumes_is_said_once(noise: Any) -> None:
    first, other = noise(guarantee("the server", "masks hold")), noise(guarantee("all others", "alone"))
    said = unwrapped(guarantees(first, {"server": first, "all_others": other}))
    proved = [one.would_be or one for one in (first, other)]
    for line in {line for one in proved for line in one.assumptions}:
        assert said.count(f"- {line}") == 1
    above, below = said.split("against all others")
    assert "- masks hold" in above
    assert "- alone - what the first guarantee assumes as well" in below


def test_one_guarantee_beside_none_says_all_that_it_assumes() -> None:
    first = guarantee("all others", "trusted")
    none = replace(guarantee("the server"), epsilon=math.inf, assumptions=(), proof="nothing is hidden")
    said = unwrapped(guarantees(first, {"others": first, "server": none}))
    assert unwrapped(str(first)) in said
    assert "as well" not in said


# Personal models


@pytest.mark.filterwarnings("ignore")
def test_figures_of_personal_models_are_printed_with_whom_they_are_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, _ = printed(capsys, tmp_path, "fedavg", personalisation={"steps": 5})
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["personalisation"]
    for name, figure in (
        ("test_accuracy", "accuracy "),
        ("own_classes_test_accuracy", "accuracy as own classes are mixed"),
    ):
        line = [line for line in out.splitlines() if re.match(rf"{figure} *\d", line)][-1]  # below the run's scores
        assert [float(x) for x in re.findall(r"\d\.\d{3}", line)] == [
            round(found[of][key], 3) for of in ("personal", "final_model") for key in (name, f"worst_node_{name}")
        ]
    assert unwrapped(found["note"]) in unwrapped(out)


def test_without_personal_models_nothing_is_said_of_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "personal model" not in printed(capsys, tmp_path, "gossip")[0]


# Words of guarantees


@pytest.mark.filterwarnings("ignore")
def test_a_server_that_is_trusted_is_called_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = unwrapped("\n".join(printed(capsys, tmp_path, "fedavg-trusted")))
    assert "but not the trusted server: it stays" in said
    assert "trusted: the server, which sees each client's raw update" in said
    assert "Guarantee against the trusted server, and whoever it tells: none." in said
    assert "curator" not in said


@pytest.mark.parametrize(
    ("name", "observer"),
    [
        ("local", "whoever sees all models of a node, all other nodes together included:"),
        ("central", "whoever sees all models of a node, all other nodes together included:"),
    ],
)
def test_who_learns_alone_is_protected_from_whoever_sees_its_models(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, observer: str
) -> None:
    assert f"against {observer}" in unwrapped(printed(capsys, tmp_path, name)[0])


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (4.0, "  - A(DP)2SGD, Theorem 2 claims epsilon "),
        (0.3, "  - A(DP)2SGD, Theorem 2 promises nothing, since its own conditions do not hold: the first condition"),
    ],
)
def test_a_papers_claim_is_there_for_comparison(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, noise: float, said: str
) -> None:
    out, _ = printed(capsys, tmp_path, "gossip", privacy={"noise_multiplier": noise})
    words = " ".join(out.split())
    assert "it is not proved here, and nothing above relies on it (docs/privacy/claims.md says more):" in words
    assert said.strip() in words
    assert "Claimed" not in words


def test_where_no_paper_claims_anything_nothing_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "comparison" not in printed(capsys, tmp_path, "central")[0]


@pytest.mark.parametrize("name", ["fedavg-trusted", "fedbuff-trusted", "fedavg"])
def test_figures_that_are_the_same_for_all_clients_say_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    """A server's noise covers all of them for as many sums as the one in most."""
    out, _ = printed(capsys, tmp_path, name)
    assert main(["check", str(tmp_path / "spec.yaml")]) == 0
    for text in (out, capsys.readouterr().out):
        said = "the same for all clients: the server's noise covers each for as many sums as the client that may be"
        assert (said in " ".join(text.split())) == name.endswith("trusted")


def test_a_linear_model_is_said_to_be_computed_on_the_processor_whatever_the_device(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = "the processor: linear models are computed there on any machine"
    _, err = printed(capsys, tmp_path, "central", compute={"device": "cuda"})
    assert f"\ndevice: {said}\n" in err
    assert main(["check", str(tmp_path / "spec.yaml")]) == 0
    assert f"\n  - device: {said}\n" in capsys.readouterr().out
    _, err = printed(capsys, tmp_path / "out", "central")
    assert "device" not in err


class LongPlan:
    """As much of a plan as is said when a run begins."""

    updates, words, guarantee = 1, Words(estimates=30 * "estimated "), SimpleNamespace(remarks=())

    def __str__(self) -> str:
        return 30 * "planned "


def test_a_plan_is_broken_at_the_width_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    PlainProgress().planned(LongPlan())  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.split() == [*30 * ["estimated"], "plan:", *30 * ["planned"]]
    assert max(map(len, said.splitlines())) <= 100


def test_scores_of_a_model_that_nobody_has_are_said_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A table of the mean of all models, where each has its own, would be taken for what somebody has."""
    said = "These scores are of the mean of all nodes' models, which nobody has"
    for name in ("local", "central", "gossip"):
        (tmp_path / name).mkdir()
        assert (said in printed(capsys, tmp_path / name, name)[0]) == (name == "local")
    columns = {"age": [20, 90], "hr": [40, 140]}
    (tmp_path / "ill.csv").write_text(
        "age,hr,ill\n" + "".join(f"{20 + n % 70},{40 + n % 99},{n % 2}\n" for n in range(200))
    )
    dataset = {"name": "ill", "path": str(tmp_path / "ill.csv"), "target": "ill", "labels": [0, 1], "columns": columns}
    out = " ".join(printed(capsys, tmp_path, "local", dataset=dataset)[0].split())
    own = json.loads((tmp_path / "out" / "summary.json").read_text())["scores"]["nodes"]
    assert f"{said}; their own have an area under the ROC curve of {own['auroc']:.3f} (worst" in out


def test_the_area_under_the_curve_stands_beside_the_model_that_has_it() -> None:
    row = {**ROW, "test_auroc": 0.75}
    said = "mean model 0.500 (area under its ROC curve 0.750), nodes 0.400 (worst 0.250)"
    assert describe_row(row, Words(figures="")) == f"accuracy: {said}"
    assert "ROC" not in describe_row(row, Words(shared=False))
