"""What an owner's data consist of and have spent: kept by name, over all runs, and never forgotten by accident."""

from __future__ import annotations

import gzip
import itertools
import math
import os
import sqlite3
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gossamer.deployment.owner import owned_data as spending
from gossamer.deployment.owner.fingerprints import content_of, examples_at, examples_of
from gossamer.deployment.owner.owned_data import OwnedData, key_path, open_with_key, spendings
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import BudgetSpent, CallerError, DataError, SpecError
from gossamer.privacy.accounting.accountants import epsilon, renyi_divergence
from gossamer.privacy.accounting.filters import FilterEntry
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.accounting.renyi import renyi_epsilon, renyi_level
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, NoNoise, Poisson, ReleaseKind, without_late
from gossamer.runtimes.storage.file import StorageError
from gossamer.runtimes.storage.ledger import LedgerFile

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
BARE = ReleaseKind(NoNoise(), Poisson(0.1), 10)
ORDER = 6  # what suits (4, 1e-5) best; see `test_the_order_is_fixed_by_the_first_use`
ONE = renyi_divergence(KIND, ORDER, ADD)
LEVEL = renyi_level(ORDER, 4.0, 0.5e-5)  # of the Renyi filter, at its half of delta
FIT, MORE = 230, 70
"""Releases of KIND that the Gaussian filter covers, and so many more that no filter may: see the next test."""

POLICY = "data:\n  wards: {epsilon: 4, delta: 1.0e-5, path: wards.csv}\n  beds: {epsilon: 4, delta: 1.0e-5}\n"
ROWS = [f"{number},{number * number % 7},{number % 2}" for number in range(20)]

