"""The attacks' own options are described: `test_docs` sees only the first level of commands."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from gossamer.cli.main import parser

COMMANDS = Path(__file__).resolve().parents[3] / "docs" / "commands.md"


def subcommands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in command._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


ATTACKS = subcommands(subcommands(parser())["attack"])


def described(text: str, heading: str) -> set[str]:
    _, _, rest = text.partition(f"\n## `{heading}`\n")
    rows = re.findall(r"^\| `([^` ]+)", rest.partition("\n## ")[0], re.MULTILINE)
    return set(rows)


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_option_of_an_attack_is_described(attack: str) -> None:
    actions = ATTACKS[attack]._actions
    options = {str((action.option_strings or [str(action.metavar)])[-1]) for action in actions} - {"--help"}
    assert described(COMMANDS.read_text(encoding="utf-8"), f"gossamer attack {attack}") == options


def test_every_attack_is_named() -> None:
    assert set(ATTACKS) == {"inversion", "membership", "audit"}
