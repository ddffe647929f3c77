"""Chains of receipts as runs write them, in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer.privacy.guarantees import OTHER_NODES
from gossamer.privacy.mechanisms import Gaussian, Mechanism, Poisson, ReleaseKind
from gossamer.protocol.witnesses import following
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import Samples, SidePlan
from gossamer.sides.receipts import Book, Chain, Head, link

KINDS = [ReleaseKind(Gaussian(1.0, multiplier), Poisson(0.1), 5) for multiplier in (2.0, 3.0)]
RELEASES = 12


class Gradient:
    """Stands for a task, of which a book says the kind."""


class Written(NamedTuple):
    """A chain, its lines, and its head."""

    lines: list[str]
    head: Head

    @property
    def text(self) -> str:
        return "".join(self.lines)


def written(
    seed: int = 0,
    run: str = "5e" * 32,
    plans: Mapping[str, SidePlan] | None = None,
    key: str | None = None,
    sign: Callable[[bytes], bytes] | None = None,
) -> Written:
    """The chain of a run of three parties, whose releases come in an order of their own."""
    plans = plans or {name: Samples(dict.fromkeys(KINDS, RELEASES)) for name in ("a", "b", "c")}
    book, draw, time = Book(plans, run, key=key), np.random.default_rng(seed), 0.0
    book.clock = lambda: time
    left = [(name, kind) for name in plans for kind in KINDS for _ in range(RELEASES // 2)]
    for place in draw.permutation(len(left)):
        time = round(time + float(draw.exponential()), 9)
        name, kind = left[place]
        book.add(name, Gradient(), Receipt(kind, clip=float(draw.choice([0.5, 1.0]))))
    lines = book.written().splitlines(keepends=True)
    last, head = book.ended(sign)
    return Written([*lines, last], head)


def chained(contents: list[dict[str, Any]]) -> Written:
    """A chain of other contents, with links and a head that fit: by somebody who knows how chains are made."""
    chain, lines = Chain(), []
    for content in contents:
        lines.append(chain.line(json.dumps({key: value for key, value in content.items() if key != "chain"})[1:]))
    who = [(one["of"], one.get("count", 1)) for one in contents if "of" in one]
    releases = sum(count * (1 if isinstance(of, str) else len(of)) for of, count in who)
    head = Head(releases, chain.state.hex())
    return Written([*lines, chain.of(head._asdict())], head)


def contents(chain: Written) -> list[dict[str, Any]]:
    """What lines say, but for the last."""
    return [json.loads(line) for line in chain.lines[:-1]]


def card(head: Head, epsilon: float, delta: float = 1e-5, mu: float | None = None) -> dict[str, Any]:
    """A guarantee as `guarantee.json` has it, as far as it is read."""
    entry = {
        "run": "5e" * 32,
        "party": None,
        "unit": "example of a node's shard",
        "neighboring_relation": "add_or_remove_one",
        "observer": OTHER_NODES,
        "epsilon": epsilon,
        "delta": delta,
        "mu": mu,
        "rows_per_person": 1,
    }
    return {"format": 2, "guarantees": [entry], "receipts": head._asdict()}


Sign = Callable[[bytes], bytes]


def named(text: str, guarantee: dict[str, Any], sign: Sign | None = None) -> str:
    """The chain with a line more, which names the guarantee, and an end that fits; and the guarantee has that end.

    So does whoever writes a guarantee to receipts without a signature, or has the key.
    """
    *lines, _ = text.splitlines(keepends=True)
    chain, said = Chain(), {name: value for name, value in guarantee.items() if name != "receipts"}
    for line in lines:
        chain.state = following(chain.state, link(line))
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    lines.append(chain.of({"guarantee": digest}))
    end: dict[str, Any] = Head(sum('"of": ' in line for line in lines), chain.state.hex())._asdict()
    end |= {} if sign is None else {"signature": sign(chain.state).hex()}
    guarantee["receipts"] = end
    return "".join([*lines, chain.of(end)])


def stored(folder: Path, text: str, guarantee: Mapping[str, Any] | None = None, sign: Sign | None = None) -> Path:
    """A results folder with receipts, and a guarantee if there is one, which they name if it has their end."""
    folder.mkdir(exist_ok=True)
    lines = text.splitlines()
    if guarantee and lines and all(f'"{key}": {json.dumps(value)}' in lines[-1] for key, value in _end(guarantee)):
        text = named(text, (guarantee := dict(guarantee)), sign)
    (folder / "receipts.jsonl").write_bytes(text.encode())
    if guarantee is not None:
        (folder / "guarantee.json").write_text(json.dumps(guarantee))
    return folder


def _end(guarantee: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list((guarantee.get("receipts") or {"head": None}).items())


def law(mechanism: Mechanism, probability: float = 0.1) -> ReleaseKind:
    return ReleaseKind(mechanism, Poisson(probability), 5)
