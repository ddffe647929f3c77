"""A federation's invitations and certificates issued again, and written as the command writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.deployment.founding.founding import Founded, draft_again


def reissue(folder: str | Path, parties: dict[str, int], **options: Any) -> Founded:
    again = draft_again(folder, parties, **options)
    again.write(folder)
    return again
