"""The privacy page: its numbers by hand or brute force, its order, and words for all that may be proved."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm
from tests.unit.report.test_records import folder

from gossamer.errors import DataError
from gossamer.privacy.accounting.accountants import profile
from gossamer.privacy.guarantee_card import FILE, GuaranteeCard, ReceiptsHead, read_guarantee_card
from gossamer.privacy.guarantees import (
    Guarantee,
    KnownPersons,
    PrivacyProfile,
    for_persons,
    none,
    planned,
    reproducible,
)
from gossamer.privacy.mechanisms import FixedSize, Laplace, NeighboringRelation, ReleaseKind
from gossamer.report.page import write_report
from gossamer.report.privacy import Bar, bars, privacy
from gossamer.report.records import RunRecord, read_records

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
PLAIN = replace(planned(4.999, 1e-4, ADD, "composed"), evidence=partial(PrivacyProfile.gaussian, 1.26))
ROWS = [{"updates": n, "virtual_seconds": 1.0 * n, "epsilon_so_far": n / 2} for n in range(6)]
EVIL = "<script>alert(1)</script>"
AUDIT = {"epsilon_lower_bound": 0.5, "delta": 1e-4, "confidence": 0.95, "guesses": 40, "correct": 31, "refuted": False}
SPENDING = {
    "data_set": "wards",
    "allowed": {"epsilon": 8, "delta": 1e-5},
    "epsilon": 5.125,
    "share": 0.75,
    "runs": [{"run": "a/x", "share": 0.25, "series": None}, {"run": "b/x", "share": 0.5, "series": None}],
    "this_run": "b/x",
}


def record(path: Path, *guarantees: Guarantee, mechanism: Mapping[str, Any] | None = None, **privacy: Any) -> RunRecord:
    """A run with these guarantees, as it is read from its folder."""
    said: dict[str, Any] = {"guarantee": guarantees[0].as_dict(), "mechanism": mechanism or {}, **privacy}
    if len(guarantees) > 1:
        said["guarantees"] = {str(number): one.as_dict() for number, one in enumerate(guarantees)}
    there = folder(path, ROWS, dataset="digits", privacy=said)
    (there / FILE).write_text(GuaranteeCard.of(guarantees, mechanism or {}, "0.9", run=path.name).to_json())
    return read_records([there])[0]


def promises(*records: RunRecord, public: bool = False) -> Sequence[dict[str, Any]]:
    section = privacy(records, public)
    assert section is not None
    found: Sequence[dict[str, Any]] = section.values["promises"]
    return found


def brute_force(single: float, releases: int) -> float:
    """Share of right guesses by the likelier of two neighbours, added up over all answers of randomized response."""
    truth = math.exp(single) / (1 + math.exp(single))
    return sum(
        max(math.prod(answers), math.prod(1 - one for one in answers)) / 2
        for answers in itertools.product((truth, 1 - truth), repeat=releases)
    )


@pytest.mark.parametrize(("single", "releases"), [(0.3, 5), (1.0, 4), (0.05, 9)])
def test_the_icons_are_those_of_brute_force(single: float, releases: int, tmp_path: Path) -> None:
    """From releases through the accountant, the card and its file to the picture."""
    response = ReleaseKind(Laplace(1.0, 2 / single), FixedSize(10, 10), 1)  # counted as randomized response
    found = partial(profile, [({response: releases}, 1)], REPLACE)
    run = record(tmp_path / "r", replace(PLAIN, epsilon=single * releases, delta=0.0, evidence=found))
    blind, best = promises(run)[0]["icons"]
    assert (blind["right"], best["right"]) == (50, math.ceil(100 * brute_force(single, releases)))


def test_the_icons_of_gaussian_noise_are_those_of_the_closed_form(tmp_path: Path) -> None:
    """Phi(mu/2) = 0.7357, and not the 0.994 that its point (4.999, 1e-4) alone allows."""
    (promise,) = promises(record(tmp_path / "r", PLAIN))
    share = 100 * norm.cdf(1.26 / 2)
    assert promise["icons"][1]["right"] == math.ceil(share) == 74
    assert "right at most 73.6 times in 100" in promise["icons"][1]["words"]
    assert promise["facts"]["mu"] == "1.27"  # 1.26004, rounded up


def test_the_curve_is_the_closed_form_and_never_above_it(tmp_path: Path) -> None:
    (promise,) = promises(record(tmp_path / "r", PLAIN))
    rows = [row for row in promise["figure"].rows if row["curve"] == "proved"]
    for row in rows:
        exact = norm.cdf(norm.isf(row["false alarms"]) - 1.26)
        assert exact - 2e-3 <= row["misses"] <= exact + 1e-4  # four digits are drawn
    assert "at least 64.9 misses in 100" in promise["figure"].description  # Phi(Phi^-1(0.95) - 1.26) = 0.6496


def test_runs_that_do_not_say_whom_they_protect_have_no_section(tmp_path: Path) -> None:
    assert privacy(read_records([folder(tmp_path / "r", ROWS)]), False) is None


WORDS = {
    "plain": ([PLAIN], "Each example of a node's shard is protected from all other nodes together"),
    "persons": (
        [for_persons(PLAIN, 3, KnownPersons.TOGETHER)],
        "Each person with at most 3 examples, all at one node, is protected",
    ),
    "none": ([none("There is no noise.", REPLACE)], "Nobody is protected from all other nodes together"),
    "reproducible": ([reproducible(PLAIN)], "Nobody is protected from all other nodes together"),
    "infinite mu": ([replace(PLAIN, evidence=lambda: PrivacyProfile.of_points([(30.0, 0.0)]))], "Each example"),
}


@pytest.mark.parametrize("name", WORDS)
def test_each_kind_of_guarantee_has_its_sentence(name: str, tmp_path: Path) -> None:
    guarantees, said = WORDS[name]
    (promise,) = promises(record(tmp_path / "r", *guarantees))
    assert promise["sentence"].startswith(said)
    assert promise["icons"][1]["right"] == (74 if name in ("plain", "persons") else 100)
    assert ("mu" in promise["facts"]) == (name not in ("none", "reproducible"))
    assert bool(promise["assumptions"]) == (name not in ("none", "reproducible"))


def test_noise_that_can_be_drawn_again_says_what_would_be(tmp_path: Path) -> None:
    (promise,) = promises(record(tmp_path / "r", reproducible(PLAIN)))
    assert "With a noise secret it would be otherwise." in promise["remarks"][0]
    assert "right at most 73.6 times in 100 (mu 1.27)" in promise["remarks"][0]
    assert "with a noise secret" in {row["curve"] for row in promise["figure"].rows}


def test_every_other_observer_has_a_sentence_and_weak_guarantees_a_remark(tmp_path: Path) -> None:
    weak = replace(PLAIN, remarks=("epsilon is above 10",))
    (promise,) = promises(record(tmp_path / "r", weak, none("it sees sums", REPLACE)))
    assert promise["remarks"] == ["Epsilon is above 10"]
    (other,) = promise["others"]
    assert other.startswith("Nobody is protected from")
    assert other.endswith("It sees sums.")


def test_runs_with_one_guarantee_are_explained_once_and_few_guarantees_at_all(tmp_path: Path) -> None:
    same = [record(tmp_path / f"same-seed{seed}", PLAIN) for seed in range(2)]
    others = [record(tmp_path / f"r{n}", replace(PLAIN, epsilon=1.0 + n)) for n in range(4)]
    found = promises(*same, *others)
    assert [promise["runs"] for promise in found] == ["same-seed0, same-seed1", "r0", "r1", "r2"]
    assert len({promise["figure"].name for promise in found}) == 4
    section = privacy([*same, *others], False)
    assert section is not None
    assert section.values["left"] == "r3"


def test_runs_are_of_one_guarantee_whatever_their_receipts(tmp_path: Path) -> None:
    runs = [record(tmp_path / f"seed{seed}", PLAIN) for seed in range(2)]
    for seed, head in enumerate(("ab" * 32, "cd" * 32)):
        path = tmp_path / f"seed{seed}" / FILE
        ended = read_guarantee_card(path.read_text(), path).ended(ReceiptsHead(releases=9, head=head))
        path.write_text(ended.to_json())
    other = record(tmp_path / "other", replace(PLAIN, epsilon=1.0))
    assert [promise["runs"] for promise in promises(*runs, other)] == ["seed0, seed1", "other"]


# Claims and audits


def test_only_claims_whose_conditions_hold_are_drawn(tmp_path: Path) -> None:
    claims = [
        {"theorem": "theorem 2", "epsilon": 2.0, "delta": 1e-4, "valid": True},
        {"theorem": "theorem 3", "epsilon": 1.0, "delta": 0.0, "valid": False},
        {"theorem": "theorem 4", "epsilon": None, "delta": 0.0, "valid": True},
        {"theorem": "theorem 5", "epsilon": 34.2, "delta": 1e-4, "valid": True},
    ]
    (promise,) = promises(record(tmp_path / "r", PLAIN, claims=claims))
    assert {row["curve"] for row in promise["figure"].rows} == {
        "proved",
        "guessing",
        "claimed: theorem 2",
        "claimed: theorem 5",
    }
    assert all(
        row["misses"] < 1e-9
        for row in promise["figure"].rows[1:]
        if row["curve"] == "claimed: theorem 5" and row["false alarms"]
    )
    assert "theorem 2 claims epsilon 2 at delta 0.0001, which is not proved here" in promise["figure"].description


@pytest.mark.parametrize("refuted", [False, True])
def test_an_audits_bound_is_drawn_for_its_owner_alone(refuted: bool, tmp_path: Path) -> None:
    audits = {
        "one_run": {**AUDIT, "refuted": refuted},
        "membership": {"tpr_at_fpr_0.001": None, "tpr_at_fpr_0.01": 0.03},
    }
    run = record(tmp_path / "r", PLAIN, audits=audits)
    figure = promises(run)[0]["figure"]
    assert figure.shown == "private"
    assert ("please report it" in figure.description) == refuted
    assert {(row["false alarms"], row["misses"]) for row in figure.rows if "attack" in row} == {(0.01, 0.97)}
    measured = {row["false alarms"]: row["misses"] for row in figure.rows if "measured" in row.get("curve", "")}
    assert measured[0.1] == pytest.approx(1 - 1e-4 - 0.1 * math.exp(0.5), abs=1e-4)  # (1) of privacy.guarantees
    public = promises(run, public=True)[0]["figure"]
    assert public.shown == "public"
    assert not any("measured" in row.get("curve", "") or "attack" in row for row in public.rows)


# Budgets


def budget_bars(*records: RunRecord) -> list[Bar]:
    return list(bars(records))


def test_simulations_add_up_with_the_next_one(tmp_path: Path) -> None:
    """Two runs of 4.999, of which 2.5 were spent, and the next: 2.5/14.997 = 16.7 % and so on."""
    (bar,) = budget_bars(*(record(tmp_path / f"r-seed{n}", PLAIN) for n in range(2)))
    assert [part.kind for part in bar.parts] == ["spent", "planned", "spent", "planned", "next"]
    assert [part.width for part in bar.parts] == pytest.approx([16.67, 16.66, 16.67, 16.66, 33.33], abs=0.01)
    assert sum(part.width for part in bar.parts) == pytest.approx(100)
    assert "may spend epsilon 9.998 in all, at delta 0.0002" in bar.words
    assert "adds 4.999, which makes 15" in bar.words  # 14.997, rounded up to four digits


def test_a_sum_of_deltas_is_not_rounded_up_for_the_sake_of_binary_digits(tmp_path: Path) -> None:
    """Three times 1e-4 is 3e-4, of which binary numbers make a little more."""
    (bar,) = budget_bars(*(record(tmp_path / f"r-seed{n}", PLAIN) for n in range(3)))
    assert "at delta 0.0003." in bar.words


def test_epsilons_of_other_units_do_not_add_up_and_runs_without_any_are_named(tmp_path: Path) -> None:
    kinds = [PLAIN, for_persons(PLAIN, 3, KnownPersons.TOGETHER), none("no noise", ADD)]
    one, other = budget_bars(*(record(tmp_path / f"r{n}", kind) for n, kind in enumerate(kinds)))
    assert "The run on digits, for each example of a node's shard, may spend epsilon 4.999" in one.words
    assert "for each person with at most 3 examples" in other.words
    assert "1 more run on these data has no guarantee" in one.words


def deployed(path: Path, **changed: Any) -> RunRecord:
    run = record(path, PLAIN)
    (path / "spending.json").write_text(json.dumps({**SPENDING, **changed}))
    return run


def test_an_owners_budget_has_the_next_run_beyond_its_end(tmp_path: Path) -> None:
    """A quarter and a half are spent, and another half does not fit: the bar is 1.25 budgets long."""
    (bar,) = budget_bars(deployed(tmp_path / "r"))
    assert [(part.name, part.start, part.width) for part in bar.parts] == [
        ("a/x", 0, 20),
        ("b/x", 20, 40),
        ("the next", 60, 40),
    ]
    assert bar.limit == 80
    assert "2 runs took 75 % of it (epsilon 5.125 so far)" in bar.words
    assert "would take as much again, which the ledger would refuse" in bar.words


def test_an_owners_budget_is_not_public(tmp_path: Path) -> None:
    section = privacy([deployed(tmp_path / "r")], True)
    assert section is not None
    assert section.values["bars"] == []


def test_a_run_without_privacy_leaves_nothing(tmp_path: Path) -> None:
    (bar,) = budget_bars(deployed(tmp_path / "r", share=None, epsilon=None))
    assert "nothing of the budget is left" in bar.words


def test_many_runs_are_few_parts(tmp_path: Path) -> None:
    runs = [{"run": f"r{n}/x", "share": 0.01, "series": None} for n in range(60)]
    (bar,) = budget_bars(deployed(tmp_path / "r", runs=runs, share=0.6, this_run="r3/x"))
    assert len(bar.parts) == 30
    assert bar.parts[-1].start == pytest.approx(60)


@pytest.mark.parametrize("content", ["{", "[]", '{"allowed": 3}'])
def test_a_damaged_ledger_is_one_line(content: str, tmp_path: Path) -> None:
    run = record(tmp_path / "r", PLAIN)
    (tmp_path / "r" / "spending.json").write_text(content)
    with pytest.raises(DataError, match=r"spending.json: expected what the runs took"):
        budget_bars(run)


# The page


class Text(HTMLParser):
    """Tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_the_page_is_in_the_order_of_its_questions_and_has_a_hundred_people(tmp_path: Path) -> None:
    record(tmp_path / "r", PLAIN)
    page = write_report(read_records([tmp_path / "r"]), tmp_path).read_text()
    body = page[page.index('id="part-privacy"') :]
    order = ['class="sentence"', "people-1-1", "people-1-2", 'id="trade-off"', 'class="bar"', 'class="checklist"', FILE]
    places = [body.index(what) for what in order]
    assert places == sorted(places)
    assert (body.count('<path fill="#d55e00"'), body.count('<path fill="none"')) == (50 + 74, 50 + 26)


def test_names_from_a_card_do_not_end_up_in_code(tmp_path: Path) -> None:
    evil = replace(PLAIN, observer=EVIL, proof=EVIL, assumptions=(EVIL,), remarks=(EVIL,))
    record(tmp_path / "r", evil, mechanism={EVIL: EVIL}, claims=[{"theorem": EVIL, "epsilon": 1.0, "valid": True}])
    page = write_report(read_records([tmp_path / "r"]), tmp_path).read_text()
    assert EVIL not in page
    assert Text(page).tags.count("script") == 3
