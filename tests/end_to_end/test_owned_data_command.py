"""``gossamer data``: what was spent, what is left, and data that changed."""

from __future__ import annotations

import json
import math
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import DataError
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.filters import GaussianFilter
from gossamer.privacy.accounting.gaussian_dp import PlanCurve, gaussian_epsilon
from gossamer.privacy.accounting.renyi import renyi_epsilon, renyi_level
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind, without_late
from gossamer.protocol.witnesses import Seen

pytestmark = pytest.mark.usefixtures("called_here")

KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
ONE = renyi_divergence(KIND, 8.0, ADD)
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
    mu = math.sqrt(GaussianFilter(4.0, 0.5e-5, ADD).level)
    assert out.splitlines()[:5] == [
        "wards",
        "  allowed: epsilon 4 at delta 1e-05 (add_or_remove_one)",
        "  spent: 0 %, so 100 % is left (epsilon charged to the policy 0 at delta 1e-05)",
        f"    as Renyi divergence 0 of {renyi_level(8, 4, 0.5e-5):.4g} at order 8: 0 %",
        f"    as Gaussian privacy mu 0 of {mu:.4g}: 0 % of its square",
    ]
    found = shown(capsys, policy)
    assert list(found) == ["wards", "beds"]
    assert found["beds"]["allowed"]["relation"] == "replace_one"
    assert not policy.with_suffix(".ledger").exists()


def test_the_pages_example_is_what_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By the page's policy, for two runs of which one is in the series; but for when, and of which examples."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "policy.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (example,) = re.findall(r"^\$ gossamer data show policy.yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    policy = tmp_path / "policy.yaml"
    policy.write_text(block)
    (tmp_path / "kept").mkdir()
    write(tmp_path / "wards.csv", [f"{number},{number % 7},{number % 2}" for number in range(1204)])
    first, second = re.findall(r"^    (\w{32})/hospital-a", example, re.MULTILINE)
    with closing(OwnedData.open(read_policy(policy))) as data:
        data.check()
        for name, multiplier, rate, releases in ((first, 3.0, 0.04, 412), (second, 4.0, 0.01, 3000)):
            kind = ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 10)
            ledger = data.ledger(name, "hospital-a", {kind: releases})
            for _ in range(releases):
                ledger.charge(kind)
        receipts = data.file.receipts(first, "hospital-a")
        with data.file.transaction():
            for number in range(413):
                receipts._write(f'{{"number": {number}}}\n')
                receipts._follow(f'{{"number": {number}}}\n')
            receipts.witnessed("server", Seen(412, receipts.heads[412]), bytes(64))
            receipts._write_countersignatures()
    out, _ = said(capsys, "show", policy)
    *lines, content = out.splitlines()
    *expected, accepted = example.splitlines()
    # A mu is found to 0.2 %; all else is as it stands, but for a head of random receipts and when it was noted.
    number = re.compile(r"\d+\.\d+|\d+(?= %)")
    lines, expected = ([re.sub(r"head \w{16}, noted \S+$", "", line) for line in some] for some in (lines, expected))
    assert [number.sub("#", " ".join(line.split())) for line in lines] == [
        number.sub("#", " ".join(line.split())) for line in expected
    ]
    for line, on_page in zip(lines, expected, strict=True):
        found, said_there = (list(map(float, number.findall(text))) for text in (line, on_page))
        assert found == pytest.approx(said_there, rel=5e-3, abs=1.01 if "%" in line else 0.0)
    assert content.partition(", accepted")[0] == accepted.partition(", accepted")[0]


def test_show_says_what_was_spent_and_what_is_left(capsys: pytest.CaptureFixture[str], policy: Path) -> None:
    run(policy)
    wards = shown(capsys, policy)["wards"]
    level = renyi_level(8, 4, without_late(1e-5) / 2)
    assert wards["spent_divergence"] == pytest.approx(5 * ONE, rel=1e-12)
    assert wards["left_divergence"] == pytest.approx(level - 5 * ONE, rel=1e-12)
    mu, failures = wards["spent_mu"], wards["spent_failures"]
    assert mu == pytest.approx(PlanCurve.of({KIND: 5}, ADD).mu(failures), rel=2e-3)
    assert wards["epsilon"] == gaussian_epsilon(mu, without_late(1e-5) - failures) < renyi_epsilon(8, 5 * ONE, 1e-5)
    room = GaussianFilter(4.0, without_late(1e-5) / 2, ADD)
    assert wards["left_mu"] ** 2 == pytest.approx(room.level - mu**2)
    assert wards["left_failures"] == pytest.approx(room.failures - failures)
    assert wards["allowed"] == {
        "epsilon": 4.0,
        "delta": 1e-5,
        "relation": "add_or_remove_one",
        "order": 8.0,
        "filters": ["renyi", "gaussian"],
    }
    assert [(one["run"], one["releases"]) for one in wards["runs"]] == [("run/a", 2)]
    assert [(one["examples"], one["added"], one["gone"]) for one in wards["contents"]] == [(4, 4, 0)]
    out, err = said(capsys, "show", policy)
    assert err == ""
    share = min(mu**2 / room.level, 5 * ONE / level)  # the filter with more left counts
    assert f"  spent: {100 * share:.0f} %, so {100 * (1 - share):.0f} % is left (epsilon charged to the policy " in out
    assert f"order 8: {100 * 5 * ONE / level:.0f} %" in out
    assert f"    run/a  {5 * ONE:<10.4g}  {mu:.4g}" in out
    assert "  content: 4 examples, accepted 2" in out


def test_update_accepts_what_changed_and_keeps_what_was_spent(
    capsys: pytest.CaptureFixture[str], policy: Path, tmp_path: Path
) -> None:
    run(policy)
    before = shown(capsys, policy)["wards"]
    write(tmp_path / "wards.csv", ROWS[:3])
    with pytest.raises(DataError, match="1 example is gone"):
        run(policy)
    out, _ = said(capsys, "update", policy, "--name", "wards")
    assert out == (
        "wards: 3 examples accepted (1 example is gone, of 4 before and 3 now); what was spent stays spent\n"
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
    out, err = said(capsys, "update", policy, "--name", "wards", "--new-key")
    assert "the hashes of the 4 before were forgotten with their key" in out
    assert err == ""
    made = key.read_bytes()
    out, err = said(capsys, "update", policy, "--name", "wards", "--new-key")
    assert err == f"{key} is there and belongs to the ledger, so --new-key has made no other\n"
    assert out == "wards: 4 examples accepted; what was spent stays spent\n"
    assert key.read_bytes() == made
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
