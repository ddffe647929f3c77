"""Records what must not change: run it on the code as it is before a move.

    python -m tests.oracle.record                        what is not recorded yet
    python -m tests.oracle.record --keep before          also keeps what was hashed, to compare it file by file
    python -m tests.oracle.record --replace WORLD ...    records worlds anew: only where bytes were meant to change
    python -m tests.oracle.record --replace inputs       the same for the text of what runs depend on
    python -m tests.oracle.record --replace all          everything: before a move, or on a new machine

A hash that is there is never replaced by itself: a move that changes bytes is undone, and the hash stays.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.oracle import machine
from tests.oracle.called import Hashes
from tests.oracle.inputs import TEXT, text
from tests.oracle.worlds import WORLDS

from gossamer.version import __version__

EXPECTED = Path(__file__).resolve().parent / "expected"


def expected(world: str) -> dict[str, Any]:
    """What was recorded of a world."""
    path = EXPECTED / f"{world}.json"
    if not path.exists():
        return {"version": __version__, "machine": machine.facts(), "cases": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def record(world: str, keep: Path | None, replace: bool) -> bool:
    """Record the cases of a world; whether all that was there is as it was."""
    document = expected(world)
    if replace:
        document = {"version": __version__, "machine": machine.facts(), "cases": {}}
    elif other := machine.differing(document["machine"]):
        sys.exit(f"{world} was recorded on a machine that differs: {other}")
    cases: dict[str, Hashes] = document["cases"]
    same = True
    for name, case in WORLDS[world].items():
        began = time.perf_counter()
        found = case(None if keep is None else keep / world / name)
        if name in cases and cases[name] != found:
            same = False
            print(f"{world}, {name}: differs in {', '.join(differences(cases[name], found))}")
            continue
        cases[name] = found
        print(f"{world}, {name}: {len(found)} hashes, {time.perf_counter() - began:.2f} s", flush=True)
    document["cases"] = {name: cases[name] for name in WORLDS[world]}
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{world}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return same


def record_inputs(replace: bool) -> bool:
    """Record the text of what runs depend on; whether it is as it was."""
    found = text()
    same = not TEXT.exists() or TEXT.read_text(encoding="utf-8") == found
    if same or replace:
        TEXT.write_text(found, encoding="utf-8")
        return True
    before = TEXT.read_text(encoding="utf-8").splitlines()
    print("\n".join(difflib.unified_diff(before, found.splitlines(), "recorded", "found", lineterm="")))
    return False


def differences(recorded: Hashes, found: Hashes) -> list[str]:
    """What is not as it was recorded."""
    return [what for what in {**recorded, **found} if recorded.get(what) != found.get(what)]


def main() -> int:
    """Record; 1 if something is not as it was."""
    parser = argparse.ArgumentParser(description="Record what must not change.")
    parser.add_argument("--keep", type=Path, help="a folder for what was hashed")
    everything = ["inputs", *WORLDS]
    parser.add_argument("--replace", nargs="*", choices=["all", *everything], default=[], help="worlds to record anew")
    parser.add_argument("--only", nargs="*", choices=everything, default=everything, help="worlds to record")
    options = parser.parse_args()
    anew = everything if "all" in options.replace else options.replace
    began = time.process_time()
    same = [record_inputs("inputs" in anew)] if "inputs" in options.only else []
    same += [record(world, options.keep, world in anew) for world in WORLDS if world in options.only]
    print(f"{time.process_time() - began:.0f} s of processor time")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
