"""What a fresh process imports: little, until something is asked for."""

from __future__ import annotations

import argparse
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

import gossamer
from gossamer.cli.commands import COMMANDS, CommandParser
from gossamer.cli.main import parser

HEAVY = (
    "amqtt",
    "cryptography",
    "dp_accounting",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "pydantic",
    "scipy",
    "torch",
)
LOADED = "import sys; print('loaded:', *sys.modules)"
RUN = "import gossamer; gossamer.run"


def output(program: str, *arguments: str) -> str:
    """What a fresh process prints."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def modules(program: str, *arguments: str) -> frozenset[str]:
    """Modules that a fresh process has imported once it has run a program; one process for all who ask."""
    last = output(f"{program}\n{LOADED}", *arguments).splitlines()[-1]
    assert last.startswith("loaded:")
    return frozenset(last.split()[1:])


def loaded(program: str, *arguments: str) -> set[str]:
    """Heavy packages among `modules`."""
    return modules(program, *arguments) & {*HEAVY}


def test_importing_gossamer_imports_nothing_heavy() -> None:
    assert loaded("import gossamer") == set()


def test_the_check_can_fail() -> None:
    assert loaded(RUN) >= {"numpy", "scipy", "pydantic"}


def test_who_watches_and_gives_orders_needs_no_algorithm() -> None:
    """Nor does a party that makes its key."""
    found = modules("import gossamer.cli.federation.overview, gossamer.deployment.founding.layout")
    assert not found & {"numba", "scipy", "torch"}
    assert not {name for name in found if name.startswith(("gossamer.algorithms.", "gossamer.experiment.preparation"))}


@pytest.mark.parametrize("module", ["scipy.signal", "scipy.stats", "torch"])
def test_running_an_experiment_does_not_need(module: str) -> None:
    assert module not in modules(RUN)


# Public names


def test_a_public_name_is_there() -> None:
    for name in gossamer.__all__:
        assert getattr(gossamer, name) is not None
        assert name in dir(gossamer)
        assert vars(gossamer)[name] is getattr(gossamer, name)  # and not looked for again


@cache
def everything() -> tuple[str, ...]:
    """What a process says that has imported all public names: those that are not there, and the types it decodes."""
    program = (
        "from gossamer import *; import gossamer; print(*(n for n in gossamer.__all__ if n not in globals()))\n"
        "from gossamer.protocol.encoding import _TYPES; print(*sorted(_TYPES))"
    )
    return tuple(output(program).splitlines())


def test_all_names_are_imported_with_a_star() -> None:
    missing, _ = everything()
    assert missing == ""


def test_public_values_can_be_pickled() -> None:
    budget = gossamer.Budget(epsilon=3, delta=1e-5)
    code = f"import pickle; print(repr(pickle.loads({pickle.dumps(budget)!r})))"
    assert output(code).strip() == repr(budget)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gossamer' has no attribute 'runs'; did you mean run\?$"):
        gossamer.runs  # type: ignore[attr-defined]  # noqa: B018


# What was stored or sent


def test_what_was_encoded_is_decoded_where_no_algorithm_was_imported() -> None:
    from gossamer.algorithms.allreduce.member import Enough
    from gossamer.protocol.encoding import encode

    sent = encode(Enough())
    program = f"from gossamer.protocol.encoding import decode; print(repr(decode({sent!r})))"
    assert output(program).strip() == repr(Enough())


def test_all_types_are_found_where_nothing_was_imported() -> None:
    """Those that `import gossamer` registered when it imported everything."""
    program = (
        "from gossamer.protocol import encoding\n"
        "try: encoding.decode(b'o\\x04none\\0\\0\\0\\0')\n"
        "except encoding.MalformedMessage as error: print(error)\n"
        "print(*sorted(encoding._TYPES))"
    )
    error, found = output(program).splitlines()
    assert error == "unknown type 'none'"
    _, listed = everything()
    assert found.split() == listed.split()


# The command

CALLED = """
import sys
from gossamer.cli import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    assert not left.code, left.code
"""
QUICK = sorted(COMMANDS.keys() - {"plan"})
"""Commands whose help needs nothing heavy; that one lists what algorithms offer."""


def test_the_commands_are_listed_without_anything_heavy() -> None:
    assert loaded(CALLED, "--help") == set()
    assert loaded(CALLED, "--version") == set()


@pytest.mark.parametrize("command", QUICK)
def test_help_of_a_command_needs_nothing_heavy(command: str) -> None:
    assert loaded(CALLED, command, "--help") == set()


def test_help_of_a_command_below_another_needs_nothing_heavy() -> None:
    assert loaded(CALLED, "attack", "audit", "--help") == set()


def modules_imported(*arguments: str) -> set[str]:
    """Modules of commands that a call imports."""
    known = {entry.module for entry in COMMANDS.values()} - {""}
    return {name.removeprefix("gossamer.cli.") for name in modules(CALLED, *arguments)} & known


def test_only_the_command_that_is_used_is_imported() -> None:
    assert modules_imported("--help") == set()
    assert modules_imported("status", "--help") == set()
    assert modules_imported("datasets", "--json") == {"data.known"}


def test_the_whole_parser_has_every_command_with_its_options() -> None:
    (action,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    assert list(action.choices) == list(COMMANDS)
    for name, below in action.choices.items():
        assert below.description, name
        assert below.late is None, name  # its arguments are there
        assert len(below._actions) > 1, name


def parsers(of: CommandParser) -> Iterator[CommandParser]:
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_help_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for one in parsers(parser()):
        assert [line for line in one.format_help().splitlines() if len(line) > 80] == [], one.prog


def test_help_says_defaults_in_one_way_and_what_is_needed_first() -> None:
    found = {one.prog.removeprefix("gossamer "): one.format_help() for one in parsers(parser())}
    for name, text in found.items():
        assert not re.search(r"\(default(?!:)|; default|^ *default:|[(]required", text, re.MULTILINE), name
    assert found["account"].startswith(
        "usage: gossamer account --noise-multiplier Z --sampling-rate Q --steps T\n       --delta D [options]\n"
    )
    assert found["node"].startswith("usage: gossamer node --invitation FILE [options] [COMMAND ...]\n")
    assert found["run"].startswith("usage: gossamer run [options] [SPEC]\n")
    needed = ("--gradient-sd", "--smoothness", "--loss-gap", "--staleness", "--batch-size", "--size", "--noise")
    first, rest = found["plan mapa"].split("\noptions:\n")
    assert all(f"\n  {flag} " in first.split("required:")[1] for flag in needed)
    assert not any(f"\n  {flag} " in rest for flag in needed)


def test_a_run_has_sixteen_options_at_most() -> None:
    (run,) = (one for one in parsers(parser()) if one.prog == "gossamer run")
    assert len(run._actions) <= 16  # -h and SPEC are among them
