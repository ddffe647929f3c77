"""Chains and guarantees by somebody who knows how they are made, and wants `follows` of what does not hold.

Each chain here is whole: its links, its numbers and its head fit, so nothing but what it says gives it away.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.verify.chains import Written, card, chained, stored, written

from gossamer.algorithms.graph_federated import guarantees as units
from gossamer.cli import main
from gossamer.keys.identity import Identity
from gossamer.privacy import guarantees
from gossamer.sides import guarantees as clients
from gossamer.sides import plan
from gossamer.sides.receipts import PURPOSE
from gossamer.verify import gossamer_verify as second
from gossamer.verify.gossamer_verify import Unreadable, verify

GENEROUS = 90.0
"""An epsilon that follows from any of these plans."""
GAUSSIAN = {"mechanism": "Gaussian", "noise_multiplier": 2.0, "sampling": "Poisson", "probability": 1.0, "size": 5}
STREAM = {
    "mechanism": "stream",
    "law": "gaussian",
    "standard_deviation": 0.5,
    "temporal": "banded",
    "rounds": 4,
    "bands": 2,
    "records": 4,
    "size": 5,
}
NODE = {"unit": guarantees.EXAMPLE, "observer": guarantees.OTHER_NODES}
UNIT = {"unit": units.UNITS[units.GradientAt.HIDDEN], "observer": units._OBSERVERS[units.GradientAt.HIDDEN]}
AGENT = {"unit": units.UNITS[units.GradientAt.RELEASED], "observer": units._OBSERVERS[units.GradientAt.RELEASED]}
FIRST = {"receipts": 3, "run": "5e" * 32, "key": None}


def releases(count: int, clip: float | None = 1.0, **more: Any) -> list[dict[str, Any]]:
    """Receipts of one party."""
    kept = {"query": "Gradient", "law": 0, "clip": clip, "time": None, **more}
    return [{"of": "a", "number": number, **kept} for number in range(1, count + 1)]


def chain_of(law: dict[str, Any], most: int, *lines: dict[str, Any], **party: Any) -> Written:
    """A chain of one party with a plan of one law."""
    plan = {"party": "a", **NODE, "most": {"0": most}, **party}
    return chained([FIRST, {"law": law}, plan, *lines])


def found_of(folder: Path, chain: Written, epsilon: float = GENEROUS, **changed: Any) -> dict[str, Any]:
    said = card(chain.head, epsilon)
    said["guarantees"][0] |= changed
    return verify(stored(folder, chain.text, said))


def verdict_of(folder: Path, chain: Written, epsilon: float = GENEROUS, **changed: Any) -> str:
    found = found_of(folder, chain, epsilon, **changed)
    (one,) = found["guarantees"]
    assert found["follows"] == (one["verdict"].startswith(("follows", "promises nothing")) and not found["wrong"])
    return str(one["verdict"])


# Receipts


def test_a_plain_chain_follows(tmp_path: Path) -> None:
    """Otherwise nothing below says anything."""
    chain = chain_of(GAUSSIAN, 3, *releases(3))
    assert verdict_of(tmp_path / "a", chain) == "follows"
    assert verdict_of(tmp_path / "a", chain, 0.5).startswith("does not follow")


@pytest.mark.parametrize("owners", [[], ["x"], ["a", "x"]])
def test_releases_do_not_hide_from_the_plan_behind_other_owners(owners: list[str], tmp_path: Path) -> None:
    """A node releases its own data. A sum over nobody would be counted for nobody."""
    with pytest.raises(Unreadable, match="line 4"):
        found_of(tmp_path / "a", chain_of(GAUSSIAN, 1, *releases(9, owners=owners)))


def test_sums_of_a_server_are_over_those_in_its_plan(tmp_path: Path) -> None:
    for owners in ([], ["x", "z"]):
        with pytest.raises(Unreadable, match="line 4"):
            found_of(tmp_path / "a", chain_of(GAUSSIAN, 1, *releases(2, owners=owners), owners=["x", "y"]))


def test_a_plan_is_made_of_laws_before_it(tmp_path: Path) -> None:
    """One that is filled in later is no plan."""
    plan = {"party": "a", **NODE, "most": {"0": 1}}
    with pytest.raises(Unreadable, match="line 2"):
        found_of(tmp_path / "a", chained([FIRST, plan, {"law": GAUSSIAN}, *releases(1)]))


@pytest.mark.parametrize("clip", [None, 0, 0.0])
def test_noise_in_proportion_to_a_clip_needs_one(clip: float | None, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="line 4"):
        found_of(tmp_path / "a", chain_of(GAUSSIAN, 1, *releases(1, clip)))


def test_releases_by_another_law_are_counted(tmp_path: Path) -> None:
    plan = {"party": "a", **NODE, "most": {"0": 9}}
    loud = GAUSSIAN | {"noise_multiplier": 0.01}
    chain = chained([FIRST, {"law": GAUSSIAN}, plan, {"law": loud}, *releases(3, law=1)])
    assert found_of(tmp_path / "a", chain)["wrong"] == ["a releases more than it planned, at line 5"]


# Streams


def of_units(folder: Path, law: dict[str, Any], **changed: Any) -> str:
    chain = chain_of(law, 4, *releases(4, None), **{"moved": 0.1, **UNIT, **changed})
    return verdict_of(folder, chain, **UNIT, neighboring_relation="replace_one", rows_per_person=None)


def test_what_a_stream_hides_is_said_by_the_plan_alone(tmp_path: Path) -> None:
    assert of_units(tmp_path / "a", STREAM) == "follows"
    assert of_units(tmp_path / "a", STREAM, moved=3.0).startswith("does not follow")
    assert of_units(tmp_path / "a", STREAM | {"moved": 0.001}, moved=3.0).startswith("does not follow")
    assert of_units(tmp_path / "a", STREAM, moved=None).startswith("not verified")
    assert of_units(tmp_path / "a", STREAM, observer="own server", moved=3.0).startswith("not verified")
    assert of_units(tmp_path / "a", STREAM, **AGENT).startswith("not verified: a has no plan that protects")


@pytest.mark.parametrize(
    "changed", [{"bands": -2}, {"bands": 0}, {"bands": None}, {"temporal": "white"}, {"records": 0}]
)
def test_an_odd_stream_is_no_stream_without_noise(changed: dict[str, Any], tmp_path: Path) -> None:
    """A matrix of zeros would move by nothing, and so cost nothing."""
    with pytest.raises(Unreadable):
        of_units(tmp_path / "a", STREAM | changed, moved=1e6)


def test_half_a_stream_costs_no_less_than_all(tmp_path: Path) -> None:
    law = STREAM | {"standard_deviation": 0.01}
    plan = {"party": "a", **UNIT, "most": {"0": 1}, "moved": 0.01}
    chain = chained([FIRST, {"law": law}, plan, *releases(1, None)])
    (one,) = found_of(
        tmp_path / "a",
        chain,
        **UNIT,
        neighboring_relation="replace_one",
        rows_per_person=None,
    )["guarantees"]
    whole = second.pair_of({**law, "moved": 0.01}, "replace_one")
    assert one["proved_epsilon"] == pytest.approx(second.proved({whole: 1}, 1e-5)["epsilon"], rel=1e-6)


# Guarantees


def test_observers_are_those_of_the_library() -> None:
    """Each is protected as the library means it; whoever is told everything is not among them."""
    example = guarantees.PLANNED.unit
    assert {
        **dict.fromkeys([guarantees.OTHER_NODES, guarantees.ALL_MODELS], example),
        **dict.fromkeys([plan.EVERYBODY, plan.BUT_THE_CURATOR], guarantees.CLIENT),
        plan.BUT_WHOEVER_SEES_THE_CURATOR: guarantees.CLIENT,
        guarantees.WHOEVER: guarantees.HELD_OUT,
        **{units._OBSERVERS[where]: units.UNITS[where] for where in units.GradientAt},
    } == second.PROTECTED
    assert not {clients._THE_CURATOR, units._AGENTS, units._SERVER} & second.PROTECTED.keys()


@pytest.mark.parametrize(
    "changed",
    [
        {"observer": "everybody"},
        {"observer": guarantees.OTHER_NODES + ", and whoever reads the node's disk"},
        {"observer": clients._THE_CURATOR},
        {"unit": "example of a node's shard, and of all others"},
        {"unit": "client with all of its data"},
        {"unit": guarantees.CLIENT, "observer": plan.EVERYBODY, "rows_per_person": None},
        {"unit": guarantees.CLIENT, "observer": plan.BUT_THE_CURATOR, "rows_per_person": None},
        {"rows_per_person": None},
        {"rows_per_person": 2},
    ],
)
def test_what_is_known_of_nobody_does_not_follow(changed: dict[str, Any], tmp_path: Path) -> None:
    """An observer who sees more, a larger unit, or a person with any number of examples."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    assert verdict_of(tmp_path / "a", chain, **changed).startswith("not verified: ")
    words = {key: changed.get(key, NODE[key]) for key in NODE}
    if words["unit"] != guarantees.CLIENT and "rows_per_person" not in changed:
        chain = chain_of(GAUSSIAN, 1, *releases(1), **words)
        assert verdict_of(tmp_path / "a", chain, **changed).startswith("not verified: "), "whatever the receipts say"


