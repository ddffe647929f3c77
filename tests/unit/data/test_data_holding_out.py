"""The fixed choice of test examples."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.examples import held_out
from gossamer.errors import DataError, RunWarning


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.floats(0.01, 0.99))
@settings(deadline=None, derandomize=True, max_examples=examples(200))
def test_each_class_gives_its_share_rounded_down(classes: list[int], fraction: float) -> None:
    strata = np.array(classes)
    tested = held_out(strata, fraction)
    for number in set(classes):
        members = strata == number
        share = fraction * members.sum()
        assert share - 1 - 1e-6 < tested[members].sum() <= share + 1e-6
        assert (~tested[members]).any()


@pytest.mark.parametrize(("fraction", "size", "count"), [(0.3, 10, 3), (0.29, 100, 29), (0.2, 5, 1), (0.2, 4, 0)])
def test_shares_that_floating_point_stores_as_less(fraction: float, size: int, count: int) -> None:
    assert held_out(np.zeros(size), fraction).sum() == count


def test_the_split_does_not_follow_the_order_of_a_file() -> None:
    """Neither every fifth nor the first: of 2,000 in 10,000 each residue mod 5 and each fifth of the file has 400.

    Such a count is hypergeometric with standard deviation sqrt(2000 0.2 0.8 0.8) = 16. The choice is fixed, so
    this either always passes or never; six deviations leave 1e-7 for bad luck.
    """
    chosen = np.flatnonzero(held_out(np.zeros(10_000), 0.2))
    for group in (chosen % 5, chosen // 2000):
        counts = np.bincount(group, minlength=5)
        assert 0 < np.abs(counts - 400).max() < 6 * 16


def test_the_split_only_depends_on_positions_and_classes() -> None:
    strata = np.arange(100) % 3
    global_state = np.random.get_state()
    np.random.seed(1)
    first = held_out(strata, 0.2)
    np.random.seed(2)
    assert np.array_equal(held_out(strata + 7, 0.2), first)
    np.random.set_state(global_state)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=120),
    st.floats(0.01, 0.99),
)
@settings(deadline=None, derandomize=True, max_examples=examples(200))
def test_persons_are_held_out_whole_and_as_many_as_fit(rows: list[tuple[int, int]], fraction: float) -> None:
    strata, persons = (np.array(column) for column in zip(*rows, strict=True))
    tested = held_out(strata, fraction, persons)
    assert not set(persons[tested]) & set(persons[~tested])
    first = {person: strata[number] for number, person in reversed(list(enumerate(persons)))}
    counts = Counter(persons.tolist())
    for stratum in set(first.values()):
        members = [person for person in counts if first[person] == stratum]
        share = fraction * sum(counts[person] for person in members)
        held = {person for person in members if tested[persons == person].all()}
        room = share - sum(counts[person] for person in held)
        assert room > -1e-6
        assert all(counts[person] > np.floor(room + 1e-6) for person in members if person not in held)


def test_persons_with_one_example_each_change_nothing() -> None:
    strata = np.random.default_rng(0).integers(0, 3, size=200)
    persons = np.random.default_rng(1).permutation(200).astype(np.str_)
    assert np.array_equal(held_out(strata, 0.2, persons), held_out(strata, 0.2))


def visits(path: Path, persons: range, each: int = 2) -> Path:
    lines = [f"{number % 7},p{person},{number % 2}" for person in persons for number in range(each)]
    path.write_text("\n".join(["stay,who,died", *lines]) + "\n")
    return path


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_nobody_is_trained_on_and_tested_on(tmp_path: Path, task: str) -> None:
    path = visits(tmp_path / "visits.csv", range(40))
    data = load_dataset(DatasetSettings(name="v", path=path, target="died", person="who", task=task))
    assert data.persons is not None
    assert set(Counter(data.persons.tolist()).values()) == {2}  # whoever is there, is there whole
    assert (len(data.train), len(data.test)) == (64, 16)


def test_a_person_with_too_many_examples_stays_in_training(tmp_path: Path) -> None:
    path = visits(tmp_path / "visits.csv", range(1), each=30)
    with pytest.raises(DataError, match=r"too few to hold out 0\.2 of each class, with all examples of a person, for"):
        load_dataset(DatasetSettings(name="v", path=path, target="died", person="who"))


def test_a_split_of_the_readers_own_that_shares_persons_warns(tmp_path: Path) -> None:
    train, test = visits(tmp_path / "a.csv", range(9)), visits(tmp_path / "b.csv", range(7, 12))
    settings_ = DatasetSettings(name="v", path=train, test_path=test, target="died", person="who")
    with pytest.warns(RunWarning, match="v: 2 persons with training and test examples"):
        load_dataset(settings_)
    visits(test, range(9, 12))
    load_dataset(settings_)  # without a word


def by_owner(tmp_path: Path, rows: list[str], **more: object) -> DatasetSettings:
    (tmp_path / "t.csv").write_text("\n".join(["age,ward,who,ill", *rows]) + "\n")
    columns = {"columns": {"age": [0, 100]}, "target": "ill", "labels": ["no", "yes"], "owner": "ward"}
    return DatasetSettings(name="t", path=tmp_path / "t.csv", test_by="owner", **{**columns, **more})  # type: ignore[arg-type]


def test_a_choice_of_test_examples_beside_a_file_of_them_is_refused(tmp_path: Path) -> None:
    rows = [f"{age},a,p{age},{'yes' if age > 5 else 'no'}" for age in range(10)]
    settings_ = by_owner(tmp_path, rows, test_path=tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"dataset\.test_by says how .* there are such already \(.*t\.csv\); leave it"):
        load_dataset(settings_)


@pytest.mark.parametrize("persons", [False, True])
def test_each_owner_has_examples_to_test_on_and_to_train_on(tmp_path: Path, persons: bool) -> None:
    """Of each its share rounded down, but one at least: 0.2 of 2, 4, 10 and 100 rows."""
    sizes = {"a": 2, "b": 4, "c": 10, "d": 100}
    rows = [
        f"{n % 90},{ward},{ward}{n // 2},{'yes' if n == 0 else 'no'}"
        for ward, many in sizes.items()
        for n in range(many)
    ]
    found = load_dataset(by_owner(tmp_path, rows))
    assert Counter(found.test_owners.tolist()) == {"a": 1, "b": 1, "c": 2, "d": 20}  # type: ignore[union-attr]
    if persons:  # of two rows each, of whom one is held out where two rows are more than fit
        rows = [row for row in rows if ",a," not in row]
        found = load_dataset(by_owner(tmp_path, rows, person="who"))
        assert Counter(found.test_owners.tolist()) == {"b": 2, "c": 2, "d": 20}  # type: ignore[union-attr]
        assert not {*found.test_persons.tolist()} & {*found.persons.tolist()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, "expects two rows or more of each owner"), ({"owner": None}, "needs to know whose rows are")],
)
def test_owners_of_too_few_rows_are_refused(tmp_path: Path, more: dict[str, None], said: str) -> None:
    rows = ["30,a,x,no", "31,b,y,yes", "32,b,z,no", "33,b,w,yes"]
    with pytest.raises(DataError, match=said):
        load_dataset(by_owner(tmp_path, rows, **more))
