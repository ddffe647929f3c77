"""Optional packages: the line that installs those of an extra, in the environment that is running."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError
from gossamer.version import DISTRIBUTION

_OURS = re.compile(rf"{DISTRIBUTION}\[(.+?)\]")


def require(package: str, who: str, extra: str, kind: type[CallerError] = CallerError) -> Any:
    """Return a package that can be imported, and refuse with the line that installs it where it cannot.

    Parameters
    ----------
    package : str
        Name that it is imported by.
    who : str
        Name of who needs it, with the verb, such as ``a federation needs``.
    extra : str
        Name of the extra that has it.
    kind : type
        Class of the error.

    Raises
    ------
    CallerError
        If it is not installed.
    """
    whole = package.partition(".")[0]
    try:
        return import_module(package)
    except ModuleNotFoundError as missing:
        if missing.name not in (package, whole):
            raise
        raise kind(f"{who} the optional package {whole}, which is not installed: {install_line(extra)}") from None


def install_line(extra: str) -> str:
    """Return the command that installs what an extra lacks.

    It names the packages themselves, and not Gossamer: that may have come from a clone, or as a file from an organiser,
    so that no index has it, or has somebody else's under its name. And it names this Python, since ``pip`` may be
    another's.

    Parameters
    ----------
    extra : str
        Name of the extra.
    """
    try:
        packages = _packages(extra, requires(DISTRIBUTION) or [])
    except PackageNotFoundError:  # a source tree on the path, of which nothing is known
        packages = [f"{Path(__file__).parents[2]}[{extra}]"]
    return " ".join([shlex.quote(sys.executable), "-m pip install", *(f'"{package}"' for package in packages)])


def installed_wheel() -> str | None:
    """SHA-256 of the wheel that Gossamer was installed from, as pip noted it; None where it was from no such file."""
    try:
        noted = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    found = noted.get("archive_info", {}).get("hashes", {}).get("sha256")
    return found if isinstance(found, str) else None


def _packages(extra: str, requirements: list[str]) -> list[str]:
    """Requirements of an extra, and of those that it is made of."""
    found = []
    for line in requirements:
        requirement, _, condition = line.partition(";")
        if not re.search(rf"""extra == ["']{re.escape(extra)}["']""", condition):
            continue
        if (others := _OURS.match(requirement)) is not None:
            found += [one for other in others[1].split(",") for one in _packages(other.strip(), requirements)]
        else:
            found.append(requirement.strip())
    return found