def test_a_trusted_server_protects_from_nobody_who_is_told_by_it(tmp_path: Path) -> None:
    chain = chain_of(
        GAUSSIAN, 1, *releases(1), owners=["x", "y"], unit=guarantees.CLIENT, observer=plan.BUT_THE_CURATOR
    )
    entry = {"unit": guarantees.CLIENT, "rows_per_person": None, "neighboring_relation": "replace_one"}
    assert verdict_of(tmp_path / "a", chain, **entry, observer=plan.BUT_THE_CURATOR) == "follows"
    for observer in (clients._THE_CURATOR, plan.EVERYBODY):
        assert verdict_of(tmp_path / "a", chain, **entry, observer=observer).startswith("not verified: ")


@pytest.mark.parametrize("party", [{"unit": ""}, {"unit": None, "observer": None}, {"observer": ""}, AGENT])
def test_what_protects_nobody_follows_for_nobody(party: dict[str, Any], tmp_path: Path) -> None:
    chain = chain_of(GAUSSIAN, 1, *releases(1), **party)
    assert verdict_of(tmp_path / "a", chain).startswith("not verified: a has no plan")


def test_a_node_is_not_left_out_by_saying_whom_it_speaks_to(tmp_path: Path) -> None:
    loud = GAUSSIAN | {"noise_multiplier": 0.5}
    quiet = {"party": "b", **NODE, "most": {"0": 1}}
    inside = {"party": "a", "unit": None, "observer": "own server", "most": {"1": 5}}
    chain = chained([FIRST, {"law": GAUSSIAN}, {"law": loud}, quiet, inside, *releases(5, law=1)])
    assert verdict_of(tmp_path / "a", chain, 3.0).startswith("not verified: a has no plan")