Open = Callable[..., OwnedData]


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["age,beds,label", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    write(tmp_path / "wards.csv", ROWS)
    return tmp_path


@pytest.fixture
def opened(folder: Path) -> Iterator[Open]:
    """A data set as a process finds it."""
    with ExitStack() as stack:

        def open_data(name: str = "wards", path: Path | None = None, **options: Any) -> OwnedData:
            policy = read_policy(folder / "policy.yaml")
            return stack.enter_context(closing(OwnedData.open(policy, name, path, **options)))

        yield open_data


# What was spent


def test_no_filter_may_cover_more() -> None:
    assert epsilon({KIND: FIT + MORE}, 1e-5, ADD).epsilon > 4.1
    assert FIT * ONE > LEVEL


def test_what_was_spent_carries_over_from_run_to_run(opened: Open) -> None:
    first = opened()
    first.check()
    first.ledger("one", "a", {KIND: FIT - 1})
    second = opened()
    second.check()
    assert second.file.spent("wards") == pytest.approx((FIT - 1) * ONE, rel=1e-12)
    with pytest.raises(BudgetSpent, match="data set 'wards' has spent"):
        second.ledger("two", "a", {KIND: MORE})
    second.ledger("three", "a", {KIND: 1})
    again = second.ledger("one", "a", {KIND: FIT - 1})
    again.charge(KIND)
    assert opened().file.spent("wards") == pytest.approx(FIT * ONE, rel=1e-12)


def test_a_run_that_goes_on_is_not_charged_again(opened: Open) -> None:
    for number in range(3):
        data = opened()
        data.check()
        ledger = data.ledger("run", "a", {KIND: 3})
        assert ledger.releases == number
        ledger.charge(KIND)
        assert data.file.spent("wards") == pytest.approx(3 * ONE, rel=1e-12)
    with pytest.raises(BudgetSpent):
        ledger.charge(KIND)


def test_two_nodes_of_one_run_pay_each_for_itself(opened: Open) -> None:
    data = opened()
    data.check()
    for node in ("a", "b"):
        ledger = data.ledger("run", node, {KIND: 1})
        assert ledger.owner == node
        ledger.charge(KIND)
    assert data.file.spent("wards") == pytest.approx(2 * ONE, rel=1e-12)


def test_an_agents_share_is_its_units_whole_plan(opened: Open) -> None:
    data = opened()
    data.check()
    assert data.ledger("run", "agent", {}, 0.9 * LEVEL, FilterEntry(0.7), b"").owner == "agent"
    with pytest.raises(BudgetSpent):
        data.ledger("two", "a", {KIND: FIT})
    with pytest.raises(BudgetSpent):
        data.ledger("three", "agent", {}, math.inf, terms=b"")


def test_what_passes_is_within_the_policys_epsilon(opened: Open) -> None:
    """By the tight accountant, had it been one plan; and the filter is not far from it."""
    data = opened()
    data.check()
    for number in itertools.count():
        try:
            data.ledger(f"run {number}", "a", {KIND: FIT // 10})
        except BudgetSpent:
            break
    tight = epsilon({KIND: number * (FIT // 10)}, 1e-5, ADD).epsilon
    assert 2.5 < tight <= 4.0


def test_what_late_answers_may_take_is_not_for_releases(opened: Open) -> None:
    """Of the policy's delta the ledger has all but 2^-40, which covers 2^40 answers that may be late."""
    data = opened()
    data.check()
    account = data.ledger("run", "a", {KIND: 1})
    assert account.budget.delta == 1e-5 - 2.0**-40
    assert data.budget.delta == 1e-5, "what the owner reads is what the owner wrote"


def test_a_run_without_privacy_spends_everything(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    with pytest.raises(BudgetSpent):
        data.ledger("run", "a", {BARE: 1})
    (folder / "policy.yaml").write_text(f"{POLICY}without_privacy: yes\n")
    allowed = opened()
    allowed.check()
    allowed.ledger("first", "a", {KIND: FIT - 1})
    with pytest.raises(BudgetSpent):  # runs with privacy have their budget still
        allowed.ledger("second", "a", {KIND: MORE})
    allowed.ledger("run", "a", {BARE: 2}).charge(BARE)
    allowed.ledger("run", "a", {BARE: 2}).charge(BARE)
    with pytest.raises(BudgetSpent):
        allowed.ledger("last", "a", {KIND: 1})
    allowed.ledger("shared", "a", {}, math.inf, terms=b"")


def test_noise_of_which_nothing_is_proved_spends_everything(opened: Open, folder: Path) -> None:
    """Its kinds alone would not tell: they are those of a run whose updates are bounded."""
    data = opened()
    data.check()
    with pytest.raises(BudgetSpent):
        data.ledger("run", "a", {KIND: 1}, math.inf)
    (folder / "policy.yaml").write_text(f"{POLICY}without_privacy: yes\n")
    allowed = opened()
    allowed.check()
    allowed.ledger("none", "a", {KIND: 0})
    assert allowed.file.spent("wards") == 0.0
    allowed.ledger("proved", "a", {KIND: 1})
    with pytest.raises(SpecError, match="another plan"):
        allowed.ledger("proved", "a", {KIND: 1}, math.inf)
    for _ in range(2):
        allowed.ledger("run", "a", {KIND: 2}, math.inf).charge(KIND)
    assert allowed.file.spent("wards") == math.inf


def test_what_nothing_holds_to_its_plan_spends_everything_however_little_is_planned(opened: Open, folder: Path) -> None:
    """A node without noise that was to make no update may yet make some: no ledger refuses them."""
    (folder / "policy.yaml").write_text(f"{POLICY}without_privacy: yes\n")
    data = opened()
    data.check()
    data.ledger("run", "a", {KIND: 0}, math.inf)
    assert data.file.spent("wards") == math.inf


def test_the_order_is_fixed_by_the_first_use(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    # The largest mu of Gaussian noise on full batches that fits, by whole orders.
    assert data.budget.order == max(range(2, 100), key=lambda a: renyi_level(a, 4.0, 0.5e-5) / a) == ORDER
    data.ledger("run", "a", {KIND: 1})
    more = POLICY.replace("epsilon: 4", "epsilon: 20")
    (folder / "policy.yaml").write_text(more)
    later = opened()
    later.check()
    assert later.budget.order == ORDER
    later.ledger("two", "a", {KIND: FIT})
    for change in ("order: 8, ", "relation: replace_one, "):
        (folder / "policy.yaml").write_text(more.replace("wards: {", f"wards: {{{change}"))
        for use in (opened, lambda: spendings(read_policy(folder / "policy.yaml"))):
            with pytest.raises(SpecError, match=r"data set 'wards' .* a filter's order and relation never change"):
                use()


def test_nothing_is_released_from_data_that_were_not_looked_at(opened: Open) -> None:
    with pytest.raises(AssertionError, match="before anything is released"):
        opened().ledger("run", "a", {KIND: 1})


# Content


def test_the_same_data_are_the_same(opened: Open) -> None:
    (line,) = opened().check()
    assert "a new ledger" in line
    assert "nothing counts as spent" in line
    assert opened().check() == []


@pytest.mark.parametrize(
    ("rows", "difference"),
    [
        (ROWS[:15], "5 examples are gone, of 20 before and 15 now"),
        (ROWS[::-1], "the same examples, in another order"),
        ([*ROWS, "90,1,0"], "1 example is new, of 20 before and 21 now"),
        (["7.5,0,0", *ROWS[1:]], "1 example is new and 1 example is gone, of 20 before and 20 now"),
        ([*ROWS, ROWS[3]], "the same examples, but some of them another number of times"),
        (["x,y,z"], "1 example is new and 20 examples are gone, of 20 before and 1 now"),
    ],
)
def test_changed_data_are_refused_until_they_are_accepted(
    opened: Open, folder: Path, rows: list[str], difference: str
) -> None:
    data = opened()
    data.check()
    data.ledger("run", "a", {KIND: FIT - 1})
    path = write(folder / "wards.csv", rows)
    for _ in range(2):  # asking twice does not help
        with pytest.raises(DataError) as caught:
            opened().check()
        assert str(caught.value) == (
            f"data set 'wards' changed: {difference}; gossamer data update {folder}/policy.yaml --data {path} --name "
            "wards accepts it, and keeps everything that was spent"
        )
    found = opened().update()
    assert str(found) == difference
    after = opened()
    assert after.check() == []
    assert after.update() is None
    with pytest.raises(BudgetSpent):
        after.ledger("two", "a", {KIND: MORE})
    after.ledger("two", "a", {KIND: 1})
    # Bringing the old content back is a change, too.
    write(folder / "wards.csv", ROWS)
    with pytest.raises(DataError, match="changed"):
        opened().check()


def test_each_content_is_compared_with_the_one_before(opened: Open, folder: Path) -> None:
    opened().check()
    for rows, difference in (
        (ROWS[:15], "5 examples are gone, of 20 before and 15 now"),
        (ROWS[5:15], "5 examples are gone, of 15 before and 10 now"),
        (ROWS[:10], "5 examples are new and 5 examples are gone, of 10 before and 10 now"),
    ):
        write(folder / "wards.csv", rows)
        assert str(opened().update()) == difference


def test_contents_are_kept_apart_by_name(opened: Open, folder: Path) -> None:
    opened().check()
    others = write(folder / "beds.csv", ["100,1,0", "101,1,0"])
    assert opened("beds", others).check() == []
    with pytest.raises(DataError, match="there is no file or folder"):
        opened("beds", folder / "missing.csv").check()
    with pytest.raises(DataError, match="no file is known"):
        opened("beds").check()


def test_examples_under_two_names_are_counted(opened: Open, folder: Path) -> None:
    opened().check()
    others = write(folder / "beds.csv", [*ROWS[:7], "100,1,0"])
    expected = "data set 'beds': 7 examples are also in 'wards'; what both spend adds up for them"
    opened("beds", others).update(adds_up=True)
    for _ in range(2):
        assert opened("beds", others).check() == [expected]
    assert opened().check() == [expected.replace("beds", "?").replace("wards", "beds").replace("?", "wards")]
    # What is gone was released all the same.
    write(folder / "beds.csv", ["100,1,0"])
    opened("beds", others).update()
    assert opened("beds", others).check() == [expected]


# Files


KEY = bytes(32)


def contents(path: Path) -> list[bytes]:
    return list(content_of(examples_at(path), KEY).hashes)


def test_numbers_count_by_value_whatever_the_file_looks_like(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["1, 2.50,x", "0.5,-0,y"])
    (tmp_path / "b.csv").write_text('\ufeffage;,beds,label\r\n1.0,2.5, x\r\n\r\n5e-1,0,"y"\r\n', encoding="utf-8")
    assert contents(tmp_path / "a.csv") == contents(tmp_path / "b.csv")
    features, targets = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0]], np.float32), np.array([1, 0])
    np.savez(tmp_path / "dense.npz", features=features, targets=targets)
    (tmp_path / "same.svm").write_text("+1 2:1.50\n0 1:2 3:0\n")
    (tmp_path / "from_0.svm").write_text("1 1:1.5  # a comment\n0 0:2\n")
    (tmp_path / "same.svm.gz").write_bytes(gzip.compress((tmp_path / "same.svm").read_bytes()))
    found = contents(tmp_path / "dense.npz")
    assert len(set(found)) == 2
    assert found == contents(tmp_path / "same.svm") == contents(tmp_path / "same.svm.gz")
    assert found == contents(tmp_path / "from_0.svm")
    assert found == list(content_of(examples_of(sp.csr_array(features), targets), KEY).hashes)


def test_sparse_examples_are_read_by_value_and_left_as_they_are() -> None:
    """Zeros that are written out, columns out of order and twice, all mean the same numbers."""
    dense = np.array([[0.0, 3.0, 0.0, 5.0]], np.float32)
    untidy = sp.csr_array((np.array([5, 1, 0, 2], np.float32), np.array([3, 1, 0, 1]), np.array([0, 4])), (1, 4))
    labels = np.array([1])
    found = [content_of(examples_of(features, labels), KEY) for features in (dense, untidy)]
    assert found[0] == found[1]
    assert untidy.indices.tolist() == [3, 1, 0, 1]


def test_examples_to_test_on_are_examples_of_the_owner(tmp_path: Path) -> None:
    arrays = {"train_features": np.eye(3, dtype=np.float32), "train_targets": np.arange(3)}
    tested = {"test_features": np.ones((2, 3), np.float32), "test_targets": np.arange(2)}
    np.savez(tmp_path / "a.npz", **arrays, **tested)  # type: ignore[arg-type]
    assert len(set(contents(tmp_path / "a.npz"))) == 5


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        ([[1.0, 0.0]], [1]),  # another column
        ([[0.0, 1.0]], [0]),  # another label
        ([[0.0, 1.0000001]], [1]),  # another value
        ([[1.0, 1.0]], [1]),
    ],
)
def test_examples_that_differ_have_other_hashes(features: list[list[float]], targets: list[int]) -> None:
    def hashes(rows: Any, labels: Any) -> Any:
        return content_of(examples_of(np.array(rows, np.float32), np.array(labels)), KEY).hashes

    assert hashes(features, targets) != hashes([[0.0, 1.0]], [1])


def test_pictures_are_examples_with_their_folder_for_a_class(tmp_path: Path) -> None:
    """None of them is decoded, so nothing but their bytes matters."""
    names = ["train/cat/1.png", "train/cat/2.PNG", "train/dog/1.png", "test/dog/3.jpg"]
    for number, name in enumerate(names):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(bytes([number]))
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for name in names:
            archive.write(tmp_path / "pets" / name, name)
        archive.writestr("README.txt", "no picture")
    found = contents(tmp_path / "pets.zip")
    assert len(set(found)) == 4
    assert found == contents(tmp_path / "pets")
    (tmp_path / "pets/train/dog/2.PNG").write_bytes((tmp_path / "pets/train/cat/2.PNG").read_bytes())
    assert len(set(contents(tmp_path / "pets"))) == 5  # the same picture of another class is another example


def test_folders_and_names_that_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    write(tmp_path / "all/wards.csv", ROWS)
    (tmp_path / "all/notes.dat").write_text("one\r\n\n two\n")
    found = contents(tmp_path / "all")
    assert found == contents(tmp_path / "all/notes.dat") + contents(tmp_path / "all/wards.csv")
    assert len(found) == 2 + len(ROWS)
    (tmp_path / "mnist").mkdir()
    header = bytes([0, 0, 8, 3]) + b"".join(number.to_bytes(4) for number in (2, 1, 2))
    (tmp_path / "mnist/train-images-idx3-ubyte").write_bytes(header + bytes([1, 2, 3, 4]))
    (tmp_path / "mnist/train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    expected = examples_of(np.array([[1, 2], [3, 4]], np.float32), np.array([7, 9]))
    assert contents(tmp_path / "mnist") == list(content_of(expected, KEY).hashes)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "age,label\n"), ("a.txt", "\n"), ("a.zip", "x"), ("a.npz", "x")]
)
def test_what_holds_no_examples_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=rf"{name}"):
        contents(tmp_path / name)


