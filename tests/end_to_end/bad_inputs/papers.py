"""Papers of a deployment: policies, ledgers, invitations, keys; and budgets that are spent."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tests.end_to_end.bad_inputs.case import Case, Make, accepted
from tests.end_to_end.bad_inputs.paths import a_folder, called, pipe

GOOD = "data: {wards: {epsilon: 4, delta: 1.0e-5}}\n"

POLICIES: tuple[tuple[str, str, str], ...] = (
    ("nothing", "", "policy.yaml"),
    ("a list", "[1]\n", "policy.yaml"),
    ("a number", "3\n", "policy.yaml"),
    ("no data", "smallest_sum: 3\n", "data"),
    ("data: a number", "data: 3\n", "line 1: data: expected keys with their values, found 3"),
    ("data: empty", "data: {}\n", "data"),
    ("a data set that is a number", "data: {wards: 3}\n", "data.wards: expected keys with their values"),
    ("no epsilon", "data: {wards: {delta: 1.0e-5}}\n", "data.wards.epsilon"),
    (
        "epsilon: 0",
        "data: {wards: {epsilon: 0, delta: 1.0e-5}}\n",
        "data.wards.epsilon: input should be greater than 0",
    ),
    ("epsilon: inf", "data: {wards: {epsilon: .inf, delta: 1.0e-5}}\n", "data.wards.epsilon"),
    ("epsilon: yes", "data: {wards: {epsilon: yes, delta: 1.0e-5}}\n", "data.wards.epsilon: input should be a number"),
    ("delta: 1", "data: {wards: {epsilon: 1, delta: 1}}\n", "data.wards.delta"),
    (
        "delta: 1.0e-300",
        "data: {wards: {epsilon: 1, delta: 1.0e-300}}\n",
        "is less than answers that are late may take",
    ),
    ("an unknown key", GOOD + "smallest_noise: 3\n", "unknown key smallest_noise"),
    ("an unknown key below", "data: {wards: {epsilon: 1, delta: 1.0e-5, deltta: 3}}\n", "deltta"),
    ("smallest_sum: true", GOOD + "smallest_sum: true\n", "line 2: smallest_sum"),
    ("smallest_sum: 0", GOOD + "smallest_sum: 0\n", "line 2: smallest_sum: input should be greater than or equal to 1"),
    ("trust_own_server: 1", GOOD + "trust_own_server: 1\n", "line 2: trust_own_server"),
    ("organisers: a text", GOOD + "organisers: x\n", "line 2: organisers"),
    ("organisers: no fingerprints", GOOD + "organisers: [abc]\n", "line 2: organisers"),
    ("algorithms: a text", GOOD + "algorithms: gossip\n", "line 2: algorithms"),
    ("peers: a number", GOOD + "peers: 3\n", "line 2: peers"),
    ("a path that is a number", "data: {wards: {epsilon: 1, delta: 1.0e-5, path: 3}}\n", "data.wards.path"),
    ("ledger: a list", GOOD + "ledger: [x]\n", "line 2: ledger"),
    (
        "a NUL byte in a path",
        'data: {wards: {epsilon: 1, delta: 1.0e-5, path: "a\\0b"}}\nledger: "a\\0b"\n',
        "policy.yaml",
    ),
)
"""Policies that ``gossamer data show`` is called with."""


def _foreign_database(folder: Path) -> None:
    """A database of somebody else's in the place of a ledger."""
    with sqlite3.connect(folder / "policy.ledger") as database:
        database.execute("CREATE TABLE letters (words TEXT)")
    database.close()


LEDGERS: tuple[tuple[str, dict[str, str | bytes], Make | None], ...] = (
    ("no database", {"policy.ledger": "nothing of the kind\n" * 100}, None),
    ("cut off", {"policy.ledger": b"SQLite format 3\0" + b"\x10\0\1\1\0" + bytes(20)}, None),
    ("of somebody else's", {}, _foreign_database),
    ("a folder", {}, called(a_folder, "policy.ledger")),
    ("a pipe", {}, called(pipe, "policy.ledger")),
)

BROKERS = (
    ("no federation", "federation/node-0 --out hub", "federation/node-0: no federation, for it has no federation.yaml"),
    ("without TLS", "federation --out hub", "has no TLS, without which a broker cannot tell federations apart"),
    ("a folder that exists", "federation --out federation", "federation: exists and is not an empty folder"),
    ("a folder that is no broker's", "federation --join federation", "federation: no shared broker"),
    ("a key in the place of a federation", "federation/node-0/identity.key --out hub", "expected an invitation"),
)
"""Folders that ``gossamer federation broker`` is called with."""

NODE = "node --invitation federation/node-0/invitation.yaml --quiet --connect-timeout 0.1"
"""Starts a party of a federation whose broker is not there."""
OWN = f"{NODE} --data federation/node-0/data.npz --policy federation/node-0/policy.yaml"


def _changed(name: str, old: str, new: str) -> Make:
    """A paper that somebody changed."""

    def make(folder: Path) -> None:
        path = folder / "federation" / "node-0" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return make


def _written(name: str, content: bytes) -> Make:
    """A paper in whose place there is something else."""

    def make(folder: Path) -> None:
        path = folder / "federation" / "node-0" / name
        mode = path.stat().st_mode & 0o777
        path.write_bytes(content)
        path.chmod(mode)

    return make


def _cut(name: str, size: int) -> Make:
    return lambda folder: os.truncate(folder / "federation" / "node-0" / name, size)


