"""Kills processes while they charge an owner's ledger from a loop, and looks at what they left. A program:

    python own_loop_kills.py FOLDER ROUNDS SEED

A child says on a pipe, a byte each, what it was told is charged. Whatever it was told has to be in the ledger when the
next one opens that, and at most one charge more, or one lot of charges ahead.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import gossamer as gs

POLICY = "data: {wards: {epsilon: 20, delta: 1.0e-5, path: wards.csv}}\n"
PLAN = gs.Releases(100_000, noise_multiplier=200.0)


def opened(folder: Path, ahead: int) -> gs.LoopLedger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.RunWarning)
        return gs.LoopLedger(folder / "policy.yaml", "loop", PLAN, ahead=ahead)


def charge(folder: Path, ahead: int, told: int) -> None:
    """A child's life: it ends when it is killed."""
    with opened(folder, ahead) as ledger:
        os.write(told, b"o")
        while True:
            ledger.charge(200.0)
            os.write(told, b"c")


def killed(folder: Path, ahead: int, seconds: float) -> int:
    """Charges that a child was told of before it was killed so long after it had opened the ledger."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        charge(folder, ahead, writing)
    os.close(writing)
    os.read(reading, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = b""
    while piece := os.read(reading, 1 << 16):
        said += piece
    os.close(reading)
    return said.count(b"c")


def main(folder: Path, rounds: int, seed: int) -> None:
    draw = random.Random(seed)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "wards.csv").write_text("age,label\n" + "".join(f"{row},{row % 5}\n" for row in range(60)))
    with opened(folder, 1) as ledger:
        before = ledger.releases
    assert before == 0
    found = {"told": 0, "lost": 0}
    for number in range(rounds):
        ahead = 1 if number % 2 else 7
        told = killed(folder, ahead, draw.expovariate(1 / 0.05))
        with opened(folder, 1) as ledger:
            now = ledger.releases
            if number == rounds - 1:
                ledger.write(folder / "out")
        assert before + told <= now <= before + told + ahead, (before, told, now, ahead)
        found["told"] += told
        found["lost"] += now - before - told
        before = now
    print(json.dumps({**found, "charged": before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
