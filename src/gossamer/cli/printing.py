"""Printing by commands: figures on stdout, everything else on stderr."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # these take long to import, and help needs none of them
    from tqdm import tqdm

    from gossamer.algorithms.plan import Plan
    from gossamer.experiment.observing import Row


def say(text: str = "") -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)


def warn(remarks: Iterable[str]) -> None:
    """Print what people should know of a result, a line each."""
    for remark in remarks:
        say(f"gossamer: warning: {remark}")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from gossamer.experiment.results import to_json

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

    def planned(self, plan: Plan) -> None:
        self.total = plan.updates
        if plan.estimates is not None:
            say(str(plan.estimates))
        say(f"plan: {plan}")
        warn(plan.guarantee.remarks)
        if self.terminal:
            from tqdm import tqdm

            self.bar = tqdm(total=plan.updates, unit="update", file=sys.stderr, dynamic_ncols=True, leave=True)

    def updated(self, updates: int) -> None:
        if self.bar is not None and updates != self.updates:
            self.bar.update(updates - self.updates)
        self.updates = updates

    def looked(self, row: Row) -> None:
        text = describe_row(row)
        if self.bar is not None:
            self.bar.set_postfix_str(text)
        elif row["updates"] >= self.next_line:
            self.next_line = row["updates"] + self.total // _LINES
            say(f"{row['updates']:>8} updates  {row['virtual_seconds']:>10.1f} virtual s  {text}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.total = self.updates  # what was under way at the end counts as planned, not as made
            self.bar.close()


def describe_row(row: Row) -> str:
    """The figures of an evaluation, in brief."""
    from gossamer.privacy.guarantees import rounded_up

    spent = row["epsilon_so_far"]
    privacy = "" if spent is None else f"; epsilon so far {rounded_up(spent, 3)}"
    if "mean_model_test_accuracy" in row:
        return (
            f"accuracy: mean model {row['mean_model_test_accuracy']:.3f}, "
            f"nodes {row['test_accuracy']:.3f} (worst {row['worst_node_test_accuracy']:.3f}){privacy}{_diverged(row)}"
        )
    mean, nodes = (math.nan if row[key] is None else row[key] for key in ("mean_model_test_loss", "test_loss"))
    return f"loss: mean model {mean:.4g}, nodes {nodes:.4g}{privacy}{_diverged(row)}"


def _diverged(row: Row) -> str:
    return "; some models are no longer finite: lower the learning rate" if row["test_loss"] is None else ""
