"""Progress in a terminal: what is drawn, in how much room, and what is left of it."""

from __future__ import annotations

import io
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli import printing
from gossamer.cli.live import Display, Terminal, chosen
from gossamer.cli.logs import progress
from gossamer.cli.printing import PlainProgress
from gossamer.experiment.runs.trackers import Party

SPEC: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 30},
    "budget": {"epsilon": 5, "delta": 1e-4},
}
AGE = {"algorithm": {"name": "audp", "nodes": 4, "updates_per_node": 30}}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def display(width: int = 100, height: int = 24) -> tuple[Display, io.StringIO]:
    file = io.StringIO()
    size = {"width": width, "height": height}
    return Display(Terminal(file=file, force_terminal=True, color_system=None, **size)), file  # type: ignore[arg-type]


def ran(spec: dict[str, Any], width: int = 100, height: int = 24) -> list[list[str]]:
    """Lines of each drawing of a run that draws at every update."""
    shown, _ = display(width, height)
    drawings = []

    def draw() -> None:
        if shown._run is not None:
            paper = Terminal(file=io.StringIO(), color_system=None, width=width, height=height)
            paper.print(shown.drawn())
            drawings.append(paper.file.getvalue().splitlines())  # type: ignore[attr-defined]

    shown._draw = draw  # type: ignore[method-assign]
    try:
        gs.run(spec, progress=shown)
    finally:
        shown.close()
    return drawings


def test_the_whole_run_its_figures_and_its_nodes_are_shown() -> None:
    whole, figures, *nodes = ran(SPEC)[-1]
    assert whole.startswith("100%")
    assert "120 of 120 updates" in whole
    assert re.fullmatch(r"accuracy 0\.\d+, worst node 0\.\d+, epsilon spent (\S+) of (\S+)", figures.rstrip())
    assert [line.split()[0] for line in nodes] == ["node-0", "node-1", "node-2", "node-3"]
    assert all("30 of 30" in line for line in nodes)


def test_epsilon_spent_never_passes_what_is_planned() -> None:
    shown = [re.search(r"spent (\S+) of (\S+)", drawing[1]) for drawing in ran(SPEC)]
    pairs = [(float(found[1]), float(found[2])) for found in shown if found is not None]
    assert len(pairs) > 10
    assert pairs == sorted(pairs)
    assert all(spent <= planned <= 5 for spent, planned in pairs)


def test_staleness_is_shown_where_there_is_some() -> None:
    assert "staleness" in ran({**SPEC, **AGE})[-1][1]
    assert "staleness" not in ran(SPEC)[-1][1]


def test_time_left_is_said_between_start_and_end() -> None:
    drawings = ran(SPEC)
    assert "left" not in drawings[-1][0]
    assert any(re.match(r" *\d+%, \d+:\d\d left", drawing[0]) for drawing in drawings)


@pytest.mark.some(2)
@pytest.mark.parametrize(("width", "height"), [(20, 24), (40, 8), (1, 1), (300, 3)])
def test_a_small_terminal_has_no_line_too_many_or_too_long(width: int, height: int) -> None:
    many = {**SPEC, "algorithm": {**SPEC["algorithm"], "nodes": 30, "updates_per_node": 4}}
    for drawing in ran(many, width, height)[::10]:
        assert max(map(len, drawing)) <= max(1, width - 3)  # ^C fits behind the last
        assert len(drawing) <= max(2, height)


def parties(*shares: int) -> list[Party]:
    return [Party(f"n{number}", share, 100, "") for number, share in enumerate(shares)]


def test_of_many_nodes_those_behind_and_those_ahead_are_shown() -> None:
    many = parties(*range(20))
    assert chosen(many, 10) == [*many[:6], 11, *many[17:]]
    assert chosen(many[:10], 10) == many[:10]
    assert chosen(many, 3) == [many[0], 18, many[19]]
    assert chosen(many, 2) == [many[0], 19]
    assert chosen(many, 1) == []


def test_the_display_goes_when_it_is_closed_and_the_cursor_is_never_hidden() -> None:
    shown, file = display()
    gs.run(SPEC, progress=shown)
    shown.close()
    shown.close()
    text = file.getvalue()
    assert "120 of 120" in text
    assert "\x1b[?25l" not in text
    assert ESCAPES.sub("", text.rpartition("\x1b[2K")[2]).strip() == ""


def test_lines_that_are_printed_meanwhile_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, file = display(width=60)
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: printing.say(f"gossamer: {message}"))

    def warned(*_: Any) -> dict[str, float]:
        printing.say("[bold]a line[/bold]")
        return {}

    gs.run(SPEC, progress=shown, measure=warned)
    shown.close()
    assert "[bold]a line[/bold]\n" in ESCAPES.sub("", file.getvalue()).replace("\r", "")


def test_an_interrupt_leaves_no_display(tmp_path: Path) -> None:
    shown, file = display()
    looks = []

    def interrupted(*_: Any) -> dict[str, float]:
        looks.append(1)
        if len(looks) == 5:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        gs.run(SPEC, progress=shown, measure=interrupted)
    shown.close()
    assert ESCAPES.sub("", file.getvalue().rpartition("\x1b[2K")[2]).strip() == ""


def test_names_direct_no_terminal() -> None:
    shown, file = display()
    from gossamer.cli.live import _nodes

    shown._console.print(*_nodes([Party("a\x1b[2Jb[red]", 1, 2, "gone")]))
    assert "\x1b[2J" not in file.getvalue()
    assert "[red]" in file.getvalue()


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "kind", "lines", "expected"),
    [
        (True, "xterm-256color", False, Display),
        (True, "xterm-256color", True, PlainProgress),
        (True, "dumb", False, PlainProgress),
        (False, "xterm-256color", False, PlainProgress),
    ],
)
def test_elsewhere_there_are_plain_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, kind: str, lines: bool, expected: type[PlainProgress]
) -> None:
    monkeypatch.setattr(sys, "stderr", Tty() if terminal else io.StringIO())
    monkeypatch.setenv("TERM", kind)
    assert type(progress(lines=lines)) is expected
