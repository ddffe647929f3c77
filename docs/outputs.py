"""Renew what the pages show of commands: run them, and write the numbers that come out into the pages.

    python docs/outputs.py                 every page
    python docs/outputs.py quickstart ...  those whose names have one of these words

Words stay as they are on the page, and `...` stands for any words; if other words come out, the page is named and left
alone, for a person to look at. Every page has noise of its own secret, the same each time, so a page is renewed only if
something has changed. `tests/unit/test_docs.py` holds the pages to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from gossamer.cli import main
from gossamer.experiment.preparation import prepare

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
TOLERANCE = 0.01
"""Of numbers that are no integers: other machines round otherwise. Integers are exact."""
DEMO = {"make demo": "gossamer run examples/digits-gossip.yaml --out runs/demo --overwrite"}
ELSEWHERE = {
    "docs/how-to/federation.md": "tests/end_to_end/test_federation_page.py runs it",
    "docs/how-to/monitoring.md": "needs the parties of a federation",
    "docs/how-to/overview.md": "needs the parties of a federation",
    "docs/how-to/own-loop.md": "tests/unit/loops/test_own_loop_page.py runs it",
    "docs/how-to/peers.md": "measures a speed",
    "docs/how-to/policy.md": "tests/end_to_end/test_owned_data_command.py runs it",
    "docs/how-to/run-a-node.md": "needs the parties of a federation",
}
"""Pages whose commands are not run here, and why."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages() -> list[Path]:
    """Return the pages whose commands are run."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text(encoding="utf-8")) and name_of(page) not in ELSEWHERE]


# Comparing

Equal = Callable[[str, str], bool]


def same(expected: str, found: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two words are the same but for the rounding of numbers; ``11.3...`` stands for all that go on so."""
    cut = expected.endswith("...") and expected != "..."
    if cut:
        expected, found = expected[:-3], found[: len(expected) - 3]
    words = NUMBER.sub("0", expected) == NUMBER.sub("0", found)
    return words and all(_close(a, b, tolerance) for a, b in zip(NUMBER.findall(expected), NUMBER.findall(found)))


def _close(expected: str, found: str, tolerance: float) -> bool:
    if expected.isdigit() and found.isdigit():
        return int(expected) == int(found) or tolerance >= 1
    last = 10.0 ** -len(expected.partition("e")[0].partition(".")[2])  # a unit of the last digit that is shown
    if "e" in expected:
        last *= 10.0 ** int(expected.partition("e")[2])
    gap = abs(float(expected) - float(found))
    return gap <= max(tolerance * abs(float(expected)), last)


def alike(expected: str, found: str) -> bool:
    """Whether two words are the same but for their numbers, whatever these are."""
    return same(expected, found, float("inf"))


def aligned(expected: Sequence[str], found: Sequence[str], equal: Equal = same) -> list[int | None] | None:
    """Return for each expected word the place of its like, None for ``...``, or None if they are not the same."""
    parts = _parts(expected)
    if len(parts) == 1:
        return [*range(len(found))] if _equal(expected, found, equal) else None
    places: list[int | None] = []
    start = 0
    for number, part in enumerate(parts):
        last = len(found) - len(part)
        tried = range(start, last + 1)
        if number == 0:
            tried = range(1)
        elif number == len(parts) - 1:
            tried = range(last, last + 1) if last >= start else range(0)
        place = next((at for at in tried if _equal(part, found[at : at + len(part)], equal)), None)
        if place is None:
            return None
        start = place + len(part)
        places += [*([None] if number else []), *range(place, start)]
    return places


def _parts(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "...":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _equal(expected: Sequence[str], found: Sequence[str], equal: Equal) -> bool:
    return len(expected) == len(found) and all(map(equal, expected, found))


def matches(expected: str, found: str) -> bool:
    """Whether a page shows what a command printed."""
    return aligned(expected.split(), found.split()) is not None


def renewed(expected: str, found: str) -> str | None:
    """Return what a page shows with the numbers of what was printed; None if the words are others."""
    words = found.split()
    places = aligned(expected.split(), words, alike)
    if places is None:
        return None
    text, end = "", 0
    for place, match in zip(places, re.finditer(r"\S+", expected)):
        text += expected[end : match.start()]
        end = match.end()
        word = match[0] if place is None or same(match[0], words[place], 0.0) else words[place]
        if match[0].endswith("...") and place is not None:
            word = match[0] if same(match[0], words[place], 0.0) else f"{words[place][: len(match[0]) - 3]}..."
        gap = re.match(r" {2,}", expected[end:])
        text += word
        if gap and len(word) != len(match[0]):  # columns of a table stay where they are
            end += len(gap[0])
            text += " " * max(2, len(gap[0]) + len(match[0]) - len(word))
    return text + expected[end:]


# Running


def conversations(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a page's ``console`` blocks, and what follows it."""
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@contextlib.contextmanager
def workplace(page: Path) -> Iterator[Path]:
    """Work in an empty folder beside the examples, with noise of the page's own secret."""
    drawn = iter(range(10**6))

    def token_bytes(size: int) -> bytes:
        return hashlib.blake2b(f"{name_of(page)} {next(drawn)}".encode(), digest_size=size).digest()

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(prepare, "token_bytes", token_bytes):
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def said(command: str) -> str:
    """Return what a command prints, errors and warnings first."""
    program, *arguments = shlex.split(DEMO.get(command, command))
    if program != "gossamer":
        raise ValueError(f"expected a command of gossamer, found {command}")
    out, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(signal, "signal"),
        warnings.catch_warnings(),
    ):
        main(arguments)
    # A machine that is busy has commands say that they are still at it, which pages do not show.
    return re.sub(r"^still .*\n", "", errors.getvalue(), flags=re.MULTILINE) + out.getvalue()


def written(page: Path) -> tuple[str, list[str]]:
    """Return a page with new numbers, and the commands of which other words come out."""
    text = page.read_text(encoding="utf-8")
    others = []
    with workplace(page):
        for command, output in conversations(text):
            found = said(command)
            new = renewed(output, found)
            if new is None:
                others.append(f"{name_of(page)}: $ {command}\n{found}")
            elif output:
                text = text.replace(f"$ {command}\n{output}", f"$ {command}\n{new}")
    return text, others


def renew(words: Sequence[str]) -> int:
    """Renew pages; the exit code is 1 if a person has to look at some."""
    chosen = [page for page in pages() if not words or any(word in name_of(page) for word in words)]
    problems = []
    for page in chosen:
        text, others = written(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"renewed {name_of(page)}")
        problems += others
    for problem in problems:
        print(f"other words come out: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(renew(sys.argv[1:]))
