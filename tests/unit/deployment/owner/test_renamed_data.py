"""Data that turn up under a new name: the ledger knows them by content, and no budget begins anew by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import BudgetSpent, DataError, SpecError
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind
from gossamer.runtimes.storage.contents import MOST_SHARED
from gossamer.runtimes.storage.file import StorageError
from gossamer.runtimes.storage.ledger import LedgerFile

KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
ORDER = 6
ONE = renyi_divergence(KIND, ORDER, NeighboringRelation.ADD_OR_REMOVE_ONE)
FIT, MORE = 230, 70  # so many fit, and together no filter may cover them; see `test_owned_data`
ROWS = [f"{number},{number * number % 7},{number % 2}" for number in range(1200)]  # more than one question's worth

Open = Callable[..., OwnedData]


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["age,beds,label", *rows]) + "\n", encoding="utf-8")
    return path


def policy(folder: Path, *names: str) -> None:
    rules = "".join(f"  {name}: {{epsilon: 4, delta: 1.0e-5, order: {ORDER}, path: {name}.csv}}\n" for name in names)
    (folder / "policy.yaml").write_text(f"data:\n{rules}", encoding="utf-8")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_data(name: str, **options: Any) -> OwnedData:
            found = OwnedData.open(read_policy(tmp_path / "policy.yaml"), name, **options)
            return stack.enter_context(closing(found))

        yield open_data


@pytest.fixture
def spent(tmp_path: Path, opened: Open) -> Path:
    """A folder whose data set `wards` has one release left."""
    policy(tmp_path, "wards")
    write(tmp_path / "wards.csv", ROWS)
    data = opened("wards")
    data.check()
    data.ledger("run", "a", {KIND: FIT - 1}).charge(KIND)
    return tmp_path


CHANGED = {
    "the same file": ROWS,
    "in another order": ROWS[::-1],
    "with an example more": [*ROWS, "-1,0,0"],
    "with as many more": [*ROWS, *(f"{-number},0,1" for number in range(1, 1200))],
    "of which most are gone": ROWS[:30],
    "a fifth of it, in other data": [*ROWS[:240], *(f"{-number},0,1" for number in range(1, 961))],
}


@pytest.mark.parametrize("rows", CHANGED.values(), ids=CHANGED)
def test_a_new_name_does_not_begin_a_fresh_budget(opened: Open, spent: Path, rows: list[str]) -> None:
    policy(spent, "beds")
    write(spent / "beds.csv", rows)
    for _ in range(2):  # asking twice does not help
        with pytest.raises(DataError) as caught:
            opened("beds").check()
    common = len(set(rows) & set(ROWS))
    assert f"data set 'beds': {common:,} of its {len(rows):,} examples are known as 'wards'" in str(caught.value)
    assert "--name beds --renamed-from wards takes over what was spent" in str(caught.value)
    assert "--adds-up in its place" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no fresh budget"):
        opened("beds").update()
    with pytest.raises(AssertionError):
        opened("beds").ledger("two", "a", {KIND: 2})
    assert opened("beds").file.data_sets == ["wards"]  # nothing was accepted


def test_what_was_spent_goes_with_the_new_name(opened: Open, spent: Path) -> None:
    policy(spent, "beds")
    write(spent / "beds.csv", [*ROWS[::-1], "-1,0,0"])
    found = opened("beds").update(renamed_from="wards")
    assert str(found) == "1 example is new, of 1,200 before and 1,201 now"
    data = opened("beds")
    assert data.check() == []
    assert data.file.data_sets == ["beds"]
    assert data.file.spent("beds") == pytest.approx((FIT - 1) * ONE, rel=1e-12)
    assert data.file.filter_of("beds") == (ORDER, NeighboringRelation.ADD_OR_REMOVE_ONE)
    total = data.file.total("beds")  # what the other filter has counted goes along
    assert total is not None
    assert total.squared > 0.9 * data.budget.gaussian.level
    assert [content.examples for content in data.file.contents.history("beds")] == [1200, 1201]
    with pytest.raises(BudgetSpent):
        data.ledger("two", "a", {KIND: MORE})
    data.ledger("two", "a", {KIND: 1})
    # A run that goes on is the one that was charged, with its releases.
    again = data.ledger("run", "a", {KIND: FIT - 1})
    assert again.releases == 1


def test_the_old_name_is_a_new_name_after_that(opened: Open, spent: Path) -> None:
    policy(spent, "beds")
    write(spent / "beds.csv", ROWS)
    opened("beds").update(renamed_from="wards")
    policy(spent, "wards", "beds")
    with pytest.raises(DataError, match="'wards': 1,200 of its 1,200 examples are known as 'beds'"):
        opened("wards").check()


def test_other_data_with_examples_in_common_are_accepted_by_name(opened: Open, spent: Path) -> None:
    policy(spent, "wards", "beds")
    write(spent / "beds.csv", [*ROWS[:600], *(f"{-number},0,1" for number in range(1, 601))])
    opened("beds").update(adds_up=True)
    (line,) = opened("beds").check()
    assert line == "data set 'beds': 600 examples are also in 'wards'; what both spend adds up for them"
    opened("beds").check()
    assert opened("beds").file.spent("beds") == 0.0


def test_rows_in_common_by_chance_ask_for_nothing(opened: Open, spent: Path) -> None:
    """A tenth of the smaller data set, and one more."""
    policy(spent, "wards", "beds")
    few = int(MOST_SHARED * 200)
    others = [f"{-number},0,1" for number in range(1, 200 - few + 1)]
    write(spent / "beds.csv", [*ROWS[:few], *others])
    assert f"{few} examples are also in 'wards'" in opened("beds").check()[0]
    policy(spent, "wards", "more")
    write(spent / "more.csv", [*ROWS[: few + 1], *(f"{-number},5,1" for number in range(1, 200 - few))])
    with pytest.raises(DataError, match=f"{few + 1} of its 200"):
        opened("more").check()


def test_content_of_another_name_is_not_brought_in_by_an_update(opened: Open, spent: Path) -> None:
    """A name that was begun with other data has a budget of its own; what it had in common before is asked once."""
    policy(spent, "wards", "beds")
    others = [f"{-number},0,1" for number in range(1, 100)]
    write(spent / "beds.csv", others)
    opened("beds").check()
    write(spent / "beds.csv", ROWS)
    with pytest.raises(DataError, match="1,200 of its 1,200 examples are known as 'wards'"):
        opened("beds").update()
    write(spent / "beds.csv", [*others, *ROWS[:300]])
    opened("beds").update(adds_up=True)
    write(spent / "beds.csv", [*others[1:], *ROWS[:300]])
    assert str(opened("beds").update()) == "1 example is gone, of 399 before and 398 now"


def test_where_hashes_were_forgotten_nobody_can_tell(opened: Open, spent: Path) -> None:
    """A new key knows none of the old examples, so a name that is new may be any of the old ones."""
    (spent / "policy.ledger.key").unlink()
    policy(spent, "beds")
    write(spent / "beds.csv", ROWS)
    with pytest.raises(DataError, match=r"'beds': it may be 'wards', whose hashes were forgotten with their key"):
        opened("beds", new_key=True).update()
    with pytest.raises(DataError, match="it may be 'wards'"):
        opened("beds").check()
    opened("beds").update(renamed_from="wards")
    assert opened("beds").file.spent("beds") == pytest.approx((FIT - 1) * ONE, rel=1e-12)


OTHERS = [f"{-number},0,1" for number in range(1, 101)]


@pytest.fixture
def forgotten(spent: Path, opened: Open) -> Path:
    """A folder with `wards`, and `beds` that was begun with other data; the key of both is lost."""
    policy(spent, "wards", "beds")
    write(spent / "beds.csv", OTHERS)
    opened("beds").check()
    (spent / "policy.ledger.key").unlink()
    return spent


def test_under_a_new_key_a_name_that_was_begun_may_be_another_one(opened: Open, forgotten: Path) -> None:
    """Nothing is left to compare its content with: the file may be that of any name whose hashes were forgotten."""
    write(forgotten / "beds.csv", ROWS)
    for key in (True, False):
        with pytest.raises(DataError) as caught:
            opened("beds", new_key=key).update()
    assert str(caught.value) == (
        "data set 'beds': it may be 'wards', whose hashes were forgotten with their key, and another name is no fresh "
        f"budget; gossamer data update {forgotten}/policy.yaml --data {forgotten}/beds.csv --name beds --adds-up "
        "accepts it, if it is no mistake: for examples in common what both names spend adds up"
    )
    assert [content.examples for content in opened("beds").file.contents.history("beds")] == [100]
    with pytest.raises(DataError, match="data set 'beds' changed"):
        opened("beds").check()
    opened("beds").update(adds_up=True)
    with pytest.raises(DataError, match="1,200 of its 1,200 examples are known as 'beds'"):
        opened("wards").update()  # which can be compared with what was accepted in between


def test_after_a_new_key_the_last_name_is_compared_with_all_others(opened: Open, forgotten: Path) -> None:
    with pytest.raises(DataError, match="it may be 'beds'"):
        opened("wards", new_key=True).update()
    opened("wards").update(adds_up=True)
    opened("beds").update()
    assert opened("beds").check() == opened("wards").check() == []


def test_next_to_a_name_that_stays_forgotten_single_rows_may_change(opened: Open, forgotten: Path) -> None:
    """As next to any other name, were all that is new of it: up to a tenth of the smaller of the two."""
    opened("wards", new_key=True).update(adds_up=True)
    write(forgotten / "wards.csv", [*ROWS[10:], *(f"{number},0,0" for number in range(5000, 5010))])
    assert str(opened("wards").update()).startswith("10 examples are new and 10 examples are gone, of 1,200 before")
    write(forgotten / "wards.csv", [*ROWS[10:], *(f"{number},0,0" for number in range(6000, 6011))])
    with pytest.raises(DataError, match="it may be 'beds', whose hashes were forgotten"):  # 11 of the 100 of `beds`
        opened("wards").update()


def test_names_that_do_not_fit_get_a_line(opened: Open, spent: Path) -> None:
    policy(spent, "wards", "beds")
    write(spent / "beds.csv", ROWS)
    with pytest.raises(SpecError, match=r"line 2, data.wards: data that were renamed have one name; take 'wards' out"):
        opened("beds").update(renamed_from="wards")
    policy(spent, "beds")
    with pytest.raises(SpecError, match=r"the ledger knows no data set 'ward', so nothing was renamed; it knows wards"):
        opened("beds").update(renamed_from="ward")
    opened("beds").update(adds_up=True)
    with pytest.raises(SpecError, match=r"'beds' is in the ledger already"):
        opened("beds").update(renamed_from="wards")
    assert opened("beds").file.spent("wards") == pytest.approx((FIT - 1) * ONE, rel=1e-12)


def test_a_node_that_runs_under_the_old_name_releases_nothing_more(opened: Open, spent: Path) -> None:
    """Else it would be charged under a name that has spent nothing, and its run could go on twice."""
    data = opened("wards")
    data.check()
    running = data.ledger("run", "a", {KIND: FIT - 1})
    policy(spent, "beds")
    write(spent / "beds.csv", ROWS)
    opened("beds").update(renamed_from="wards")
    with pytest.raises(StorageError, match="its data set was renamed; start the node again"):
        running.charge(KIND)
    with pytest.raises(StorageError, match="its data set was renamed; start the node again"):
        data.ledger("three", "a", {KIND: 1})
    again = opened("beds")
    again.check()
    assert again.ledger("run", "a", {KIND: FIT - 1}).releases == 1
    assert again.file.data_sets == ["beds"]


def test_a_rename_is_whole_or_nothing(opened: Open, spent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it stops after some of its statements, all is kept under the old name."""
    policy(spent, "beds")
    write(spent / "beds.csv", ROWS)
    data = opened("beds")
    file = data.file.contents.file
    for most in range(5):
        done: list[str] = []
        execute = type(file).execute

        def stopped(
            self: Any, statement: str, *values: Any, done: list[str] = done, most: int = most, execute: Any = execute
        ) -> None:
            if len(done) == most:
                raise StorageError("the disk is full")
            done.append(statement)
            execute(self, statement, *values)

        with monkeypatch.context() as patch:
            patch.setattr(type(file), "execute", stopped)
            with pytest.raises(StorageError, match="the disk is full"):
                data.update(renamed_from="wards")
        assert data.file.data_sets == ["wards"]
        assert data.file.spent("wards") == pytest.approx((FIT - 1) * ONE, rel=1e-12)
    data.update(renamed_from="wards")


