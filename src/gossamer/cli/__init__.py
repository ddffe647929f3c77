"""The command ``gossamer``."""

from gossamer.cli.main import main as main
