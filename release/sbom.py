"""A list of all software in an environment, as CycloneDX: ``python release/sbom.py .venv build/sbom.json``.

cyclonedx-py names where a package was installed from, and for a checkout that is a folder of this machine. Such places
are left out: they say nothing to others, and name somebody's home.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--output-reproducible")


def without_places(found: Any) -> Any:
    """Return a document without references to files of this machine."""
    if isinstance(found, dict):
        return {key: without_places(value) for key, value in found.items()}
    if isinstance(found, list):
        return [
            without_places(one)
            for one in found
            if not (isinstance(one, dict) and str(one.get("url", "")).startswith("file:"))
        ]
    return found


def listed(environment: str) -> Any:
    """Return the list of an environment."""
    command = (sys.executable, "-m", "cyclonedx_py", "environment", environment, *OPTIONS)
    return without_places(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


if __name__ == "__main__":
    environment, out = sys.argv[1], Path(sys.argv[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(listed(environment), indent=2) + "\n", encoding="utf-8")
    print(f"The list is in {out}")
