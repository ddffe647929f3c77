"""Data of one owner at several parties of a run whose noise is that of a sum."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import DataError
from gossamer.privacy.streams.graph_bounds import AgentNoise

RUN, OTHER = "a" * 32, "b" * 32
NOISE = AgentNoise(1000, 10.0, 4)
RULE = "{epsilon: 4, delta: 1.0e-5, relation: replace_one}"


def opened(policy: Path, name: str, first: int) -> OwnedData:
    """A data set of ten examples, each of which is told by its number."""
    path = policy.parent / f"{name}.csv"
    path.write_text("".join(f"{number},{number % 2}\n" for number in range(first, first + 10)))
    owned = OwnedData.open(read_policy(policy), name, path)
    owned.check()
    return owned


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    found = tmp_path / "policy.yaml"
    found.write_text(f"data: {{wards: {RULE}, most: {RULE}, others: {RULE}}}\n")
    return found


def enters(policy: Path, name: str, first: int, node: str, run: str = RUN) -> float:
    """The plan of a node is entered; the divergence of the data set."""
    with closing(opened(policy, name, first)) as owned:
        with owned.once_in(run, node):
            owned.ledger(run, node, {NOISE: 1}, 0.01, terms=b"")
        return owned.file.spent(name)


def test_no_other_node_of_a_run_has_them(policy: Path) -> None:
    assert enters(policy, "wards", 0, "a") == 0.01
    with pytest.raises(DataError, match="examples of data set 'wards' are in this run already, at a, and"):
        enters(policy, "wards", 0, "b")
    assert enters(policy, "wards", 0, "a") == 0.01  # it goes on
    assert enters(policy, "wards", 0, "b", OTHER) == 0.02


def test_one_example_under_another_name_is_enough(policy: Path) -> None:
    enters(policy, "wards", 0, "a")
    with pytest.raises(DataError, match="examples of data set 'most' are in this run already, at a, and"):
        enters(policy, "most", 9, "b")
    assert enters(policy, "others", 100, "b") == 0.01


def test_of_two_that_come_at_once_one_goes_on_at_most(policy: Path) -> None:
    """The other one enters its plan after the first has looked: then it is too much that is charged."""
    with closing(opened(policy, "wards", 0)) as owned:
        entering = owned.once_in(RUN, "a")
        with entering:
            owned.ledger(RUN, "a", {NOISE: 1}, 0.01, terms=b"")
        with closing(opened(policy, "wards", 0)) as other:
            entering = owned.once_in(OTHER, "a")
            entering.__enter__()
            other.ledger(OTHER, "b", {NOISE: 1}, 0.01, terms=b"")
            with pytest.raises(DataError, match="at b, and"):
                entering.__exit__(None, None, None)


def test_a_node_has_one_data_set_in_a_run(policy: Path) -> None:
    """Masks of a run are those of the node, so that of two data sets behind them the difference is seen."""
    enters(policy, "wards", 0, "a")
    with pytest.raises(DataError, match="examples of data set 'wards' are in this run already, at a, and"):
        enters(policy, "others", 100, "a")
    assert enters(policy, "others", 100, "a", OTHER) == 0.01
