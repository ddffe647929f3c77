"""``gossamer data``: what was spent, what is left, and data that changed."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.deployment.owned_data import OwnedData
from gossamer.deployment.policy import read_policy
from gossamer.errors import DataError
from gossamer.privacy.accountants import renyi_divergence
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.renyi import renyi_epsilon, renyi_level
from gossamer.privacy.sampling import Poisson

pytestmark = pytest.mark.usefixtures("called_here")

KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
ONE = renyi_divergence(KIND, 8.0, NeighboringRelation.ADD_OR_REMOVE_ONE)
ROWS = ["1,2,0", "3,4,1", "5,6,0", "7,8,1"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "data:\n"
        "  wards: {epsilon: 4, delta: 1.0e-5, order: 8, path: wards.csv}\n"
        "  beds: {epsilon: 1, delta: 1.0e-6, relation: replace_one}\n"
    )
    write(tmp_path / "wards.csv", ROWS)
    return path


def write(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["age,beds,label", *rows]) + "\n")


def run(policy: Path) -> None:
    """A run of another process, with a plan of five releases, of which it makes two."""
    with closing(OwnedData.open(read_policy(policy), "wards")) as data:
        data.check()
        ledger = data.ledger("run", "a", {KIND: 5})
        for _ in range(2):
            ledger.charge(KIND)


def said(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> tuple[str, str]:
    assert main(["data", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def shown(capsys: pytest.CaptureFixture[str], policy: Path) -> dict[str, Any]:
    out, _ = said(capsys, "show", policy, "--json")
    return {one["name"]: one for one in json.loads(out)["data_sets"]}


def test_show_before_anything_was_spent(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    out, err = said(capsys, "show", policy)
    assert f"no ledger at {policy.with_suffix('.ledger')} yet: nothing was spent" in err
    assert out.splitlines()[:3] == [
        "wards",
        "  allowed: epsilon 4 at delta 1e-05 (add_or_remove_one), Renyi order 8",
        f"  spent: divergence 0 of {renyi_level(8, 4, 1e-5):.4g} (epsilon so far 0 at delta 1e-05); left: "
        f"{renyi_level(8, 4, 1e-5):.4g} (100 %)",
    ]
    found = shown(capsys, policy)
    assert list(found) == ["wards", "beds"]
    assert found["beds"]["allowed"]["relation"] == "replace_one"
    assert not policy.with_suffix(".ledger").exists()


def test_show_says_what_was_spent_and_what_is_left(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    run(policy)
    wards = shown(capsys, policy)["wards"]
    level = renyi_level(8, 4, 1e-5)
    assert wards["spent_divergence"] == pytest.approx(5 * ONE, rel=1e-12)
    assert wards["left_divergence"] == pytest.approx(level - 5 * ONE, rel=1e-12)
    assert wards["epsilon"] == pytest.approx(renyi_epsilon(8, 5 * ONE, 1e-5), rel=1e-12)
    assert wards["allowed"] == {"epsilon": 4.0, "delta": 1e-5, "relation": "add_or_remove_one", "order": 8.0}
    assert [(one["run"], one["releases"]) for one in wards["runs"]] == [("run/a", 2)]
    assert [(one["examples"], one["added"], one["gone"]) for one in wards["contents"]] == [(4, 4, 0)]
    out, err = said(capsys, "show", policy)
    assert err == ""
    assert f"({100 * (1 - 5 * ONE / level):.0f} %)" in out
    assert f"    run/a  {5 * ONE:.4g}" in out
    assert "  content: 4 examples, accepted 2" in out


def test_update_accepts_what_changed_and_keeps_what_was_spent(
    capsys: pytest.CaptureFixture[str], policy: Path, tmp_path: Path
) -> None:
    run(policy)
    before = shown(capsys, policy)["wards"]
    write(tmp_path / "wards.csv", ROWS[:3])
    with pytest.raises(DataError, match="1 examples are gone"):
        run(policy)
    out, _ = said(capsys, "update", policy, "--name", "wards")
    assert out == (
        "wards: 3 examples accepted (1 examples are gone, of 4 before and 3 now); what was spent stays spent\n"
    )
    run(policy)
    after = shown(capsys, policy)["wards"]
    assert after["spent_divergence"] == before["spent_divergence"]
    assert [(one["examples"], one["added"], one["gone"]) for one in after["contents"]] == [(4, 4, 0), (3, 0, 1)]
    assert after["contents"][0]["fingerprint"] != after["contents"][1]["fingerprint"]
    out, _ = said(capsys, "update", policy, "--name", "wards", "--json")
    assert json.loads(out) == {"name": "wards", "examples": 3, "difference": None}
    assert "(0 new, 1 gone)" in said(capsys, "show", policy)[0]


def test_examples_that_have_another_name_too_are_told_of(
    capsys: pytest.CaptureFixture[str], policy: Path, tmp_path: Path
) -> None:
    run(policy)
    write(tmp_path / "beds.csv", [*ROWS[:2], "9,9,1"])
    _, err = said(capsys, "update", policy, "--name", "beds", "--data", tmp_path / "beds.csv", "--adds-up")
    assert "data set 'beds': 2 examples are also in 'wards'; what both spend adds up for them" in err
    assert shown(capsys, policy)["wards"]["overlaps"] == {"beds": 2}
    assert "  2 examples are also in 'wards'" in said(capsys, "show", policy)[0]


def test_a_lost_key_is_replaced_only_when_asked(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    run(policy)
    before = shown(capsys, policy)["wards"]["spent_divergence"]
    key = policy.with_suffix(".ledger.key")
    key.unlink()
    _, err = said(capsys, "update", policy, "--name", "wards", status=2)
    assert "gossamer: error: " in err
    assert "gossamer data update --new-key" in err
    assert shown(capsys, policy)["wards"]["spent_divergence"] == before  # which needs no key
    out, _ = said(capsys, "update", policy, "--name", "wards", "--new-key")
    assert "the hashes of the 4 before were forgotten with their key" in out
    run(policy)
    assert shown(capsys, policy)["wards"]["spent_divergence"] == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("show", "missing.yaml"), "missing.yaml: cannot be read: No such file or directory"),
        (("update", "policy.yaml"), "several data sets may be meant; name one of wards, beds"),
        (("update", "policy.yaml", "--name", "ward"), "no data set 'ward'; did you mean wards?"),
        (("update", "policy.yaml", "--name", "beds"), "data set 'beds': no file is known; give --data"),
        (("update", "policy.yaml", "--name", "beds", "--data", "none.csv"), "there is no file or folder none.csv"),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str], policy: Path, arguments: tuple[str, ...], expected: str
) -> None:
    out, err = said(capsys, *arguments, status=2)
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith("gossamer: error: ")
    assert expected in line


def test_a_ledger_that_is_gone_is_a_mistake(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    run(policy)
    for left in policy.parent.glob("policy.ledger*"):
        if left.suffix != ".key":
            left.unlink()
    for arguments in (("show", policy), ("update", policy, "--name", "wards")):
        _, err = said(capsys, *arguments, status=2)
        assert "so what the data have spent is not known" in err
