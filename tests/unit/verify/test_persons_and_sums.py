"""The second implementation on persons with several examples, and on sums that several parties add noise to.

What is proved is compared with the library's figures, whose proofs and references are elsewhere, and with closed forms;
and whatever says more than its receipts bear does not follow.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.unit.verify.chains import Written, chained
from tests.unit.verify.test_forged_guarantees import FIRST, GAUSSIAN, NODE, verdict_of

from gossamer.experiment.preparation.held_out import _OF_SUM
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import HELD_OUT, WHOEVER
from gossamer.privacy.mechanisms import BallGaussian, FixedSize, Gaussian, NeighboringRelation, Poisson, ReleaseKind
from gossamer.verify import gossamer_verify as second

SAMPLED = GAUSSIAN | {"probability": 0.1}
HELD = {"unit": HELD_OUT, "observer": WHOEVER}
PARTIES = ("a", "b", "c", "d", "e")


def of_sum(colluders: int, parties: int) -> str:
    return _OF_SUM.format(colluders=colluders, parties=parties)


def persons(rows: int) -> dict[str, Any]:
    return {"unit": f"person with at most {rows} examples, all at one node", "rows_per_person": rows}


def held_out(rows: int, **more: Any) -> dict[str, Any]:
    return {
        "unit": f"person with at most {rows} held-out examples",
        "rows_per_person": rows,
        "observer": WHOEVER,
        **more,
    }


def released(law: dict[str, Any], most: int = 1, clip: float = 1.0, words: dict[str, str] = HELD) -> Written:
    """A chain of five parties, each of whom releases as often as it planned to."""
    plan = {"party": [*PARTIES], **words, "most": {"0": most}}
    of = [{"of": name, "number": n + 1, "query": "Q", "law": 0, "clip": clip} for name in PARTIES for n in range(most)]
    return chained([FIRST, {"law": law}, plan, *of])


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("mechanism", [Gaussian, BallGaussian])
@pytest.mark.parametrize(("q", "multiplier", "rows", "count"), [(0.05, 2.0, 10, 300), (0.9, 5.0, 3, 30)])
def test_persons_have_the_epsilon_of_the_library(
    relation: NeighboringRelation, mechanism: Any, q: float, multiplier: float, rows: int, count: int
) -> None:
    """A tenth of a percent is what guarantees are given; one row more or less is seen."""
    kind = ReleaseKind(mechanism(1.0, multiplier), Poisson(q), 5)

    def proved(rows: int) -> float:
        pair = second.pair_of(kind.describe(), relation.value, rows)
        return float(second.proved({pair: count}, 1e-5)["epsilon"])

    library = epsilon({kind: count}, 1e-5, relation, rows).epsilon
    assert proved(rows) == pytest.approx(library, rel=1e-3)
    if q < 0.5:  # of samples that nearly always have a row, what is clipped as a whole tells no more of several
        assert abs(proved(rows - 1) - library) > 1e-2 * library


def test_all_of_a_person_move_a_sum_as_many_times(tmp_path: Path) -> None:
    """m rows of a person move a histogram by m, of which the noise is N(0, 2^2): the closed form of one Gaussian."""
    least = gaussian_epsilon(3 / 2, 1e-5)
    chain = released(GAUSSIAN)
    assert verdict_of(tmp_path / "a", chain, least, **held_out(3)) == "follows"
    assert verdict_of(tmp_path / "a", chain, least * 0.99, **held_out(3)).startswith("does not follow: epsilon")
    assert verdict_of(tmp_path / "a", chain, least, **held_out(4)).startswith("does not follow: epsilon")


def test_persons_follow_of_their_samples(tmp_path: Path) -> None:
    chain = released(SAMPLED, most=4, words=NODE)
    kind = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 5)
    least = epsilon({kind: 4}, 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE, 3).epsilon
    assert verdict_of(tmp_path / "a", chain, least, **persons(3)) == "follows"
    assert verdict_of(tmp_path / "a", chain, least * 0.99, **persons(3)).startswith("does not follow: epsilon")


@pytest.mark.parametrize(
    "words",
    [
        {"unit": "person with at most 3 examples, all at one node", "rows_per_person": 2},
        {"unit": "person with at most 3 examples, all at one node", "rows_per_person": 1},
        {"unit": "person with at most 3 examples, all at one node", "rows_per_person": None},
        {"unit": "person with at most 3 examples, wherever they are", "rows_per_person": 3},
        {"unit": "person with at most 0 examples, all at one node", "rows_per_person": 0},
        {"unit": "person with at most  examples, all at one node", "rows_per_person": 0},
        {"unit": "person with at most  examples, all at one node", "rows_per_person": None},
        {"unit": "person with at most None examples, all at one node", "rows_per_person": None},
        {"unit": "person with at most True example, all at one node", "rows_per_person": True},
        {"unit": "person with at most 3 held-out examples", "rows_per_person": 3},
        persons(101),
        held_out(3),
    ],
)
def test_other_persons_are_not_verified(words: dict[str, Any], tmp_path: Path) -> None:
    """Words that do not fit their number, persons at several nodes, or protected by noise of other examples."""
    chain = released(SAMPLED, words=NODE)
    assert verdict_of(tmp_path / "a", chain, **persons(3)) == "follows"
    assert verdict_of(tmp_path / "a", chain, **words).startswith("not verified")


def test_persons_in_batches_of_fixed_size_are_not_verified(tmp_path: Path) -> None:
    law = ReleaseKind(Gaussian(1.0, 2.0), FixedSize(50, 5), 5).describe()
    chain = released(law, words=NODE)
    assert verdict_of(tmp_path / "a", chain, neighboring_relation="replace_one") == "follows"
    words = {**persons(2), "neighboring_relation": "replace_one"}
    assert verdict_of(tmp_path / "a", chain, **words).startswith("not verified: nothing is proved here")


@pytest.mark.parametrize(("rows", "words"), [(1, {"unit": HELD_OUT}), (2, held_out(2))])
def test_noise_of_several_parties_adds_up_in_a_sum(rows: int, words: dict[str, Any], tmp_path: Path) -> None:
    """Four parties whose multiplier is 2 have that of 4 together, which is said with the condition it rests on."""
    chain, words = released(GAUSSIAN), {**words, "observer": of_sum(1, 5)}
    least = gaussian_epsilon(rows / 4, 1e-5)
    assert verdict_of(tmp_path / "a", chain, least, **words) == "follows, if 4 of 5 parties add as much noise"
    assert verdict_of(tmp_path / "a", chain, least * 0.99, **words).startswith("does not follow: epsilon is ")
    less = GAUSSIAN | {"noise_multiplier": 1.98}
    assert verdict_of(tmp_path / "a", released(less), least, **words).startswith("does not follow: epsilon is ")
    fewer = {**words, "observer": of_sum(2, 5)}
    assert verdict_of(tmp_path / "a", chain, least, **fewer).startswith("does not follow: epsilon is ")
    twice = released(GAUSSIAN, most=2)
    assert verdict_of(tmp_path / "a", twice, least, **words).startswith("does not follow: epsilon is ")


def test_the_party_with_the_least_noise_decides_on_a_sum(tmp_path: Path) -> None:
    plans = [{"party": name, **HELD, "most": {str(int(name == "e")): 1}} for name in PARTIES]
    laws = [{"law": GAUSSIAN}, {"law": GAUSSIAN | {"noise_multiplier": 1.0}}]
    words = {"unit": HELD_OUT, "observer": of_sum(1, 5)}
    alone = chained([FIRST, *laws, *plans])
    least = gaussian_epsilon(1 / 2, 1e-5)
    assert verdict_of(tmp_path / "a", alone, least, **words) == "follows, if 4 of 5 parties add as much noise"
    assert verdict_of(tmp_path / "a", alone, least * 0.99, **words).startswith("does not follow: epsilon is ")


@pytest.mark.parametrize("colluders", [(1, 50), (5, 5), (9, 5), (1, 4), (3, 2), (0, 0)])
def test_a_sum_is_over_the_parties_whose_receipts_there_are(colluders: tuple[int, int], tmp_path: Path) -> None:
    """Fifty parties would add more noise; and nobody's noise counts where all work together."""
    words = {"unit": HELD_OUT, "observer": of_sum(*colluders)}
    assert verdict_of(tmp_path / "a", released(GAUSSIAN), **words).startswith("not verified")