def test_who_promises_nothing_has_no_figures(tmp_path: Path) -> None:
    """Neither for those who read past `privacy: none`, nor beside what it would be if noise were secret."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    true = card(chain.head, GENEROUS)["guarantees"][0]
    nothing = dict.fromkeys(("epsilon", "delta", "mu", "best_guess"))
    assert verdict_of(tmp_path / "a", chain, **nothing, privacy="none") == "promises nothing"
    would_be = verdict_of(tmp_path / "a", chain, **nothing, privacy="none", would_be=true)
    assert would_be == "follows, if the noise were secret"
    for figure in ({"epsilon": 0.1}, {"mu": 0.1}, {"best_guess": 0.5}):
        for more in ({}, {"would_be": true}):
            with pytest.raises(Unreadable, match="promises nothing"):
                found_of(tmp_path / "a", chain, **{**nothing, **figure}, privacy="none", **more)
    with pytest.raises(Unreadable, match="promises nothing"):
        found_of(tmp_path / "a", chain, would_be=true)


@pytest.mark.parametrize("delta", [1, 1.0, 2.5, -1e-5])
def test_a_delta_lies_between_0_and_1(delta: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 0 no epsilon holds of normal noise; at 1 any does."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    assert verdict_of(tmp_path / "a", chain, delta=0.0).startswith("not verified: no figure")
    said = card(chain.head, GENEROUS, delta)
    assert main(["verify", str(stored(tmp_path / "a", chain.text, said))]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_file_alone_prints_json_of_an_infinite_mu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = chain_of(GAUSSIAN | {"noise_multiplier": 0.07}, 1, *releases(1))
    assert second.main([str(stored(tmp_path / "a", chain.text, card(chain.head, 400.0)))]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["guarantees"][0]["plans"][0]["mu"] is None


@pytest.mark.parametrize("delta", [1e-29, 1e-60])
def test_a_delta_that_is_too_small_to_be_computed_does_not_follow(delta: float, tmp_path: Path) -> None:
    chain = chain_of(GAUSSIAN, 50, *releases(1))
    assert not found_of(tmp_path / "a", chain, 80.0, delta=delta)["follows"]


def test_a_best_guess_follows_as_an_epsilon_does(tmp_path: Path) -> None:
    """Of one release to all, (1 + 2 Phi(m/2) - 1) / 2 = Phi(m/2), m = 1/2: Dong, Roth and Su, section 2."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    exact = 0.5987063256829237
    assert verdict_of(tmp_path / "a", chain, best_guess=exact) == "follows"
    assert verdict_of(tmp_path / "a", chain, best_guess=exact - 0.001).startswith(
        "does not follow: best_guess is 0.5987"
    )


