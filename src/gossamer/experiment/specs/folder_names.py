"""Names of settings in names of folders: they tell runs of one spec apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,32}")
"""Keys and values that stand in a name as they are; others as the first digits of their SHA-256."""
_LONGEST = 120  # characters that settings may take; a name of a file may have 255
_DIGITS = 8


def setting_name(given: Mapping[str, str | None]) -> str:
    """Settings by key, such as ``algorithm.batch_size=8,algorithm.nodes=4``, in a form that a folder may be called.

    Where they are too long for that it is their number and a digest. A key without a value stands alone.
    """
    pairs = sorted(given.items())
    said = [_plain(key) + ("" if value is None else f"={_plain(value)}") for key, value in pairs]
    if sum(len(part) + 1 for part in said) <= _LONGEST:
        return ",".join(said)
    return f"{len(pairs)}-settings-{_digest(repr(pairs))}"


def _plain(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else f"sha-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:_DIGITS]


def default_folder(spec: Path, kind: str, seed: int | None, settings: Sequence[str]) -> Path:
    """The folder for the results of a spec, such as ``runs/digits-gossip-seed0,algorithm.batch_size=8``.

    Parameters
    ----------
    spec : Path
        The file.
    kind : str
        Word between the spec's name and the seed, such as ``up``; may be empty.
    seed : int or None
        Seed of the run; None where the folder is for runs of several.
    settings : sequence of str
        Overrides, as ``--set`` takes them, of which the last one of a key counts, and names of other options. Their
        order does not count.
    """
    parts = (setting.partition("=") for setting in settings)
    given = {key.strip(): value.strip() if equals else None for key, equals, value in parts}
    given.pop("seed", None)
    name = "-".join(part for part in (spec.stem, kind, "" if seed is None else f"seed{seed}") if part)
    said = setting_name(given)
    return Path("runs") / (f"{name},{said}" if said else name)