def _poor(folder: Path) -> None:
    """A policy that allows next to nothing."""
    path = folder / "federation" / "node-0" / "policy.yaml"
    path.write_text(re.sub(r"epsilon: [0-9.]+", "epsilon: 0.5", re.sub(r"\n +order: .*", "", path.read_text())))


def _spent(folder: Path) -> None:
    """Data of which other runs have spent nearly everything."""
    from gossamer.deployment.owner.owned_data import OwnedData
    from gossamer.deployment.owner.policy import read_policy
    from gossamer.errors import BudgetSpent
    from gossamer.privacy.mechanisms import Gaussian, Poisson, ReleaseKind

    place = folder / "federation" / "node-0"
    one = {ReleaseKind(Gaussian(1.0, 1.0), Poisson(1.0), 1): 1}
    with closing(OwnedData.open(read_policy(place / "policy.yaml"), "node-0", place / "data.npz")) as data:
        data.check()
        with suppress(BudgetSpent):
            for number in range(1000):
                data.ledger(f"{number:032x}", "node-0", one)


def _opened(name: str) -> Make:
    """A key that others may read."""
    return lambda folder: (folder / "federation" / "node-0" / name).chmod(0o644)


def _gone(name: str) -> Make:
    return lambda folder: (folder / "federation" / "node-0" / name).unlink()


INVITATIONS: tuple[tuple[str, Make, str], ...] = (
    (
        "an invitation that was changed",
        _changed("invitation.yaml", "updates_per_node: 20", "updates_per_node: 30"),
        "it was changed after the organiser signed it",
    ),
    ("an invitation that is cut off", _cut("invitation.yaml", 500), "expected the keys of an invitation"),
    ("an empty invitation", _cut("invitation.yaml", 0), "expected an invitation in YAML, found something else"),
    ("an invitation of bytes", _written("invitation.yaml", bytes(range(256))), "expected an invitation in YAML"),
    (
        "an invitation of aliases",
        _written("invitation.yaml", b"format: &a '1'\nrun: *a\n"),
        "expected an invitation in YAML",
    ),
    (
        "an invitation of brackets",
        _written("invitation.yaml", b"format: " + b"[" * 20_000),
        "expected an invitation in YAML",
    ),
    (
        "an invitation of a megabyte",
        _written("invitation.yaml", b"#" * (1 << 20)),
        "it has 1 MiB, expected at most 256 KiB",
    ),
    ("an invitation of another format", _written("invitation.yaml", b"format: '99'\n"), "it is of format 99"),
    (
        "an invitation with a key twice",
        _written("invitation.yaml", b"format: '1'\nformat: '1'\n"),
        "expected an invitation in YAML",
    ),
    ("no invitation", _gone("invitation.yaml"), "cannot read the invitation: No such file or directory"),
    ("no key", _gone("identity.key"), "identity.key"),
    ("a key of bytes", _written("identity.key", bytes(range(256))), "identity.key"),
    ("an empty key", _cut("identity.key", 0), "identity.key"),
    ("a key of a megabyte", _written("identity.key", b"x" * (1 << 20)), "expected a key of at most 4096 bytes"),
    ("a key that others may read", _opened("identity.key"), "others may use this key"),
    ("no data", _gone("data.npz"), "data.npz"),
    ("data that are cut off", _cut("data.npz", 500), "expected an NPZ archive"),
    ("no policy", _gone("policy.yaml"), "policy.yaml: cannot be read: No such file or directory"),
    ("a policy of brackets", _written("policy.yaml", b"data: " + b"[" * 20_000), "it is nested too deeply"),
)

KIND = "paper"
CASES: tuple[Case, ...] = (
    *(
        Case(f"policy with {name}", KIND, "data show policy.yaml", says, {"policy.yaml": text})
        for name, text, says in POLICIES
    ),
    *(
        Case(
            f"ledger: {name}",
            KIND,
            "data show policy.yaml",
            "policy.ledger",
            {"policy.yaml": GOOD, **files},
            *([make] if make else []),
        )
        for name, files, make in LEDGERS
    ),
    *(
        Case(f"node: {name}", KIND, OWN, says, make=make, of="federation", leaves="federation/node-0/state")
        for name, make, says in INVITATIONS
    ),
    Case("node: another organiser", KIND, f"{OWN} --organiser {'0' * 64}", "organiser", of="federation"),
    Case("node: no policy given", KIND, NODE, "policy", of="federation"),
    Case("node: no such name", KIND, f"{OWN} --data-name beds", "beds", of="federation"),
    Case(
        "show: a key in the place of an invitation",
        KIND,
        "federation show federation/node-0/identity.key",
        "identity.key",
        of="federation",
    ),
    *(
        Case(f"broker: {name}", KIND, f"federation broker {words}", says, of="federation")
        for name, words, says in BROKERS
    ),
    accepted(
        Case("policy with CRLF", KIND, "data show policy.yaml", "", {"policy.yaml": GOOD.replace("\n", "\r\n")}),
        "lines end so on Windows",
    ),
    accepted(
        Case(
            "policy with a mark of the byte order", KIND, "data show policy.yaml", "", {"policy.yaml": "\ufeff" + GOOD}
        ),
        "editors on Windows write one",
    ),
    Case(
        "a budget that is too small",
        "budget",
        OWN,
        "the run asks for epsilon",
        make=_poor,
        of="federation",
    ),
    Case(
        "a budget that is spent",
        "budget",
        OWN,
        "release refused: data set 'node-0' has spent",
        make=_spent,
        of="federation",
        leaves="federation/node-0/",
        code=3,
    ),
)
