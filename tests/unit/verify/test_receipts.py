"""Chains of receipts: read as they were written, and nothing else is taken for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sampling import examples
from tests.unit.verify.chains import KINDS, RELEASES, Written, card, chained, contents, law, stored, written

from gossamer.cli import main
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.guarantees import CLIENT, EXAMPLE, OTHER_NODES
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, NeighboringRelation
from gossamer.sides import plan
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import Curator, Samples
from gossamer.sides.receipts import PURPOSE, Book
from gossamer.verify import gossamer_verify as second

FORGERIES = 10_000
PROMISED = epsilon(dict.fromkeys(KINDS, RELEASES), 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE).epsilon


def read(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "receipts.jsonl"
    path.write_bytes(text.encode())
    return second.read(path)


def test_a_chain_is_read_as_it_was_written(tmp_path: Path) -> None:
    chain = written()
    found = read(tmp_path, chain.text)
    assert found["end"] == chain.head._asdict()
    assert (found["run"], found["key"], found["signer"]) == ("5e" * 32, None, None)
    assert found["laws"] == [kind.describe() for kind in KINDS]
    assert {name: party["most"] for name, party in found["parties"].items()} == {
        name: {"0": RELEASES, "1": RELEASES} for name in "abc"
    }
    assert found["wrong"] == []


def test_a_receipt_says_what_a_reader_asks_for() -> None:
    (line,) = [one for one in contents(written()) if one.get("of") == "b" and one.get("number") == 3]
    assert set(line) == {"chain", "of", "number", "query", "law", "clip", "time"}
    assert line["query"] == "Gradient"
    assert line["clip"] in (0.5, 1.0)
    assert line["time"] > 0


def in_groups(count: int = RELEASES, number: int = 1, most: int = RELEASES, of: Any = ("a", "b", "c")) -> Written:
    """A chain in which parties released alike, so that one line is about all of them."""
    first, *_ = contents(written())
    plan = {"party": ["a", "b", "c"], "unit": EXAMPLE, "observer": OTHER_NODES, "most": {"0": most}}
    release = {"of": of, "number": number, "count": count, "query": "Gradient", "law": 0, "clip": 1.0, "time": 3.0}
    return chained([first, {"law": KINDS[0].describe()}, plan, release])


def test_releases_that_are_alike_are_counted_for_each_party(tmp_path: Path) -> None:
    found = second.verify(stored(tmp_path / "a", in_groups().text) / "receipts.jsonl")
    assert (found["releases"], found["wrong"]) == (3 * RELEASES, [])
    over = second.verify(stored(tmp_path / "b", in_groups(count=RELEASES + 1).text) / "receipts.jsonl")
    assert over["wrong"] == ["a releases more than it planned, at line 4"]


@pytest.mark.parametrize(
    "wrong",
    [{"count": 0}, {"count": -1}, {"count": 2.5}, {"count": True}, {"number": 2}, {"of": ["a", "a"]}, {"of": ["d"]}],
)
def test_a_line_about_several_that_does_not_add_up_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(second.Unreadable, match="line 4"):
        second.verify(stored(tmp_path / "a", in_groups(**wrong).text) / "receipts.jsonl")


# What somebody does who has the file


def dropped(lines: list[str], draw: np.random.Generator) -> list[str]:
    at = draw.integers(len(lines))
    return [*lines[:at], *lines[at + 1 :]]


def cut_off(lines: list[str], draw: np.random.Generator) -> list[str]:
    return lines[: draw.integers(len(lines))]


def reordered(lines: list[str], draw: np.random.Generator) -> list[str]:
    at, other = draw.choice(len(lines), 2, replace=False)
    lines = list(lines)
    lines[at], lines[other] = lines[other], lines[at]
    return lines


def doubled(lines: list[str], draw: np.random.Generator) -> list[str]:
    at, where = draw.integers(len(lines)), draw.integers(len(lines))
    return [*lines[:where], lines[at], *lines[where:]]


def altered(lines: list[str], draw: np.random.Generator) -> list[str]:
    """One character of a line, in place of another."""
    at = draw.integers(len(lines))
    place = draw.integers(len(lines[at]))
    other = draw.choice([c for c in '0123456789abcdef":,. {}' if c != lines[at][place]])
    return [*lines[:at], lines[at][:place] + str(other) + lines[at][place + 1 :], *lines[at + 1 :]]


def of_another_run(lines: list[str], draw: np.random.Generator) -> list[str]:
    """One line of a run that differs in nothing but its name, in the place of that of this one."""
    at = draw.integers(len(lines))
    other = ELSEWHERE.lines[at]
    return [*lines[:at], other, *lines[at + 1 :]]


def of_another_party(lines: list[str], draw: np.random.Generator) -> list[str]:
    """A receipt of another party, said to be this one's."""
    own = [at for at, line in enumerate(lines) if '"of": ' in line]
    at = int(draw.choice(own))
    party = json.loads(lines[at])["of"]
    other = str(draw.choice([name for name in "abc" if name != party]))
    return [*lines[:at], lines[at].replace(f'"of": "{party}"', f'"of": "{other}"'), *lines[at + 1 :]]