def test_a_key_is_there_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two epsilons a person reads the first, and most programs the last."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    folder = stored(tmp_path / "a", chain.text, card(chain.head, GENEROUS))
    said = (folder / "guarantee.json").read_text()
    (folder / "guarantee.json").write_text(said.replace('"epsilon": ', '"epsilon": 0.1, "epsilon": '))
    assert main(["verify", str(folder)]) == 2
    assert "expected each key once, found " in capsys.readouterr().err
    text = chain.text.replace('"noise_multiplier": ', '"noise_multiplier": 99.0, "noise_multiplier": ')
    assert main(["verify", str(stored(tmp_path / "b", text) / "receipts.jsonl")]) == 2
    assert "line 2: Unreadable: expected each key once, found " in capsys.readouterr().err


def test_no_entry_follows_from_a_broken_plan_or_other_receipts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, whole = chain_of(GAUSSIAN, 1, *releases(2)), chain_of(GAUSSIAN, 1, *releases(1))
    for chain, head, why in (
        (broken, broken.head, "a releases more than it planned, at line 5"),
        (whole, broken.head, "the guarantee is about other receipts"),
    ):
        assert main(["verify", str(stored(tmp_path / "a", chain.text, card(head, GENEROUS)))]) == 1
        shown = capsys.readouterr().out
        assert f"\ndoes not follow: {why}: example of " in shown
        assert "\nfollows" not in shown


@pytest.mark.parametrize("privacy", ["perfect", True, 0])
def test_privacy_is_none_or_not_said(privacy: Any, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="expected privacy none"):
        found_of(tmp_path / "a", chain_of(GAUSSIAN, 1, *releases(1)), privacy=privacy)


