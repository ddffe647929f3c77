"""The options of attacks and audits are described: `test_docs` sees only the first level of commands."""

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


GROUPS = ("attack", "audit")
TABLES = {group: subcommands(subcommands(parser())[group]) for group in GROUPS}


def described(text: str, heading: str) -> set[str]:
    _, _, rest = text.partition(f"\n## `{heading}`\n")
    rows = re.findall(r"^\| `([^` ]+)", rest.partition("\n## ")[0], re.MULTILINE)
    return set(rows)


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in TABLES[group]])
def test_every_option_is_described(group: str, name: str) -> None:
    actions = TABLES[group][name]._actions
    options = {str((action.option_strings or [str(action.metavar)])[-1]) for action in actions} - {"--help"}
    assert described(COMMANDS.read_text(encoding="utf-8"), f"gossamer {group} {name}") == options


def test_every_attack_and_audit_is_named() -> None:
    assert set(TABLES["attack"]) == {"inversion", "membership", "audit"}
    assert set(TABLES["audit"]) == {"leak"}