@pytest.mark.parametrize("words", [NODE, {**HELD, "observer": of_sum(1, 5)}, {**HELD, "unit": NODE["unit"]}])
def test_noise_of_something_else_is_not_taken_for_that_of_a_sum(words: dict[str, str], tmp_path: Path) -> None:
    said = {"unit": HELD_OUT, "observer": of_sum(1, 5)}
    assert verdict_of(tmp_path / "a", released(GAUSSIAN, words=words), **said).startswith("not verified")
    for unit in (NODE["unit"], "person with at most 1 held-out example, all at one node"):
        assert verdict_of(tmp_path / "a", released(GAUSSIAN), **{**said, "unit": unit}).startswith("not verified")


def test_histograms_are_all_of_them_and_clipped_to_one_length(tmp_path: Path) -> None:
    """In a sum the noise of a party with a smaller clip would be less than its multiplier says."""
    said = {"unit": HELD_OUT, "observer": of_sum(1, 5)}
    with pytest.raises(second.Unreadable, match="no clip"):
        verdict_of(tmp_path / "a", released(GAUSSIAN, clip=0.5), **said)
    for words in (said, {"unit": HELD_OUT, "observer": WHOEVER}, held_out(2)):
        assert verdict_of(tmp_path / "a", released(SAMPLED), **words).startswith("not verified")


def test_a_sum_of_two_is_as_private_as_the_root_of_its_variances() -> None:
    """By the law of one release with the noise of h parties: m / sqrt(h), for either relation."""
    for relation, moved in (("add_or_remove_one", 1), ("replace_one", 2)):
        _, q, m, rows = second.pair_of(GAUSSIAN, relation, 3, 2)
        assert (q, m * rows) == (1.0, pytest.approx(3 * moved / 2 / math.sqrt(2)))
