"""Options of commands that serve a page of what they do: ``--live``, ``--live-port``."""

from __future__ import annotations

import argparse

from gossamer.cli.option_values import port


def add_live(command: argparse.ArgumentParser, what: str) -> None:
    """Add the options to a command, which shows ``what``."""
    command.add_argument(
        "--live", action="store_true", help=f"show {what} to a browser on this machine while it goes on"
    )
    command.add_argument(
        "--live-port", type=port, metavar="PORT", help="the same, at PORT instead of a port that is free"
    )


def asks_for_page(options: argparse.Namespace) -> bool:
    """Whether a page is asked for."""
    return options.live or options.live_port is not None