def test_hashes_say_nothing_without_their_key(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS)
    first, second = (content_of(examples_at(path), key) for key in (KEY, bytes([1]) * 32))
    assert set(first.hashes) & set(second.hashes) == set()
    assert first.fingerprint != second.fingerprint


# The key and the ledger


def test_the_key_is_for_its_owners_eyes_and_random(opened: Open, folder: Path, tmp_path_factory: Any) -> None:
    old = os.umask(0)
    try:
        opened().check()
    finally:
        os.umask(old)
    key = folder / "policy.ledger.key"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, folder / "policy.ledger")] == [0o600, 0o600]
    other = tmp_path_factory.mktemp("other") / "a.ledger"
    file, second = open_with_key(other)
    file.close()
    assert bytes.fromhex(key.read_text()) != second
    key.chmod(0o640)
    with pytest.raises(CallerError, match=r"others may use this key of the ledger \(mode 0640, expected 0600\)"):
        opened()


def test_a_ledger_without_its_key_is_refused_and_keeps_what_was_spent(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    data.ledger("run", "a", {KIND: FIT})
    (folder / "policy.ledger.key").unlink()
    for _ in range(2):
        with pytest.raises(DataError, match=r"policy.ledger is there, but its key .*ledger.key is not: what was"):
            opened()
    assert not (folder / "policy.ledger.key").exists()
    renewed = opened(new_key=True)
    with pytest.raises(DataError, match="the hashes of the 20 before were forgotten with their key"):
        renewed.check()
    renewed.update()
    after = opened()
    assert after.check() == []
    with pytest.raises(BudgetSpent):
        after.ledger("two", "a", {KIND: MORE})


@pytest.mark.parametrize("spent", [True, False])
def test_a_lost_key_is_missed_as_soon_as_anything_is_in_the_ledger(opened: Open, folder: Path, spent: bool) -> None:
    data = opened()
    if spent:
        data.file.open("a", "wards", "run", data.budget, {KIND: 1})
    else:
        data.check()
    key_path(folder / "policy.ledger").unlink()
    with pytest.raises(DataError, match="but its key"):
        opened()


def test_a_key_without_its_ledger_is_refused(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    data.close()
    (folder / "policy.ledger").unlink()
    with pytest.raises(DataError, match=r"policy.ledger.key is there, but its ledger .*policy.ledger is not, so what"):
        opened()
    with pytest.raises(DataError, match="what the data have spent is not known"):
        opened(new_key=True)
    with pytest.raises(DataError, match="what the data have spent is not known"):
        spendings(read_policy(folder / "policy.yaml"))
    assert not (folder / "policy.ledger").exists()


def test_a_ledger_that_is_gone_with_its_key_is_missed_by_what_knew_of_it(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    data.close()
    (folder / "policy.ledger").unlink()
    key_path(folder / "policy.ledger").unlink()
    with pytest.raises(DataError, match=r"policy.ledger.newest is there, but its ledger .*policy.ledger is not"):
        opened()
    with pytest.raises(DataError, match="what the data have spent is not known"):
        spendings(read_policy(folder / "policy.yaml"))
    assert not key_path(folder / "policy.ledger").exists()


@pytest.mark.parametrize("emptied", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_a_ledger_that_was_emptied_or_replaced_is_refused(
    opened: Open, folder: Path, tmp_path_factory: Any, emptied: bool, told: bool
) -> None:
    data = opened()
    data.check()
    data.ledger("run", "a", {KIND: FIT})
    data.close()
    for left in folder.glob("policy.ledger-*"):
        left.unlink()
    if not told:
        (folder / "policy.ledger.newest").unlink()
    other = tmp_path_factory.mktemp("other") / "a.ledger"
    open_with_key(other)[0].close()
    (folder / "policy.ledger").write_bytes(b"" if emptied else other.read_bytes())
    for options in ({}, {"new_key": True}):
        said = "is an older copy: it was written" if told else "is not the key of .*policy.ledger, which was"
        with pytest.raises(CallerError, match=said):
            opened(**options)


def test_a_key_that_is_none_is_refused(opened: Open, folder: Path) -> None:
    opened().check()
    digits = "expected 64 hexadecimal digits"
    for content, said in (("", "found an empty file"), ("ab", digits), ("x" * 64, digits), ("ab" * 33, digits)):
        (folder / "policy.ledger.key").write_text(content)
        with pytest.raises(CallerError, match=said):
            opened()


def test_a_ledger_of_before_there_was_a_key_gets_one(opened: Open, folder: Path) -> None:
    with closing(LedgerFile(folder / "policy.ledger")) as file:
        file.open("a", "wards", "old", opened_budget(folder), {KIND: FIT})
    data = opened()
    data.check()
    with pytest.raises(BudgetSpent):
        data.ledger("two", "a", {KIND: MORE})


def opened_budget(folder: Path) -> Any:
    from gossamer.deployment.owner.owned_data import budget_of

    return budget_of(read_policy(folder / "policy.yaml").data["wards"], None, "wards")


def test_who_is_killed_while_the_two_are_made_starts_again(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the mark, between mark and key, and with half a key; after the key nothing is missing."""

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    def half(path: Path, key: bytes) -> None:
        path.with_name(f".{path.name}.new").write_text(key.hex()[:10])
        raise Killed

    for what, instead in (("_mark", killed), ("_write", killed), ("_write", half)):
        with monkeypatch.context() as patch:
            patch.setattr(spending, what, instead)
            with pytest.raises(Killed):
                opened()
        assert not key_path(folder / "policy.ledger").exists()
    opened().check()
    assert opened().check() == []


@pytest.mark.parametrize(("when", "done"), [(0, True), (1, True), (1, False)])
def test_another_process_that_makes_the_key_at_the_same_time_wins(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch, when: int, done: bool
) -> None:
    """It comes in before our mark, or between our mark and our key; and is done before us, or is killed with nothing
    but its mark."""
    transaction, calls = LedgerFile.transaction, itertools.count()

    def interrupted(file: LedgerFile) -> Any:
        if next(calls) == when:
            monkeypatch.setattr(LedgerFile, "transaction", transaction)
            if done:
                opened().check()  # so that what it accepted has to be known by our key
            else:
                with closing(LedgerFile(folder / "policy.ledger")) as other, other.transaction():
                    other.contents.renew(b"the mark of another process")
                    other.seal_with(b"the key of another process")
        return transaction(file)

    monkeypatch.setattr(LedgerFile, "transaction", interrupted)
    opened().check()
    assert next(calls) == when + 1
    assert opened().check() == []


def test_a_full_disk_stops_before_anything_is_spent(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gossamer.deployment.owner.owned_data.os.fsync", full)
        with pytest.raises(StorageError, match=r"the key of the ledger cannot be written: No space left on device"):
            opened()
    data = opened()
    data.check()
    path = write(folder / "beds.csv", [f"{number},1,0" for number in range(3000)])
    beds = opened("beds", path)
    beds.file._connection.execute("PRAGMA max_page_count=1")  # SQLite takes the number of pages that there are
    with pytest.raises(StorageError, match="disk is full; nothing was written"):
        beds.check()
    with pytest.raises(AssertionError):
        beds.ledger("run", "a", {KIND: 1})
    assert opened().file.contents.history("beds") == []
    assert opened().file.spent("beds") == 0.0


def test_a_folder_that_is_not_there_is_named(opened: Open, folder: Path) -> None:
    (folder / "policy.yaml").write_text(f"{POLICY}ledger: elsewhere/all.ledger\n")
    with pytest.raises(DataError, match=r"there is no folder .*elsewhere for the ledger"):
        opened()


def test_a_ledger_of_a_newer_version_is_refused(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    data.close()
    with sqlite3.connect(folder / "policy.ledger") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StorageError, match="newer version of gossamer"):
        opened()


# What is shown


def test_what_is_shown(opened: Open, folder: Path) -> None:
    policy = read_policy(folder / "policy.yaml")
    assert [(one.name, one.divergence, one.epsilon, one.runs) for one in spendings(policy)] == [
        ("wards", 0.0, 0.0, []),
        ("beds", 0.0, 0.0, []),
    ]
    assert not (folder / "policy.ledger").exists()
    data = opened()
    data.check()
    data.ledger("run", "a", {KIND: 10}).charge(KIND)
    write(folder / "wards.csv", ROWS[:12])
    opened().update()
    (folder / "policy.yaml").write_text(
        "data:\n  wards: {epsilon: 4, delta: 1.0e-6}\n  new: {epsilon: 1, delta: 0.01}\n"
    )
    wards, new = spendings(read_policy(folder / "policy.yaml"))
    assert wards.divergence == pytest.approx(10 * ONE, rel=1e-12)
    assert wards.total is not None
    mu, failures = math.sqrt(wards.total.squared), wards.total.failures
    assert wards.epsilon == gaussian_epsilon(mu, without_late(1e-6) - failures)
    assert wards.epsilon < renyi_epsilon(ORDER, wards.divergence, 1e-6)
    assert wards.epsilon >= epsilon({KIND: 10}, 1e-6, ADD).epsilon
    assert wards.left == pytest.approx(renyi_level(ORDER, 4.0, without_late(1e-6) / 2) - 10 * ONE, rel=1e-12)
    assert [(run.run, run.releases) for run in wards.runs] == [("run/a", 1)]
    assert [(one.examples, one.added, one.gone) for one in wards.contents] == [(20, 20, 0), (12, 0, 8)]
    assert (new.divergence, new.contents) == (0.0, [])
    (folder / "policy.yaml").write_text("data:\n  new: {epsilon: 1, delta: 0.01}\n")
    _, forgotten = spendings(read_policy(folder / "policy.yaml"))
    assert (forgotten.name, forgotten.budget, forgotten.epsilon, forgotten.left) == ("wards", None, None, None)
    assert forgotten.divergence == wards.divergence


def test_the_shares_of_runs_add_up_to_what_is_spent(opened: Open, folder: Path) -> None:
    data = opened()
    data.check()
    for number, releases in enumerate((10, 30)):
        data.ledger(f"run {number}", "a", {KIND: releases})
    shown, *_ = spendings(read_policy(folder / "policy.yaml"))
    bar = shown.bar("run 1/a")
    assert shown.shares is not None
    shares = [shown.share_of(run) for run in shown.runs]
    assert bar["runs"] == [{"run": f"run {n}/a", "share": share, "series": None} for n, share in enumerate(shares)]
    assert bar["share"] == min(shown.shares) == pytest.approx(sum(share or 0.0 for share in shares))
    assert shares[0] == pytest.approx((shares[1] or 0.0) / 3)
    assert (bar["data_set"], bar["this_run"]) == ("wards", "run 1/a")


@pytest.mark.some(1)
@pytest.mark.parametrize("delta", ["1.0e-12", "1.0e-5"])
def test_what_is_left_is_what_is_admitted(opened: Open, folder: Path, delta: str) -> None:
    """Of a delta of 1e-12 late answers may take nearly all: what is shown as left is for releases."""
    (folder / "policy.yaml").write_text(f"data:\n  wards: {{epsilon: 4, delta: {delta}, path: wards.csv}}\n")
    exact = ReleaseKind(Gaussian(1.0, 20.0), Poisson(1.0), 10)
    data = opened()
    data.check()
    for number in itertools.count():
        (shown,) = spendings(read_policy(folder / "policy.yaml"))
        assert shown.left is not None
        by_renyi = renyi_divergence(exact, data.budget.order, ADD) <= shown.left
        by_gaussian = shown.describe()["left_mu"] >= 1 / 20  # type: ignore[operator]
        assert shown.shares is not None
        assert min(shown.shares) <= 1
        assert shown.epsilon is not None
        assert shown.epsilon <= 4
        if not (by_renyi or by_gaussian):
            break
        data.ledger(f"run {number}", "a", {exact: 1})
    assert number > 50
    with pytest.raises(BudgetSpent):
        data.ledger("last", "a", {exact: 1})


# Rows that came late


def test_rows_after_all_that_was_accepted_are_no_change_where_they_are_not_used(opened: Open, folder: Path) -> None:
    opened().check(used=len(ROWS))
    write(folder / "wards.csv", [*ROWS, "9,9,1"])
    opened().check(used=len(ROWS))
    opened().check(used=1)
    assert opened().file.contents.history("wards")[-1].examples == len(ROWS)
    with pytest.raises(DataError, match="1 example is new"):
        opened().check()
    with pytest.raises(DataError, match="1 example is new"):
        opened().check(used=len(ROWS) + 1)


@pytest.mark.parametrize("change", [lambda rows: ["9,9,1", *rows], lambda rows: ["9,9,1", *rows[1:], "8,8,0"]])
def test_rows_in_the_place_of_those_that_are_used_are_a_change(opened: Open, folder: Path, change: Any) -> None:
    opened().check(used=len(ROWS))
    write(folder / "wards.csv", change(list(ROWS)))
    with pytest.raises(DataError, match="changed: "):
        opened().check(used=len(ROWS))


def test_late_rows_that_are_accepted_do_not_end_a_run_without_them(opened: Open, folder: Path) -> None:
    opened().check(used=len(ROWS))
    write(folder / "wards.csv", [*ROWS, "9,9,1"])
    opened().update()
    opened().check(used=len(ROWS))


# Rehearsals


def test_a_rehearsal_refuses_and_leaves_nothing(opened: Open) -> None:
    data = opened()
    data.check()
    with pytest.raises(BudgetSpent), data.file.rehearsal():
        data.ledger("one", "a", {KIND: MORE + FIT})
    with data.file.rehearsal():
        data.ledger("one", "a", {KIND: FIT})
    assert opened().file.runs("wards") == []
    assert opened().file.spent("wards") == 0.0
    data.ledger("two", "a", {KIND: FIT})
    assert len(opened().file.runs("wards")) == 1


def test_examples_of_a_file_without_a_header_are_all_there(tmp_path: Path) -> None:
    """A first row with a number in it is an example, unless it counts columns; a row of texts alone is a header."""
    for name, first in (("none", "4,5,x"), ("names", "age,beds,label"), ("positions", "0,1,2")):
        (tmp_path / f"{name}.csv").write_text(f"{first}\n1,2,x\n3,4,y\n")
    found = {name: contents(tmp_path / f"{name}.csv") for name in ("none", "names", "positions")}
    assert found["names"] == found["positions"] == found["none"][1:]
    assert len(found["none"]) == 3


def test_letters_of_any_encoding_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Größe;Müll\n1,5;nö\n2,5;ja\n", encoding="latin-1")
    (tmp_path / "b.csv").write_text("Größe;Müll\n1,5;nö\n2,6;ja\n", encoding="latin-1")
    (tmp_path / "utf-8.csv").write_text("Größe;Müll\n1,5;nö\n2,5;ja\n", encoding="utf-8")
    first, second = contents(tmp_path / "a.csv"), contents(tmp_path / "b.csv")
    assert len(first) == len(second) == 2
    assert first == contents(tmp_path / "utf-8.csv")  # else the same data would have a budget twice
    assert (first[0] == second[0], first[1] == second[1]) == (True, False)
