"""Known vulnerabilities of the pinned packages, by pip-audit: ``python release/audit.py constraints.txt``.

pip-audit says "No known vulnerabilities found" also of packages that it could look up nowhere. So its answer is read:
what was not looked up is counted and said, and where that is everything the audit was skipped, which is no success.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

COMMAND = (sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off")

SKIPPED = 3
"""Exit status of an audit that looked nothing up, unless it is allowed to."""


class Audit(NamedTuple):
    """Outcome of an audit: what to print, and the exit status."""

    lines: list[str]
    status: int


def read(answer: dict[str, Any] | None, error: str) -> Audit:
    """Return what an answer of pip-audit says; None is no answer, and ``error`` is what it printed then."""
    if answer is None:
        words = error.strip().splitlines() or ["no answer"]
        return Audit([f"audit skipped: pip-audit gave no answer, perhaps without a network: {words[-1]}"], SKIPPED)
    packages = answer["dependencies"]
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        return Audit(
            [f"audit skipped: none of {len(packages)} packages could be looked up, as without a network"], SKIPPED
        )
    found = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'none'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    looked = f"{len(packages) - len(unknown)} packages looked up, {len(found)} known vulnerabilities"
    said = [f"not looked up: {', '.join(unknown)}"] if unknown else []
    return Audit([*found, looked, *said], bool(found))


def audit(pins: Path) -> Audit:
    """Have pip-audit look up every pin of a file."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "audit.json"
        ran = subprocess.run(
            (*COMMAND, "--format", "json", "--output", str(out), "--requirement", str(pins)),
            capture_output=True,
            text=True,
        )
        return read(json.loads(out.read_text(encoding="utf-8")) if out.exists() else None, ran.stderr)


if __name__ == "__main__":
    found = audit(Path(sys.argv[1]))
    print("\n".join(found.lines))
    sys.exit(0 if found.status == SKIPPED and "--may-skip" in sys.argv else found.status)
