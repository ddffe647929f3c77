"""The option with which a weak delta is taken, for commands that take a delta."""

from __future__ import annotations

import argparse

from gossamer.errors import CallerError


def add_accept_weak(command: argparse.ArgumentParser) -> None:
    """Add ``--accept-weak`` to a command that takes a delta."""
    command.add_argument("--accept-weak", action="store_true", help="take a delta above 0.01, which says little")


def check_delta(options: argparse.Namespace) -> None:
    """Raise CallerError where ``--delta`` is so large that it has to be asked for by name."""
    from gossamer.privacy.weakness import refused_delta

    if (problem := refused_delta(options.delta, options.accept_weak, "--accept-weak")) is not None:
        raise CallerError(f"--{problem}")
