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
    from tqdm import tqdm

    from gossamer.algorithms.plan import Plan
    from gossamer.algorithms.words import Words
    from gossamer.experiment.observing import Row


_LOG = logging.getLogger("gossamer.run")


def say(text: str = "") -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)


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


class Bar:
    """A progress bar in a terminal, and plain lines elsewhere."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.bar: tqdm[Any] | None = None
        self.updates = 0
        self.total = 0
        self.next_line = 0
        self.words: Words

    def planned(self, plan: Plan) -> None:
        self.total, self.words = plan.updates, plan.words
        _LOG.info("plan: %s", plan)
        for remark in plan.guarantee.remarks:
            _LOG.warning("%s", remark)
        if plan.estimates is not None:
            say(str(plan.estimates))
        say(f"plan: {plan}")
        warn(plan.guarantee.remarks)
        if self.terminal:
            from tqdm import tqdm

            self.bar = tqdm(total=plan.updates, unit=self.words.made, file=sys.stderr, dynamic_ncols=True, leave=True)

    def remarked(self, line: str) -> None:
        say(line)

    def updated(self, updates: int) -> None:
        if self.bar is not None and updates != self.updates:
            self.bar.update(updates - self.updates)
        self.updates = updates

    def looked(self, row: Row) -> None:
        made = row["updates"]
        _LOG.info("%s", self._progress(made, row["virtual_seconds"], _spent(row)))
        if self.bar is not None:
            self.bar.set_postfix_str(_brief(row, self.words))
        elif self.next_line <= made < self.total:  # where nothing is left to be made, the report says the same
            self.next_line = made + max(1, self.total // _LINES)
            when = f"{counted(made, self.words.made, form='>8')}  {row['virtual_seconds']:>10.1f} virtual s"
            say(f"{when}  {describe_row(row, self.words)}")

    def _progress(self, made: int, seconds: float, more: str = "") -> str:
        """Updates and time so far, for a log: what models score is for people here."""
        return f"{counted(made, self.words.made)} in {seconds:.1f} virtual seconds{more}"

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Say in the log that the run is over."""
        _LOG.info("ended (%s): %s", summary["status"], self._progress(summary["updates"], summary["virtual_seconds"]))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.total = self.updates  # what was under way at the end counts as planned, not as made
            self.bar.set_postfix_str("", refresh=False)  # the last figures are in the report
            self.bar.close()


def describe_row(row: Row, words: Words) -> str:
    """The figures of an evaluation, in brief: of the run's model, if somebody has it, and of parties' own."""
    name = _score(row)
    own = f"{words.party}s {figure(row, f'test_{name}')}"
    if name == "accuracy":
        own = f"{own} (worst {figure(row, 'worst_node_test_accuracy')})"
    shared = f"{words.model} {figure(row, f'mean_model_test_{name}')}, " if words.shared else ""
    return f"{name}: {shared}{own}{_spent(row)}{_diverged(row)}"


def _brief(row: Row, words: Words) -> str:
    """One figure of an evaluation, for the few columns that a bar leaves."""
    name = _score(row)
    return f"{name} {figure(row, f'mean_model_test_{name}' if words.shared else f'test_{name}')}{_spent(row)}"


def _score(row: Row) -> str:
    return "accuracy" if "mean_model_test_accuracy" in row else "loss"


def figure(figures: Mapping[str, Any], key: str, missing: str = "nan") -> str:
    """A figure in words: accuracies to a thousandth, others to four digits; ``missing`` where it is no number."""
    value = figures[key]
    return missing if value is None else f"{value:.3f}" if key.endswith("accuracy") else f"{value:.4g}"


def _spent(row: Row) -> str:
    from gossamer.privacy.guarantees import rounded_up

    spent = row["epsilon_so_far"]
    return "" if spent is None else f"; epsilon spent {rounded_up(spent)}"


def _diverged(row: Row) -> str:
    return "; some models are no longer finite: lower the learning rate" if row["test_loss"] is None else ""
