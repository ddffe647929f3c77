"""Printing by commands: figures on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import logging
import math
import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gossamer.errors import counted

if TYPE_CHECKING:
    from gossamer.algorithms.plan import Plan, Words
    from gossamer.experiment.results.observer import Row
    from gossamer.experiment.runs.trackers import ProgressLine, Watched
    from gossamer.objectives.score_words import Assessment
    from gossamer.privacy.guarantees import Guarantee


_LOG = logging.getLogger("gossamer.run")


def say(text: str = "") -> None:
    """A line for people, in the place of a bar that may stand there."""
    print(f"{_CLEAR if moving() else ''}{text}", file=sys.stderr, flush=True)


_CLEAR = "\r\x1b[K"


def moving() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


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


def answered(options: argparse.Namespace, document: Any, text: str, code: int = 0) -> int:
    """Print a command's answer, as a JSON document or in words, and return its exit code."""
    if options.json:
        print_json(document)
    else:
        print(text)
    return code


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def in_blocks(rows: Sequence[Sequence[str]], kept: int = 1) -> str:
    """Columns aligned to the left, below each other where they are wider than the terminal, after the first ones."""
    most = shutil.get_terminal_size((_PIPED, 24)).columns
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    blocks, taken = list[list[int]](), most
    for i, width in enumerate(widths[kept:], kept):
        if taken + 2 + width > most:
            blocks.append([*range(kept)])
            taken = sum(widths[:kept]) + 2 * (kept - 1)
        blocks[-1].append(i)
        taken += 2 + width
    return "\n\n".join(table([[row[n] for n in block] for row in rows]) for block in blocks)


_PIPED = 1_000
"""Width where there is no terminal: nothing is broken for programs."""


def judgement(scores: Assessment) -> str:
    """Tables of the figures that a run prints: of all test rows, and of groups of them."""
    from gossamer.objectives.score_words import table_of, table_of_groups

    groups = [in_blocks(table_of_groups(column, found)) for column, found in scores.get("groups", {}).items()]
    return "\n\n".join([table(table_of(scores, brief=True)), *groups])


_LINES = 20
"""About how many plain lines a run prints."""