ELSEWHERE = written(run="6f" * 32)
FORGED = [dropped, cut_off, reordered, doubled, altered, of_another_run, of_another_party]


def test_forgeries_are_noticed(tmp_path: Path) -> None:
    """10,000 of them: always by a broken chain, whoever wrote the guarantee."""
    chain, draw = written(), np.random.default_rng(0xF0)
    path, noticed, tried = tmp_path / "receipts.jsonl", 0, 0
    for number in range(examples(FORGERIES)):
        lines = FORGED[number % len(FORGED)](chain.lines, draw)
        if lines == chain.lines:  # such as a line put beside itself: nothing is forged
            continue
        tried += 1
        path.write_bytes("".join(lines).encode())
        try:
            second.read(path)
        except second.Unreadable:
            noticed += 1
    assert noticed == tried
    assert tried > 0.95 * examples(FORGERIES)


def with_more(lines: list[dict[str, Any]], draw: np.random.Generator) -> list[dict[str, Any]]:
    """A plan of its own."""
    lines = [dict(one) for one in lines]
    party = next(one for one in lines if "party" in one)
    party["most"] = {law: most - int(draw.integers(1, 5)) for law, most in party["most"].items()}
    return lines


def mended(lines: list[dict[str, Any]], draw: np.random.Generator) -> list[dict[str, Any]]:
    """A receipt that is left out, and all after it counted anew."""
    at = int(draw.choice([at for at, one in enumerate(lines) if "of" in one]))
    lines, counts = lines[:at] + lines[at + 1 :], dict.fromkeys("abc", 0)
    for place, one in enumerate(lines):
        if "of" in one:
            counts[one["of"]] += 1
            lines[place] = {**one, "number": counts[one["of"]]}
    return lines


def renamed(lines: list[dict[str, Any]], draw: np.random.Generator) -> list[dict[str, Any]]:
    at = int(draw.choice([at for at, one in enumerate(lines) if "of" in one]))
    return [*lines[:at], {**lines[at], "time": lines[at]["time"] + 1e-9}, *lines[at + 1 :]]


@pytest.mark.parametrize("forge", [with_more, mended, renamed])
def test_who_makes_the_chain_anew_has_another_head(tmp_path: Path, forge: Callable[..., list[dict[str, Any]]]) -> None:
    chain, draw = written(), np.random.default_rng(3)
    for _ in range(20):
        forged = chained(forge(contents(chain), draw))
        assert forged.head.head != chain.head.head
        found = second.read(stored(tmp_path / "forged", forged.text) / "receipts.jsonl")
        assert found["end"] == forged.head._asdict()  # by itself it is a chain
    folder = stored(tmp_path / "forged", forged.text, card(chain.head, PROMISED))
    found = second.verify(folder)
    assert not found["follows"]
    assert "the guarantee is about other receipts" in found["wrong"]


