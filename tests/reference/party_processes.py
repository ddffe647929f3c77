"""Parties in processes of their own, as their administrators start them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack

LONG = 120.0


def started(options: Iterable[str]) -> subprocess.Popen[str]:
    """Start ``gossamer node`` with these options."""
    command = [sys.executable, "-m", "gossamer", "node", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def all_ended(start: Callable[[str], subprocess.Popen[str]], names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Start a process for each name; exit codes and outputs, once all have ended."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(start(name)) for name in names}
        stack.callback(lambda: [process.kill() for process in processes.values()])
        said = {name: process.communicate(timeout=LONG)[0] for name, process in processes.items()}
        return {name: (processes[name].returncode, text) for name, text in said.items()}