def test_what_stands_beside_would_be_is_named(tmp_path: Path) -> None:
    """It is read by people as the rest is, and was left out of the line of what is not checked."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    true = card(chain.head, GENEROUS)["guarantees"][0]
    nothing = dict.fromkeys(("epsilon", "delta", "mu"))
    would_be = {**true, "proof": "by hand"}
    found = found_of(tmp_path / "a", chain, **nothing, privacy="none", remarks="it never leaks", would_be=would_be)
    assert found["not_checked"] == ["proof", "remarks"]


def test_a_plan_of_no_release_does_not_follow(tmp_path: Path) -> None:
    assert verdict_of(tmp_path / "a", chain_of(GAUSSIAN, 0)).startswith("does not follow")


def test_what_is_not_checked_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    said = card(chain.head, GENEROUS) | {"registry": {"epsilon": 0.1}}
    said["guarantees"][0] |= {"profile": {"epsilons": [0.0], "deltas": [0.0]}, "proof": "by hand"}
    folder = stored(tmp_path / "a", chain.text, said)
    assert verify(folder)["not_checked"] == ["profile", "proof", "registry"]
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.endswith("\nnot checked: profile, proof, registry\n")


@pytest.mark.parametrize("end", [None, {}, {"releases": 2}, {"head": "00" * 32}, {"signature": "00" * 64}])
def test_a_guarantee_names_the_end_of_its_receipts(end: dict[str, Any] | None, tmp_path: Path) -> None:
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    said = card(chain.head, GENEROUS)
    said["receipts"] = {**said["receipts"], **end} if end else end
    found = verify(stored(tmp_path / "a", chain.text, said))
    assert (found["follows"], found["wrong"]) == (False, ["the guarantee is about other receipts"])


def test_a_guarantee_is_the_one_that_its_receipts_name(tmp_path: Path) -> None:
    """Neither are its words edited afterwards, checked or not, nor is it another's with a head of this."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    folder = stored(tmp_path / "a", chain.text, card(chain.head, GENEROUS) | {"mechanism": {"clip": 1.0}})
    assert verify(folder)["follows"]
    whole = json.loads((folder / "guarantee.json").read_text())
    (entry,) = whole["guarantees"]
    for edited in (
        {"guarantees": [{**entry, "epsilon": GENEROUS + 1}]},
        {"guarantees": [{**entry, "proof": "epsilon 0.1, by hand"}]},
        {"guarantees": [entry, entry]},
        {"mechanism": {"clip": 0.1}},
        {"registry": {"privacy_loss": 0.1}},
    ):
        (folder / "guarantee.json").write_text(json.dumps({**whole, **edited}))
        found = verify(folder)
        assert (found["follows"], found["wrong"]) == (False, ["the guarantee is about other receipts"])
    (folder / "guarantee.json").write_text(json.dumps(whole, indent=2))
    assert verify(folder)["follows"], "only the words count"


@pytest.mark.parametrize("about", [{"run": "6f" * 32}, {"party": "a"}, {"party": "b"}])
def test_an_entry_is_about_the_run_and_the_party_of_its_receipts(about: dict[str, str], tmp_path: Path) -> None:
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    assert verdict_of(tmp_path / "a", chain, **about) == "does not follow: it is about another run or party"


@pytest.mark.parametrize("key", ["eps\u0456lon", "Epsilon", "epsilon ", "\uff45psilon", "epsilon_max", ""])
def test_keys_that_look_like_others_are_refused(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads the file takes them for what was checked."""
    chain = chain_of(GAUSSIAN, 1, *releases(1))
    for top in (True, False):
        said = card(chain.head, GENEROUS)
        (said if top else said["guarantees"][0])[key] = 0.1
        assert main(["verify", str(stored(tmp_path / "a", chain.text, said))]) == 2
        assert capsys.readouterr().err.startswith("gossamer verify: expected format 2, found 2, keys ['")


# Parts of a run


def signed(identity: Identity) -> Written:
    return written(key=identity.public_key.raw.hex(), sign=lambda head: identity.sign(PURPOSE, head))


def test_a_signed_chain_is_one_partys_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever signs it is told apart by the fingerprint that invitations and `federation show` have."""
    identity = Identity.of_seed(b"\x07" * 32)
    chain = signed(identity)
    said = card(chain.head, GENEROUS)
    said["receipts"]["signature"] = json.loads(chain.lines[-1])["signature"]
    said["guarantees"][0]["party"] = "a"
    folder = stored(tmp_path / "a", chain.text, said, sign=lambda head: identity.sign(PURPOSE, head))
    assert main(["verify", str(folder)]) == 0
    shown = capsys.readouterr().out
    fingerprint = identity.public_key.fingerprint
    assert f", signed by the key with fingerprint {fingerprint}\n" in shown
    assert "\nreceipts of other parties are not here: what follows is about a, b, c alone\n" in shown
    assert "\nfollows, for a, b, c alone: example of a node's shard, against " in shown
    assert main(["verify", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["signer"], found["parties"], found["run"]) == (fingerprint, ["a", "b", "c"], "5e" * 32)
    assert found["guarantees"][0]["verdict"] == "follows, for a, b, c alone"


def test_without_cryptography_a_signature_is_not_taken_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = signed(Identity.of_seed(b"\x07" * 32))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    folder = stored(tmp_path / "a", chain.text)
    assert main(["verify", str(folder / "receipts.jsonl")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cryptography" in said