def test_a_signed_head_is_that_of_its_key(tmp_path: Path) -> None:
    """Who makes the chain anew cannot sign it; who puts a key of his own has another key."""
    identity = pytest.importorskip("gossamer.keys.identity").Identity.of_seed(b"\x07" * 32)
    key = identity.public_key.raw.hex()
    chain = written(key=key, sign=lambda head: identity.sign(PURPOSE, head))
    assert read(tmp_path, chain.text)["signer"] == identity.public_key.fingerprint
    last = json.loads(chain.lines[-1])
    forged = chained(mended(contents(chain), np.random.default_rng(1)))
    signed = json.loads(forged.lines[-1]) | {"signature": last["signature"]}
    for text in (
        "".join([*forged.lines[:-1], json.dumps(signed) + "\n"]),
        "".join([*chain.lines[:-1], json.dumps(last | {"signature": "00" * 64}) + "\n"]),
        "".join([*chain.lines[:-1], json.dumps({name: last[name] for name in ("chain", "head", "releases")}) + "\n"]),
    ):
        with pytest.raises(second.Unreadable, match=r"InvalidSignature|KeyError"):
            read(tmp_path, text)


# What follows


def verdict(folder: Path, chain: Written, **changed: Any) -> str:
    said = card(chain.head, PROMISED)
    said["guarantees"][0] |= changed
    found = second.verify(stored(folder, chain.text, said))
    assert found["follows"] == (found["guarantees"][0]["verdict"] in ("follows", "promises nothing"))
    return str(found["guarantees"][0]["verdict"])


