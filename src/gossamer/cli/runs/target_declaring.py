"""The range of a regression's target, as flags or answers say it: without one a private run learns next to nothing."""

from __future__ import annotations

from typing import Any

from gossamer.cli.runs.declaring import Declaring, flag, texts_in
from gossamer.errors import CallerError


def take_target(found: Declaring, target: str) -> Any:
    """Take out of what was ``found`` what flags declare of the target; None if nothing."""
    return found.columns.pop(target, None)


def check_target(target: str, declared: Any, labels: list[str | int] | None) -> None:
    """Refuse what was ``declared`` of a target of another kind.

    Raises
    ------
    CallerError
        If it has classes, or is said to be no number.
    """
    if declared is None:
        return
    if labels:
        raise CallerError(f"{target} is the target's column, and has classes; declare nothing else of it")
    if declared == "boolean" or texts_in(declared):
        raise CallerError(
            f"{target} is the target's column, a number with --regression; declare its range: "
            f"{flag('range', target, 'LOW..HIGH')}"
        )


def lacking_range(target: str) -> str:
    """Say that the target's range is lacking, as a piece of an error."""
    return f"{target} has no range ({flag('range', target, 'LOW..HIGH')}: from where to where targets mostly lie)"
