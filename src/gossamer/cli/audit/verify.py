"""``gossamer verify``: what follows from receipts, by a second implementation that shares no code with the first."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from gossamer.cli.printing import answered, say

RECEIPTS, FILE = "receipts.jsonl", "evaluation.json"
_MOST = 5
"""Names of parties in a line."""


def verify_command(options: argparse.Namespace) -> int:
    """Print what follows."""
    from gossamer.verify.gossamer_verify import Unreadable, verify

    place: Path = options.results
    try:
        if missing := _missing(place, options.guarantee):
            raise Unreadable(missing)
        found = verify(place, options.guarantee)
        if place.is_dir() and (wrong := _other_evaluation(place, found["key"])):
            found |= {"wrong": [*found["wrong"], wrong], "follows": False}
    except Unreadable as why:
        receipts = place / RECEIPTS if place.is_dir() else place
        said = f"{receipts}: not receipts of a run: {why}" if str(why).startswith("line ") else str(why)
        say(_plain(f"gossamer verify: {said}"))
        return 2
    return answered(options, found, "\n".join(map(_plain, _lines(found))), int(found["follows"] is False))


def _missing(place: Path, guarantee: Path | None) -> str | None:
    """Return a line about a file that is to be read and is not there; None if all are."""
    wanted = [place / RECEIPTS, guarantee or place / "guarantee.json"] if place.is_dir() else [place, guarantee]
    if missing := [path for path in wanted if path is not None and (path.is_dir() or not path.exists())]:
        return (
            f"{missing[0]}: expected this file, found none; name the results folder of a run that has ended (of an "
            "agent whose server adds the noise, that server's), or a file with receipts, and its guarantee.json"
        )
    return None


def _other_evaluation(folder: Path, key: str | None) -> str | None:
    """Reason why released histograms are not those that the receipts end with; None if they are, or nobody signed."""
    last = (json.loads(line) for line in (folder / RECEIPTS).read_text("utf-8").splitlines()[-2:])
    digest, file = next((one["evaluation"] for one in last if "evaluation" in one), None), folder / FILE
    found = sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    if found == digest or key is digest is None:
        return None
    return f"{FILE} is not what was released by these receipts, or is missing; ask the party for its copy"


def _lines(found: dict[str, Any]) -> Iterator[str]:
    signed = "unsigned, so that whoever has the file can write another"
    if found["signer"] is not None:
        signed = f"signed by the key with fingerprint {found['signer']}"
    yield f"{found['releases']} receipts, head {found['head']}, {signed}"
    yield f"run {found['run']} with receipts of {_some(found['parties'])}"
    if found["signer"] is not None:
        yield f"receipts of other parties are not here: what follows is about {_some(found['parties'])} alone"
    yield from found["wrong"]
    if not found["guarantees"]:
        yield "no guarantee was given to check"
    for one in found["guarantees"]:
        yield f"{one['verdict']}: {one['unit']}, against {one['observer']}"
        for each in one["plans"]:
            figures = f"epsilon {each['epsilon']:.6g} at delta {one['delta']:g}, mu {each['mu']:.5g}"
            yield f"  {figures}, best guess {each['best_guess']:.4g}: {_some(each['parties'])}"
    if found["not_checked"]:
        yield f"not checked: {', '.join(found['not_checked'])}"


def _some(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_MOST])} and {more:,} others"


def _plain(line: str) -> str:
    """A line that strangers' names write nothing else into."""
    return repr(line)[1:-1]
