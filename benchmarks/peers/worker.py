"""A process in the environment of one library, asked by the driver a line at a time.

    python -m peers.worker ENVIRONMENT

Reads JSON lines from standard input and answers each with one on standard output; whatever libraries print goes to
standard error.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import traceback
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from peers.jobs import Job
from peers.measured import Asked, Measured


class Worker:
    """Ways of one environment."""

    def __init__(self, environment: str) -> None:
        self._module = import_module(f"peers.{environment}_ways")
        self._prepared: dict[str, Measured] = {}

    def versions(self) -> dict[str, str]:
        """Of Python and of the packages that count."""
        found = {name: metadata.version(name) for name in self._module.PACKAGES}
        return {"python": platform.python_version(), **found}

    def prepare(self, way: str, job: dict[str, Any], data: str, seed: int, cache: str) -> dict[str, Any]:
        """Make a job ready in a way."""
        asked = Asked(Job(**job), Path(data), seed, Path(cache))
        measured = self._prepared[way] = self._module.WAYS[asked.job.kind, way](asked)
        return {"difference": measured.difference}

    def block(self, way: str, number: int) -> list[float]:
        """Time a block."""
        return list(self._prepared[way].block(number))

    def finish(self) -> None:
        """Forget the job."""
        self._prepared.clear()


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(worker, request.pop("ask"))(**request)}
        except Exception as problem:
            traceback.print_exc()
            answer = {"problem": f"{type(problem).__name__}: {' '.join(str(problem).split())}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
