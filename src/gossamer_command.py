"""``gossamer``, as its script calls it: an interrupt is heard from here on, before the package itself is imported.

Only the script imports this. Its first moments are Python's own start, in which Python answers Ctrl-C with a traceback.
"""

import os
import signal
from types import FrameType


def main() -> int:
    """Run the command."""
    from gossamer.__main__ import main as command

    return command()


def _leave(signum: int, frame: FrameType | None) -> None:
    os.write(2, b"gossamer: interrupted\n")
    os._exit(130)


for _number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(_number, _leave)
