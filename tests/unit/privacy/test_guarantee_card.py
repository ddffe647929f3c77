"""Cards of guarantees: by their schema, and never promising more than is proved."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from gossamer.errors import DataError
from gossamer.privacy.accounting.accountants import profile
from gossamer.privacy.guarantee_card import (
    GuaranteeCard,
    GuaranteeEntry,
    ProfilePoints,
    ReceiptsHead,
    Software,
    read_guarantee_card,
)
from gossamer.privacy.guarantees import (
    EVERYTHING,
    NOTHING,
    Guarantee,
    KnownPersons,
    PrivacyProfile,
    for_persons,
    none,
    planned,
    reproducible,
)
from gossamer.privacy.mechanisms import FixedSize, Gaussian, Laplace, NeighboringRelation, Poisson, ReleaseKind

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
WHERE = Path("runs", "guarantee.json")
SCHEMA = json.loads(resources.files("gossamer.privacy").joinpath("guarantee.schema.json").read_text("utf-8"))


def gaussian(mu: float) -> Guarantee:
    found = planned(4.999, 1e-4, ADD, "composed")
    return replace(found, evidence=lambda: PrivacyProfile.gaussian(mu))


def card(*guarantees: Guarantee) -> str:
    return GuaranteeCard.of(guarantees, {"mechanism": "gaussian", "clip": 1.0}, "0.9", run="5e").to_json()


PLAIN = gaussian(1.26)
CARDS = {
    "plain": [PLAIN],
    "one point": [replace(PLAIN, evidence=None)],
    "persons": [for_persons(PLAIN, 3, KnownPersons.SPREAD)],
    "weak": [replace(PLAIN, remarks=("epsilon is above 10",))],
    "none": [none("no noise", REPLACE)],
    "reproducible": [reproducible(PLAIN)],
    "infinite mu": [replace(PLAIN, evidence=lambda: PrivacyProfile.of_points([(30.0, 0.0)]))],
    "several": [PLAIN, replace(PLAIN, observer="the own server", evidence=None), none("it sees sums", REPLACE)],
    "clients": [replace(PLAIN, rows_per_person=None, unit="client with all of its data")],
}


@pytest.mark.parametrize("name", CARDS)
def test_cards_are_valid_and_read_back(name: str) -> None:
    text = card(*CARDS[name])
    jsonschema.validate(json.loads(text), SCHEMA, cls=jsonschema.Draft202012Validator)
    found = read_guarantee_card(text, WHERE)
    assert found.to_json() == text
    for entry, one in zip(found.guarantees, CARDS[name], strict=True):
        assert (entry.unit, entry.observer, entry.proof) == (one.unit, one.observer, one.proof)
        assert (entry.epsilon or math.inf) == one.epsilon
        assert (math.inf if entry.mu is None else entry.mu) == one.mu
        assert (entry.would_be is None) == (one.would_be is None)


def test_a_card_names_receipts_software_and_what_a_registry_asks_for() -> None:
    software = Software(name="gossamer", version="0.9", source=f"sha256:{'ab' * 32}")
    begun = GuaranteeCard.of([PLAIN], {"mechanism": "gaussian"}, "0.9", software, run="5e")
    ended = begun.ended(ReceiptsHead(releases=7, head="cd" * 32))
    jsonschema.validate(json.loads(ended.to_json()), SCHEMA, cls=jsonschema.Draft202012Validator)
    said = json.loads(ended.to_json())
    assert said["receipts"] == {"releases": 7, "head": "cd" * 32}
    assert said["registry"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.999, "delta": 1e-4}
    assert "receipts" not in json.loads(begun.to_json())
    assert read_guarantee_card(ended.to_json(), WHERE) == ended
    assert begun.digest == ended.digest != GuaranteeCard.of([PLAIN], {}, "0.9", software, run="5e").digest
    assert "registry" not in json.loads(card(none("no noise", REPLACE)))
    for wrong in ({"releases": -1, "head": "cd" * 32}, {"releases": 7, "head": "cd"}):
        with pytest.raises(DataError, match="found it damaged"):
            read_guarantee_card(json.dumps({**said, "receipts": wrong}), WHERE)


@pytest.mark.parametrize("version", [1, 3])
def test_a_card_of_another_version_is_refused(version: int) -> None:
    other = {**json.loads(card(PLAIN)), "format": version}
    with pytest.raises(DataError, match=f"expected a guarantee of format 2, found format {version}, written by gossam"):
        read_guarantee_card(json.dumps(other), WHERE)


def test_the_schema_is_that_of_what_is_written() -> None:
    """Descriptions are the schema's own; a key that only one of the two knows is found here."""
    assert bare(SCHEMA) == bare(GuaranteeCard.model_json_schema())