def test_a_ledger_in_which_nothing_was_renamed_has_no_guards(opened: Open, spent: Path) -> None:
    with closing(LedgerFile(spent / "policy.ledger")) as file:
        names = {name for (name,) in file.contents.file.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    assert names == set()


def test_by_command(spent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy(spent, "beds")
    write(spent / "beds.csv", ROWS)
    update = ["data", "update", str(spent / "policy.yaml"), "--name", "beds"]
    assert main(update) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"gossamer data update {spent}/policy.yaml --data {spent}/beds.csv --name beds --renamed-from wards" in err
    assert main([*update, "--renamed-from", "wards"]) == 0
    out, _ = capsys.readouterr()
    assert out == "beds: 1,200 examples accepted, renamed from wards; what was spent stays spent\n"
    assert main(["data", "show", str(spent / "policy.yaml")]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("beds\n")
    assert "wards" not in out


def test_a_budget_does_not_begin_anew_little_by_little(opened: Open, spent: Path) -> None:
    """Each time less than a tenth of the rows of `wards` are new under the other name."""
    policy(spent, "beds")
    rows = [f"{-number},0,1" for number in range(1, 1200)]
    write(spent / "beds.csv", rows)
    beds = opened("beds")
    beds.check()
    write(spent / "beds.csv", [*rows, *ROWS[:100]])
    beds.update()
    write(spent / "beds.csv", [*rows, *ROWS[:200]])
    with pytest.raises(DataError, match=r"200 of its 1,399 examples are known as 'wards', and another name is"):
        beds.update()
    beds.update(adds_up=True)
    write(spent / "beds.csv", [*rows, *ROWS[:201]])
    beds.update()  # what was confirmed is not asked about again
