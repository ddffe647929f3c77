"""The bar below a run's lines in a terminal: what it says, in how much room, and what is left of it."""

from __future__ import annotations

import io
import re
import sys
from itertools import count
from os import terminal_size
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli import printing
from gossamer.cli.logs import progress
from gossamer.experiment.runs import trackers

SPEC: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 30},
    "budget": {"epsilon": 5, "delta": 1e-4},
}


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def opened(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """A terminal, in which every update is drawn."""
    found, clock = Tty(), count()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(trackers.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setenv("TERM", "xterm")
    return found


def seen(text: str) -> list[str]:
    """Lines that a terminal shows in the end."""
    lines = [""]
    for part in re.split(r"(\n|\r\x1b\[K|\r)", text):
        if part == "\n":
            lines.append("")
            place = 0
        elif part == "\r\x1b[K":
            lines[-1], place = "", 0
        elif part == "\r":
            place = 0
        elif part:
            lines[-1] = lines[-1][:place] + part + lines[-1][place + len(part) :] if lines[-1] else part
            place += len(part)
    return [line.rstrip() for line in lines]


def test_it_says_how_far_the_run_is_what_came_of_it_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    gs.run(SPEC, progress=progress())
    first, *_, last = found = [part.rstrip() for part in terminal.getvalue().split("\r") if "% [" in part]
    assert first == f"  0% [{'':20}] 0 updates"
    assert any(re.fullmatch(r" 50% \[={10} {10}\] 60 updates, accuracy 0\.\d+, 0:0\d:\d\d left", bar) for bar in found)
    assert last.startswith(f"100% [{'=' * 20}] 120 updates")


def test_nothing_is_left_of_it_and_lines_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)

    def warned(*_: Any) -> dict[str, float]:
        printing.say("a line")
        return {}

    shown = progress()
    gs.run(SPEC, progress=shown, measure=warned)
    shown.close()
    shown.close()
    lines = seen(terminal.getvalue())
    assert lines[-1] == ""
    assert "a line" in lines
    assert not any("% [" in line for line in lines)


def test_what_a_tracker_prints_has_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told of an evaluation may print, and so may a tracker at the end."""
    terminal = opened(monkeypatch)
    told = trackers.Told(lambda figures, made: print("told"), lambda whole: print("ended"))
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda folder, plan: told)  # type: ignore[arg-type]
    gs.run(SPEC, progress=trackers.ProgressLine(), track="tensorboard")
    lines = seen(terminal.getvalue())
    assert {"told", "ended"} <= set(lines)
    assert not any("% [" in line for line in lines[:-1])


def test_an_interrupt_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)

    def interrupted(*_: Any) -> dict[str, float]:
        if "60 updates" in terminal.getvalue():
            terminal.write("^C")  # as a terminal does
            raise KeyboardInterrupt
        return {}

    shown = progress()
    with pytest.raises(KeyboardInterrupt):
        gs.run(SPEC, progress=shown, measure=interrupted)
    shown.close()
    assert seen(terminal.getvalue())[-1] == ""


@pytest.mark.parametrize("width", [1, 20, 40])
def test_a_small_terminal_has_it_on_one_line(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    gs.run(SPEC, progress=trackers.ProgressLine())
    assert max(len(part) for part in terminal.getvalue().split("\r")) < max(width, 3)


@pytest.mark.parametrize(
    ("there", "kind", "lines", "expected"),
    [
        (True, "xterm-256color", False, True),
        (True, "xterm-256color", True, False),
        (True, "dumb", False, False),
        (False, "xterm-256color", False, False),
    ],
)
def test_elsewhere_there_are_plain_lines(
    monkeypatch: pytest.MonkeyPatch, there: bool, kind: str, lines: bool, expected: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", Tty() if there else io.StringIO())
    monkeypatch.setenv("TERM", kind)
    assert (progress(lines=lines).bar is not None) == expected


def test_it_fits_the_terminal_where_standard_output_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(Tty):
        def fileno(self) -> int:
            return 2

    found = Narrow()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(trackers.os, "get_terminal_size", lambda place: terminal_size((30 if place == 2 else 90, 24)))
    gs.run(SPEC, progress=trackers.ProgressLine())
    assert "% [" in found.getvalue()
    assert max(len(part) for part in found.getvalue().split("\r")) < 30


def test_a_run_that_goes_on_says_what_is_left_by_what_it_does_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 50 % to 60 % in 10 s: 40 s are left, whatever the half before took."""
    terminal, shown, share = opened(monkeypatch), trackers.ProgressLine(), [0.5]
    clock = iter([0.0, 0.0, 10.0])
    monkeypatch.setattr(trackers.time, "perf_counter", lambda: next(clock))
    shown.began(type("Run", (), {"share": property(lambda self: share[0])})())  # type: ignore[arg-type]
    share[0] = 0.6
    shown.updated(60)
    bars = [part.rstrip() for part in terminal.getvalue().split("\r") if "% [" in part]
    assert [bar.rpartition("] ")[2] for bar in (bars[0], bars[-1])] == ["0 updates", "60 updates, 0:00:40 left"]