def bare(schema: Any, *, names: bool = False) -> Any:
    """Without words; ``names`` are those of properties, which may be called like words."""
    if isinstance(schema, list):
        return [bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    words = () if names else ("$schema", "title", "description", "default")
    return {key: bare(value, names=key in ("properties", "$defs")) for key, value in schema.items() if key not in words}


def test_every_key_is_described() -> None:
    kinds = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all(value.get("description") for kind in kinds for value in (kind, *kind.get("properties", {}).values()))


PROFILES: dict[str, Callable[[], PrivacyProfile]] = {
    "nothing": lambda: NOTHING,
    "everything": lambda: EVERYTHING,
    "one point": lambda: PrivacyProfile.of_points([(5.0, 1e-4)]),
    "pure": lambda: PrivacyProfile.of_points([(0.3, 0.0)]),
    **{f"mu {mu}": (lambda mu=mu: PrivacyProfile.gaussian(mu)) for mu in (1e-6, 0.01, 0.5, 1.26, 3.0, 6.0)},
    "sampled": lambda: profile([({ReleaseKind(Gaussian(1.0, 1.1), Poisson(0.05), 3): 40}, 1)], ADD),
    "answers": lambda: profile([({ReleaseKind(Laplace(1.0, 2.0), FixedSize(10, 10), 1): 6}, 1)], REPLACE),
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_card_never_promises_more_than_its_profile_and_little_less(name: str) -> None:
    exact = PROFILES[name]()
    text = ProfilePoints.of(exact).model_dump_json()
    found = ProfilePoints.model_validate_json(text)
    assert len(found.epsilons) <= 260
    assert len(text) < 8000
    assert all(value == float(f"{value:.6g}") for value in (*found.epsilons, *found.deltas))
    read = found.profile
    assert read.accuracy >= exact.accuracy
    assert read.mu >= exact.mu
    assert read.accuracy <= exact.accuracy * (1 + 1e-5)
    assert read.mu <= exact.mu * (1 + 1e-3) + 1e-5
    losses = np.linspace(0, exact.losses[-1] + 1, 400)
    assert all(read.delta(float(loss)) >= exact.delta(float(loss)) * (1 - 1e-12) for loss in losses)
    alarms = np.linspace(0, 1, 400)
    assert np.all(read.miss_rate(alarms) <= exact.miss_rate(alarms) + 1e-12)


def test_points_that_round_to_one_epsilon_are_one_point() -> None:
    found = ProfilePoints.of(PrivacyProfile((0.0, 1.00000001, 1.00000002), (0.5, 0.2, 0.1)))
    assert (found.epsilons, found.deltas) == ((0.0, 1.00001), (0.5, 0.1))


def changed(key: str, value: Any, text: str | None = None) -> str:
    """A card with another value under a key of its first guarantee."""
    content = json.loads(text or card(PLAIN))
    content["guarantees"][0][key] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "found it damaged"),
        ("[]", "found it damaged"),
        ('{"format": 2}', "gossamer: field required"),
        ('{"format": 3, "gossamer": "9.1"}', "found format 3, written by gossamer 9.1"),
        (changed("mu", 0.9), "mu is below what the profile allows"),
        (changed("best_guess", 0.6), "best_guess is below what the profile allows"),
        (changed("epsilon", None), "go with a guarantee"),
        (changed("epsilon", "5"), "epsilon: input should be a valid number"),
        (changed("profile", {"epsilons": [0, 1], "deltas": [0.5]}), "with a delta for each"),
        (changed("profile", {"epsilons": [1, 0], "deltas": [0.5, 0.1]}), "increase from 0"),
        (changed("privacy", "none"), "go with a guarantee"),
        (changed("observers", "nobody"), "observers"),
        (card(PLAIN).replace("4.999", "NaN"), "epsilon"),
    ],
)
def test_a_damaged_card_is_one_line(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_guarantee_card(text, WHERE)
    assert str(caught.value).startswith(str(WHERE))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [("epsilon", "5"), ("profile", {"epsilons": [0], "deltas": [2]}), ("more", 1)])
def test_the_schema_refuses_what_is_no_card(wrong: tuple[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(changed(*wrong)), SCHEMA)


def test_a_guarantee_that_says_next_to_nothing_has_a_card() -> None:
    """Of mu 12 and more, corners lie where nearly nothing is missed, and rounding moves them far."""
    for mu in (8.0, 10.0, 11.5, 12.0, 12.5, 13.0, 20.0):
        weak = planned(133.0, 1e-5, NeighboringRelation.REPLACE_ONE, "by hand")
        entry = GuaranteeEntry.of(replace(weak, evidence=partial(PrivacyProfile.gaussian, mu)), "5e")
        assert entry.mu is None or entry.mu >= min(mu, PrivacyProfile.gaussian(mu).mu)
