"""Printing by commands: figures on stdout, everything else on stderr."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gossamer.errors import counted

if TYPE_CHECKING:  # these take long to import, and help needs none of them
    from gossamer.algorithms.plan import Plan, Words
    from gossamer.experiment.observing import Row
    from gossamer.experiment.progress import Watched


_LOG = logging.getLogger("gossamer.run")


def say(text: str = "") -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)


def advise(command: str) -> None:
    """Say which command comes next, to whoever sits at a terminal; a script knows."""
    if sys.stderr.isatty():
        say(f"Next: {command}")


def warn(remarks: Iterable[str]) -> None:
    """Print what people should know of a result, a line each."""
    for remark in remarks:
        say(f"gossamer: warning: {remark}")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from gossamer.files import to_json

    print(to_json(value, indent=2))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


_LINES = 20
"""About how many plain lines a run prints."""


def wrapped(text: str, most: int = 100) -> str:
    """``text`` with lines broken at the terminal's width, at most ``most``, and list items indented."""
    lines, width = [], min(most, shutil.get_terminal_size((most, 24)).columns)
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip(" -")))
        lines.append(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(lines)


class Lines:
    """Progress as plain lines."""

    def __init__(self) -> None:
        self.total = 0
        self.next_line = 0
        self.words: Words

    def planned(self, plan: Plan) -> None:
        self.total, self.words = plan.updates, plan.words
        _LOG.info("plan: %s", plan)
        for remark in plan.guarantee.remarks:
            _LOG.warning("%s", remark)
        if plan.words.estimates:
            say(plan.words.estimates)
        say(f"plan: {plan}")
        warn(plan.guarantee.remarks)

    def began(self, run: Watched) -> None:
        pass

    def remarked(self, line: str) -> None:
        say(line)

    def updated(self, updates: int) -> None:
        pass

    def looked(self, row: Row) -> None:
        _LOG.info("%s", self._so_far(row["updates"], row["virtual_seconds"], spent(row)))
        self.show(row)

    def show(self, row: Row) -> None:
        """Print an evaluation, unless there were enough lines, or the report is about to say the same."""
        made = row["updates"]
        if self.next_line <= made < self.total:
            self.next_line = made + max(1, self.total // _LINES)
            when = f"{counted(made, self.words.made, form='>8')}  {row['virtual_seconds']:>10.1f} virtual s"
            say(f"{when}  {describe_row(row, self.words)}")

    def _so_far(self, made: int, seconds: float, more: str = "") -> str:
        """Updates and time so far, for a log: what models score is for people here."""
        return f"{counted(made, self.words.made)} in {seconds:.1f} virtual seconds{more}"

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Say in the log that the run is over."""
        _LOG.info("ended (%s): %s", summary["status"], self._so_far(summary["updates"], summary["virtual_seconds"]))

    def close(self) -> None:
        """Take away what is shown of progress alone."""


def describe_row(row: Row, words: Words) -> str:
    """The figures of an evaluation, in brief: of the run's model, if somebody has it, and of parties' own."""
    name = score(row)
    own = f"{words.party}s {figure(row, f'test_{name}')}"
    if name == "accuracy":
        own = f"{own} (worst {figure(row, 'worst_node_test_accuracy')})"
    shared = f"{words.model} {figure(row, f'mean_model_test_{name}')}, " if words.shared else ""
    return f"{name}: {shared}{own}{spent(row)}{_diverged(row)}"


def score(row: Row) -> str:
    """Name of the figure that models are judged by."""
    return "accuracy" if "mean_model_test_accuracy" in row else "loss"


def figure(figures: Mapping[str, Any], key: str, missing: str = "nan") -> str:
    """A figure in words: accuracies to a thousandth, others to four digits; ``missing`` where it is no number."""
    value = figures[key]
    return missing if value is None else f"{value:.3f}" if key.endswith("accuracy") else f"{value:.4g}"


def spent(row: Row) -> str:
    """Words on epsilon so far; none where there is none."""
    from gossamer.privacy.guarantees import rounded_up

    spent = row["epsilon_so_far"]
    return "" if spent is None else f"; epsilon spent {rounded_up(spent)}"


def _diverged(row: Row) -> str:
    return "; some models are no longer finite: lower the learning rate" if row["test_loss"] is None else ""
