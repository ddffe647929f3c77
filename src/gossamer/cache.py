"""The folder of what can be made again: derived data and machine code, in the user's own cache."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder of all that Gossamer keeps between runs: ``gossamer`` in XDG_CACHE_HOME, or in ``~/.cache``.

    Whatever is in it may be deleted at any time; a run makes again what it needs.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
