"""Kills processes while they make, update and charge an owner's ledger, and looks at what they left. A program:

    python owned_data_kills.py FOLDER ROUNDS SEED

It starts no thread, so that its children can simply be forks. A child says on a pipe what it was told is durable. Every
other round starts in an empty folder, so that ledger and key are being made when the child is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from gossamer.deployment.owner.fingerprints import content_of, examples_at
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind

POLICY = "data: {wards: {epsilon: 1.0e+6, delta: 1.0e-5, order: 8, path: wards.csv}}\n"
KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
PLANNED = 4  # releases of a run
ONE = renyi_divergence(KIND, 8.0, NeighboringRelation.ADD_OR_REMOVE_ONE)
ROWS, NEW = 60, 7  # examples of a content, and how many of them the next one has not


def write_data(folder: Path, number: int) -> None:
    """Content ``number``; whole or not at all, as the file of a careful owner."""
    rows = (f"{row},{row % 5}" for row in range(number * NEW, number * NEW + ROWS))
    (folder / "new.csv").write_text("\n".join(["age,label", *rows]) + "\n")
    os.replace(folder / "new.csv", folder / "wards.csv")


def make(folder: Path) -> None:
    folder.mkdir()
    (folder / "policy.yaml").write_text(POLICY)
    write_data(folder, 0)


def load(folder: Path) -> None:
    """Load what an owner's first plan loads: children have a fraction of a second."""
    make(folder)
    data = opened(folder)
    data.update()
    data.check()
    data.ledger("run", "a", {KIND: PLANNED})
    data.close()


def opened(folder: Path) -> OwnedData:
    return OwnedData.open(read_policy(folder / "policy.yaml"))


def forever(folder: Path, say: int) -> None:
    """Runs and contents in turn, each letter after what it stands for is on disk."""
    data = opened(folder)
    if not data.file.contents.history("wards"):
        data.update()
        os.write(say, b"u")
    data.check()
    while True:
        number = len(data.file.contents.history("wards"))
        write_data(folder, number)
        data.update()
        os.write(say, b"u")
        ledger = data.ledger(f"run {len(data.file.runs('wards'))}", "a", {KIND: PLANNED})
        os.write(say, b"p")
        for _ in range(PLANNED):
            ledger.charge(KIND)
            os.write(say, b"c")


def killed(folder: Path, seconds: float) -> Counter[str]:
    """What a child said before it was killed."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        os.close(read)
        try:
            forever(folder, write)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(write)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status), "the child failed by itself"
    with os.fdopen(read, "rb") as pipe:
        return Counter(pipe.read().decode())


def found(folder: Path) -> Counter[str]:
    """What is there, as whole contents and whole plans."""
    data = opened(folder)
    history, runs = data.file.contents.history("wards"), data.file.runs("wards")
    # Every plan is charged in full, whatever of it was released.
    assert abs(data.file.spent("wards") - len(runs) * PLANNED * ONE) <= 1e-9 * (1 + len(runs))
    assert all(run.releases <= PLANNED for run in runs)
    for number, accepted in enumerate(history):
        expected = (ROWS, ROWS, 0) if number == 0 else (ROWS, NEW, NEW)
        assert (accepted.examples, accepted.added, accepted.gone) == expected, (number, accepted)
    if history:
        write_data(folder, len(history) - 1)
        assert history[-1].fingerprint == content_of(examples_at(folder / "wards.csv"), data._key).fingerprint
        data.check()
    data.close()
    return Counter({"u": len(history), "p": len(runs), "c": sum(run.releases for run in runs)})


def main(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    instants, totals = random.Random(seed), Counter[str]()
    young = unsaid = 0
    old, before = folder / "old", Counter[str]()
    load(folder / "first")
    for number in range(rounds):
        place = old if number % 2 else folder / f"new {number}"
        if not place.exists():
            make(place)
        known = before if place == old else Counter[str]()
        said = killed(place, instants.uniform(0.0, 0.25 if place == old else 0.1))
        if not (place / "policy.ledger.key").exists():
            young += 1
        after = found(place)
        for letter in "upc":
            extra = after[letter] - known[letter] - said[letter]
            assert 0 <= extra <= 1, (number, letter, known, said, after)
            unsaid += extra
        if place == old:
            before = after
        totals.update(said)
    return {**totals, "young": young, "unsaid": unsaid}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