def wrapped(text: str, most: int = 100) -> str:
    """``text`` with lines broken at the terminal's width, at most ``most``, and list items indented."""
    lines, width = [], min(most, shutil.get_terminal_size((most, 24)).columns)
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip(" -")))
        lines.append(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(lines)


class PlainProgress:
    """Progress as plain lines, and a bar below them if there is one."""

    def __init__(self, bar: ProgressLine | None = None) -> None:
        self.bar = bar
        self.total = 0
        self.next_line = 0
        self.words: Words

    def planned(self, plan: Plan) -> None:
        self.total, self.words = plan.updates, plan.words
        _LOG.info("plan: %s", plan)
        for remark in plan.guarantee.remarks:
            _LOG.warning("%s", remark)
        if plan.words.estimates:
            say(wrapped(plan.words.estimates))
        say(wrapped(f"plan: {plan}"))
        warn(plan.guarantee.remarks)

    def began(self, run: Watched) -> None:
        if self.bar is not None:
            self.bar.began(run)

    def remarked(self, line: str) -> None:
        say(line)

    def updated(self, updates: int) -> None:
        if self.bar is not None:
            self.bar.updated(updates)

    def looked(self, row: Row) -> None:
        _LOG.info("%s", self._so_far(row["updates"], row["virtual_seconds"], spent(row)))
        if self.bar is not None:
            self.bar.looked(row)
        made = row["updates"]
        # There may have been enough lines, or the report is about to say the same.
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
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()


def describe_row(row: Row, words: Words) -> str:
    """The figures of an evaluation, in brief: of the run's model, if somebody has it, and of parties' own."""
    name = score(row)
    own = f"{words.party}s {figure(row, f'test_{name}')}"
    if name == "accuracy":
        own = f"{own} (worst {figure(row, 'worst_node_test_accuracy')})"
    # Of two classes, of which accuracy may say nothing.
    area = "" if row.get("test_auroc") is None else f" (area under its ROC curve {row['test_auroc']:.3f})"
    shared = f"{words.model} {figure(row, f'mean_model_test_{name}')}{area}, " if words.shared else ""
    # Of models that nobody tests there is no loss either, but there is a distance.
    infinite = row["test_loss"] is None and row["consensus_distance"] is None
    diverged = "; some models are no longer finite: lower the learning rate" if infinite else ""
    return f"{name}: {shared}{own}{spent(row)}{diverged}"


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


_ABOVE = "what the first guarantee assumes as well"
_ROWS = 16
"""How many lines a report has on nodes."""


def guarantees(guarantee: Guarantee, by_observer: Mapping[str, Guarantee]) -> str:
    """State what is proved, and what is against observers against whom something else is.

    What the first one assumes is said once.
    """
    others = {one.observer: one for one in by_observer.values() if one.observer != guarantee.observer}
    stated = (guarantee.would_be or guarantee).assumptions
    texts = [str(guarantee), *(_elsewhere(one, stated).beside for one in others.values())]
    return "\n".join(wrapped(text) for text in texts)


def _elsewhere(guarantee: Guarantee, lines: Sequence[str]) -> Guarantee:
    """The guarantee with a hint in the place of assumptions that stand elsewhere."""
    if guarantee.would_be is not None:
        return replace(guarantee, would_be=_elsewhere(guarantee.would_be, lines))
    own = [line for line in guarantee.assumptions if line not in lines]
    return replace(guarantee, assumptions=(*own, _ABOVE)) if len(own) < len(guarantee.assumptions) else guarantee


def epsilon(value: float | None) -> str:
    """An epsilon for a table."""
    from gossamer.privacy.guarantees import rounded_up

    return "none" if value is None or math.isinf(value) else rounded_up(value)


def private_evaluation(found: Mapping[str, Any] | None) -> str:
    """Figures that parties have released of held-out examples: of all together, and of each."""
    from gossamer.objectives.released_scores import evaluation_lines

    if not found:
        return ""
    at = found["epsilon"]
    noise = "of which nothing is guaranteed" if at is None else f"with noise of epsilon {epsilon(at)}"
    return f"\n{wrapped(chr(10).join([*islice(evaluation_lines(found, noise), 1 + _EVALUATED)]))}\n"


_EVALUATED = 21  # lines of private figures


def node_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Figures of each node after its name: a line each; where there are many, one for all that have the same."""
    if len(rows) <= _ROWS:
        return table([header, *rows])
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *figures in rows:
        groups.setdefault(tuple(figures), []).append(name)
    lines = [(_named(names), *figures) for figures, names in groups.items()]
    left = sum(len(names) for names in list(groups.values())[_ROWS:])
    more = f"\n... and {left} more" if left else ""
    return table([header, *lines[:_ROWS]]) + more


def below(words: Words) -> str:
    """Words below the figures of nodes, if there are any."""
    return f"\n{wrapped(words.figures)}" if words.figures else ""


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {counted(len(names) - 1, 'other')}"


SECONDS = 5.0
"""Nothing is said about work that takes less, and then not more often."""


@contextmanager
def patience(doing: str, seconds: float = SECONDS) -> Iterator[Callable[[str], None]]:
    """Say on stderr every ``seconds`` what is being done, as long as the block runs.

    Parameters
    ----------
    doing : str
        Work that is done at first; the block gets a function that takes what is done from then on.
    seconds : float, optional
        Seconds between two lines, and before the first.
    """
    known, done = [doing], threading.Event()

    def tell() -> None:
        while not done.wait(seconds):
            say(f"still {known[0]}")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda text: known.__setitem__(0, text)
    finally:
        done.set()
        teller.join()
