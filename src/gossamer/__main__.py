"""``python -m gossamer``, and ``gossamer`` after `gossamer_command`."""

import logging
import sys

from gossamer.interrupts import leave_at_once


def main() -> int:
    """Run the command; interrupts are heard before anything slow is imported."""
    leave_at_once()
    waits = logging.getLogger("gossamer.waits")  # lines before somebody has to wait for long
    waits.addHandler(logging.StreamHandler())
    waits.setLevel(logging.INFO)
    waits.propagate = False
    from gossamer.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