def test_a_guarantee_follows_from_the_plan_and_not_from_what_was_made_of_it(tmp_path: Path) -> None:
    """Half of the plan was released; that a run ended early is no reason to promise less than the plan."""
    chain = written()
    half = epsilon(dict.fromkeys(KINDS, RELEASES // 2), 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE).epsilon
    assert verdict(tmp_path / "a", chain) == "follows"
    assert verdict(tmp_path / "a", chain, epsilon=PROMISED * 1.5) == "follows"
    assert verdict(tmp_path / "a", chain, epsilon=half).startswith("does not follow: epsilon is ")
    assert verdict(tmp_path / "a", chain, epsilon=PROMISED * 0.998).startswith("does not follow: epsilon is ")
    assert verdict(tmp_path / "a", chain, epsilon=0.0).startswith("does not follow: epsilon is ")
    assert verdict(tmp_path / "a", chain, mu=0.1).startswith("does not follow: mu is ")
    assert verdict(tmp_path / "a", chain, mu=0.0).startswith("does not follow: mu is ")
    assert verdict(tmp_path / "a", chain, neighboring_relation="replace_one").startswith("does not follow")
    clients = {"observer": plan.EVERYBODY, "unit": CLIENT, "rows_per_person": None}
    assert verdict(tmp_path / "a", chain, **clients).startswith("not verified: a has no plan")
    assert verdict(tmp_path / "a", chain, rows_per_person=3).startswith("not verified: ")
    persons = "person with at most 3 examples, all at one node"
    assert verdict(tmp_path / "a", chain, rows_per_person=3, unit=persons).startswith("does not follow: epsilon is ")
    nothing = dict.fromkeys(("epsilon", "delta", "mu"))
    assert verdict(tmp_path / "a", chain, privacy="none", **nothing) == "promises nothing"


def test_more_releases_than_planned_are_said(tmp_path: Path) -> None:
    lines = contents(written())
    plan = next(number for number, one in enumerate(lines) if "party" in one)
    lines[plan]["party"] = ["a", "c"]
    lines.insert(plan, {**lines[plan], "party": "b", "most": {"0": 1, "1": RELEASES}})
    forged = chained(lines)
    found = second.verify(stored(tmp_path / "a", forged.text, card(forged.head, 100.0)))
    assert not found["follows"]
    assert found["wrong"][0].startswith("b releases more than it planned, at line ")


@pytest.mark.parametrize("most", [-3, 2.5, True, "7", None])
def test_plans_are_whole_numbers(tmp_path: Path, most: Any) -> None:
    """A negative one would take from another law's releases."""
    lines = contents(written())
    next(one for one in lines if "party" in one)["most"] = {"0": most, "1": RELEASES}
    with pytest.raises(second.Unreadable, match="line 4: Unreadable: expected"):
        read(tmp_path, chained(lines).text)


@pytest.mark.parametrize("again", [{"party": "a", "unit": EXAMPLE, "observer": OTHER_NODES, "most": {"0": 9999}}])
def test_plans_are_made_once_and_before(tmp_path: Path, again: dict[str, Any]) -> None:
    lines = contents(written())
    for place in (len(lines), 4):
        with pytest.raises(second.Unreadable):
            read(tmp_path, chained([*lines[:place], again, *lines[place:]]).text)


def test_a_sampled_law_is_no_stream_of_records(tmp_path: Path) -> None:
    """A stream's records are one release together; what says so of sampled releases is not believed."""
    lines = contents(written())
    for one in lines:
        if isinstance(one.get("law"), dict):
            one["law"]["records"] = RELEASES
    forged = chained(lines)
    found = second.verify(stored(tmp_path / "a", forged.text, card(forged.head, PROMISED)))
    assert found["guarantees"][0]["proved_epsilon"] == pytest.approx(PROMISED, rel=1e-3)


def test_what_is_not_proved_here_is_not_verified(tmp_path: Path) -> None:
    laplace = law(L2Laplace(1.0, 1.0, NeighboringRelation.ADD_OR_REMOVE_ONE))
    book = Book({"a": Samples({laplace: 2})}, "00" * 32)
    book.add("a", object(), Receipt(laplace, clip=1.0))
    chain = book.written()
    last, head = book.ended()
    found = second.verify(stored(tmp_path / "a", chain + last, card(head, 100.0)))
    assert found["guarantees"][0]["verdict"].startswith("not verified: nothing is proved here of  L2Laplace")
    assert not found["follows"]


def test_an_unknown_mechanism_is_not_verified(tmp_path: Path) -> None:
    lines = contents(written())
    lines[1]["law"]["mechanism"] = "Magic"
    forged = chained(lines)
    found = second.verify(stored(tmp_path / "a", forged.text, card(forged.head, 100.0)))
    assert found["guarantees"][0]["verdict"].startswith("not verified: nothing is proved here of  Magic")


def test_each_owner_in_a_curators_sums_is_counted(tmp_path: Path) -> None:
    kind = law(Gaussian(1.0, 2.0), 1.0)
    owners = ("x", "y", "z")
    book = Book({"server": Curator({kind: 2}, 3, owners, 1.0, "server")}, "00" * 32)
    for some in (owners, ("x",), ("x",)):
        book.add("server", object(), Receipt(kind, some, 1.0))
    chain = book.written()
    last, head = book.ended()
    assert [json.loads(line).get("owners") for line in chain.splitlines()[-3:]] == [None, ["x"], ["x"]]
    found = second.verify(stored(tmp_path / "a", chain + last, card(head, 100.0)))
    assert found["wrong"] == ["server releases more than it planned, at line 6"]


def test_a_secret_schedule_has_no_times() -> None:
    book = Book({"a": Samples({KINDS[0]: 1})}, "00" * 32, timed=False)
    book.add("a", object(), Receipt(KINDS[0], clip=1.0))
    assert json.loads(book.written().splitlines()[-1])["time"] is None


# The command, and what is not what it should be


def test_the_command_says_what_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = written()
    folder = stored(tmp_path / "a", chain.text, card(chain.head, PROMISED, mu=5.0))
    assert main(["verify", str(folder)]) == 0
    said = capsys.readouterr().out
    head = json.loads((folder / "guarantee.json").read_text())["receipts"]["head"]
    assert said.startswith(f"36 receipts, head {head}, unsigned")
    assert f"\nrun {'5e' * 32} with receipts of a, b, c\n" in said
    assert f"\nfollows: example of a node's shard, against {OTHER_NODES}\n  epsilon " in said
    assert said.endswith("\n")
    other = tmp_path / "promise.json"
    other.write_text(json.dumps(card(chain.head, 0.1)))
    assert main(["verify", str(folder), str(other), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["guarantees"][0]["proved_epsilon"] == pytest.approx(PROMISED, rel=1e-3)
    assert main(["verify", str(folder / "receipts.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["follows"] is None, "nothing was promised"


def newer(chain: Written) -> str:
    return chained([contents(chain)[0] | {"receipts": 4}, *contents(chain)[1:]]).text


BAD = {
    "empty": (lambda chain: "", "the chain has no end"),
    "no JSON": (lambda chain: "receipts\n", "line 1: JSONDecodeError"),
    "another file": (lambda chain: '{"virtual_seconds": 1}\n', "line 1: KeyError: 'receipts'"),
    "a list": (lambda chain: "[1]\n", "line 1: TypeError"),
    "deep": (lambda chain: "[" * 200_000, "line 1: RecursionError"),
    "a line less": (
        lambda chain: "".join(chain.lines[:7] + chain.lines[8:]),
        "line 8: Unreadable: the chain is broken before it",
    ),
    "no end": (lambda chain: "".join(chain.lines[:-1]), "the chain has no end"),
    "more after the end": (
        lambda chain: chain.text + chain.lines[-1],
        "line 42: Unreadable: the chain is broken before it",
    ),
    "newer": (newer, "line 1: Unreadable: expected receipts of format 3; get a newer verifier"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_a_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, said = BAD[name]
    chain = written()
    folder = stored(tmp_path / "a", make(chain), card(chain.head, PROMISED))
    assert main(["verify", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    named = f"{folder / 'receipts.jsonl'}: not receipts of a run: " if said.startswith("line ") else ""
    assert captured.err.startswith(f"gossamer verify: {named}{said}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"guarantees": [{}]}', '{"guarantees": 3}', "[" * 200_000])
def test_bad_guarantees_are_refused_in_a_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(tmp_path / "a", written().text)
    (folder / "guarantee.json").write_text(content)
    assert main(["verify", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("removed", "given", "said"),
    [
        ((), ["nothing"], "{0}/nothing: expected this file, found none; name the results folder of a run"),
        (
            ("receipts.jsonl",),
            ["a"],
            "{0}/a/receipts.jsonl: expected this file, found none; name the results folder of a",
        ),
        (
            ("guarantee.json",),
            ["a"],
            "{0}/a/guarantee.json: expected this file, found none; name the results folder of a",
        ),
        ((), ["a", "nothing"], "{0}/nothing: expected this file, found none; name the results folder of a run"),
        ((), ["a", "a"], "{0}/a: expected this file, found none; name the results folder of a run"),
    ],
)
def test_what_is_not_there_is_said_and_what_to_do(
    removed: tuple[str, ...], given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = written()
    folder = stored(tmp_path / "a", chain.text, card(chain.head, PROMISED))
    for name in removed:
        (folder / name).unlink()
    assert main(["verify", *(str(tmp_path / name) for name in given)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"gossamer verify: {said.format(tmp_path)}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"format": 3}, 2),
        ({"guarantees": []}, 2),
        ({"neighboring_relation": "foo"}, 2),
        ({"epsilon": None, "mu": None}, 1),
        ({"epsilon": None, "mu": 5.0}, 0),
    ],
)
def test_what_was_not_checked_does_not_follow(changed: dict[str, Any], code: int, tmp_path: Path) -> None:
    chain = written()
    promised = card(chain.head, PROMISED)
    for key, value in changed.items():
        (promised if key in promised else promised["guarantees"][0])[key] = value
    assert main(["verify", str(stored(tmp_path / "a", chain.text, promised))]) == code


def test_names_of_strangers_write_no_lines_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = written()
    promised = card(chain.head, PROMISED)
    promised["guarantees"][0]["observer"] = "all\nfollows: everything\x1b[2J"
    main(["verify", str(stored(tmp_path / "a", chain.text, promised))])
    said = capsys.readouterr().out
    assert "\nfollows: everything" not in said
    assert "\x1b" not in said


def test_the_file_alone_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert second.main([]) == second.main(["a", "b", "c"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
