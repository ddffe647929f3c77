"""Words of a guarantee that are exchanged, over receipts of every kind of run: nothing that is false follows.

Receipts are those of plans as runs write them, simulated and signed by a party. Every unit, observer and relation that
the library or the verifier knows is put in the place of every other one, with figures that follow from any plan. What
is said of the plan itself follows; under the other relation it does where nothing more is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.leak_specs import SPECS, prepared
from tests.unit.verify.chains import chained, named

from gossamer.algorithms.graph_federated import guarantees as units
from gossamer.algorithms.plan import Plan
from gossamer.experiment.preparation.planning import plan_run
from gossamer.keys.identity import Identity
from gossamer.privacy.guarantee_card import GuaranteeCard
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.sides import guarantees as clients
from gossamer.sides import plan
from gossamer.sides.plan import ClientUpdate, Curator, SidePlan
from gossamer.sides.receipts import PURPOSE, Book
from gossamer.verify import gossamer_verify as second

RUN = "5e" * 32
OWN = Identity.of_seed(b"\x07" * 32)
UNITS = sorted({*second.PROTECTED.values()})
OBSERVERS = sorted({*second.PROTECTED, clients._THE_CURATOR, units._AGENTS, units._SERVER})
RELATIONS = [relation.value for relation in NeighboringRelation]
PROVED = {"gossip": 1, "gossip-replace": 1, "fedavg": 1, "fedavg-trusted": 2, "fedavg-secret": 1}
PROVED |= {
    "graph-released-loud": 2,
    "graph-hidden-loud": 2,
    "local": 1,
    "increasing-clipped-sum": 1,
    "fedasync-example": 1,
}
"""Kinds of runs whose own claims follow, and from how many kinds of chains at least."""


LOUD = {"clip": 1.0, "standard_deviation": 5.0}
KINDS = SPECS | {
    f"graph-{where}-loud": {
        "algorithm": {**SPECS["graph_federated"]["algorithm"], "gradient_at": where, "noise": "homomorphic"},
        "privacy": LOUD,
    }
    for where in units.GradientAt
}


@cache
def planned(name: str) -> Plan:
    return plan_run(prepared(KINDS[name]))


def handing_over(sides: Mapping[str, SidePlan]) -> dict[str, SidePlan]:
    """Plans as deployed parties have them: clients of a trusted server count what they hand over."""
    curators = [side for side in sides.values() if isinstance(side, Curator)]
    if not curators or curators[0].draws:
        return dict(sides)
    ((kind, most),) = curators[0].kinds.items()
    return {
        name: replace(side, counted=kind, most_updates=most) if isinstance(side, ClientUpdate) else side
        for name, side in sides.items()
    }


def chains(name: str) -> Iterator[tuple[str, str | None]]:
    """Receipts of a run, and those of each kind of party by itself, which signs them; and the party."""
    sides = planned(name).sides
    yield Book(sides, RUN).written(), None
    seen: set[str] = set()
    for party, side in handing_over(sides).items():
        text = Book({party: side}, RUN, key=OWN.public_key.raw.hex()).written()
        (*_, said) = map(json.loads, text.splitlines())
        if said.get("most") and (kind := f"{said['unit']}, {said['observer']}, {said.get('owners')}") not in seen:
            seen.add(kind)
            yield text, party


def card_of(name: str, party: str | None) -> dict[str, Any]:
    guarantees: list[Guarantee] = list(planned(name).guarantees.values())
    text = GuaranteeCard.of(guarantees, {}, "0", run=RUN, party=party).to_json()
    found: dict[str, Any] = json.loads(text)
    return found


def verdicts(folder: Path, text: str, party: str | None, entries: list[dict[str, Any]], said: dict[str, Any]) -> Any:
    """Verdicts on entries, each of a guarantee that the receipts name."""
    card = {**said, "guarantees": entries}
    lines = [*text.splitlines(keepends=True), ""]
    sign = None if party is None else lambda head: OWN.sign(PURPOSE, head)
    (folder / "receipts.jsonl").write_text(named("".join([*lines[:-1], "{}\n"]), card, sign))
    (folder / "guarantee.json").write_text(json.dumps(card))
    return second.verify(folder)["guarantees"]


@pytest.mark.parametrize("name", KINDS)
def test_nothing_follows_of_exchanged_words(name: str, tmp_path: Path) -> None:
    follow = 0
    for text, party in chains(name):
        said = card_of(name, party)
        plans = [one for one in map(json.loads, text.splitlines()) if "party" in one]
        true = {(one["unit"], one["observer"]) for one in plans}
        own = [entry for entry in said["guarantees"] if "privacy" not in entry and entry["delta"]]
        for entry in own if name in PROVED else ():
            (found,) = verdicts(tmp_path, text, party, [entry], said)
            stated = (entry["unit"], entry["observer"])
            if found["verdict"].startswith("follows"):
                assert stated in true
                follow += 1
        whoever: dict[str, Any] = own[0] if own else said["guarantees"][0]
        generous = {**whoever, "epsilon": 1e9, "delta": 0.1, "mu": None, "best_guess": 1.0}
        generous.pop("privacy", None)
        swapped = [
            {**generous, "unit": unit, "observer": observer, "neighboring_relation": relation, "rows_per_person": rows}
            for unit, observer, relation, rows in product(UNITS, OBSERVERS, RELATIONS, (1, None))
            if (unit, observer) not in true or len(true - {(None, "own server")}) > 1
        ]
        for entry, one in zip(swapped, verdicts(tmp_path, text, party, swapped, said), strict=True):
            assert one["verdict"].startswith("not verified"), (name, party, entry["unit"], entry["observer"])
    assert follow >= PROVED.get(name, 0)


@pytest.mark.parametrize("name", ["fedavg-secret", "graph-hidden-loud", "graph-released-loud"])
def test_the_other_relation_follows_only_where_it_says_no_more(name: str, tmp_path: Path) -> None:
    text, party = next(chains(name))
    said = card_of(name, party)
    (entry,) = [entry for entry in said["guarantees"] if "privacy" not in entry]
    (other,) = [relation for relation in RELATIONS if relation != entry["neighboring_relation"]]
    (found,) = verdicts(tmp_path, text, party, [{**entry, "neighboring_relation": other}], said)
    weaker = entry["neighboring_relation"] == "replace_one"
    assert found["verdict"].startswith("follows") == (weaker and name == "fedavg-secret")


def test_a_rate_below_1_is_for_those_who_do_not_see_cohorts(tmp_path: Path) -> None:
    """Even where a party's own receipts say otherwise."""
    text, _ = next(chains("fedavg-secret"))
    text = text.replace(plan.BUT_WHOEVER_SEES_THE_CURATOR, plan.BUT_THE_CURATOR)
    said = card_of("fedavg-secret", None)
    entry = {**said["guarantees"][0], "epsilon": 1e9, "observer": plan.BUT_THE_CURATOR}
    (found,) = verdicts(tmp_path, rechained(text), None, [entry], said)
    assert found["verdict"].startswith("not verified: server has no plan that protects")


def rechained(text: str) -> str:
    return "".join(chained([json.loads(line) for line in text.splitlines()]).lines[:-1])
