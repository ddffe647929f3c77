"""Bundles: objects of a party's own folder, in one file, to be carried by hand to the folder of another party.

    pack(folder, run, "a", file)           all that lies there of a's, which is what nobody is known to have read
    take(folder, run, "b", file)           what in it is for b lies in b's folder, as if a had written it there

A bundle promises nothing: it may be lost, carried twice, or in another order, and each has all that the one before had
and nobody has answered. Whatever was changed in it the seals refuse, as they do on any network.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from gossamer.errors import CallerError, failing_as
from gossamer.files import replaced
from gossamer.protocol.transports import LARGEST_DATAGRAM, is_name, topic

OBJECT = re.compile(r"([0-9a-f]{16})-(\d{12})-([0-9a-f]{16})-(\d{12})", re.ASCII)
"""Form of an object's name: its process, its number, and of which process it was read up to which number."""


def for_others(path: str, flags: int) -> int:
    """Open a file for `open`, as its ``opener``: others may read it as the umask says, and no link is followed."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def pack(folder: Path, run: str, me: str, out: Path) -> Counter[str]:
    """Copy a party's objects into a new file; how many there are, by whom they are for.

    Raises
    ------
    CallerError
        If another file than a bundle would be lost.
    """
    if out.exists() and not (out.is_file() and zipfile.is_zipfile(out)):
        raise CallerError(f"expected a new file, or a bundle to write anew, found {out}; give another name")
    found, folder = Counter[str](), folder.resolve()
    with replaced(out) as file, zipfile.ZipFile(file, "w") as bundle:
        for path in sorted(folder.glob(f"{topic(run, '*', me)}/*-*")):
            to = path.parents[2].name
            # What a link leads to is none of the run's business. What is gone was read, and deleted by the node.
            if OBJECT.fullmatch(path.name) and to != me and path.is_file() and path.resolve() == path:
                with suppress(FileNotFoundError):
                    bundle.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
                    found[to] += 1
    return found


def take(folder: Path, run: str, me: str, bundle: Path) -> dict[str, int]:
    """Put what in a bundle is for a party into its folder, and forget there what its senders have deleted.

    Returns
    -------
    dict of str to int
        Numbers of objects that are ``new``, ``known``, since they lie there, ``not for us`` and ``no datagram``.

    Raises
    ------
    CallerError
        If it is no bundle, or is damaged, or has nothing for the party.
    """
    counts = dict.fromkeys(("new", "known", "not for us", "no datagram"), 0)
    least: dict[tuple[Path, str], str] = {}  # numbers, by sender's folder and process
    broken = (OSError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError)
    cannot = f"{bundle}: cannot be taken; mend that, or carry it again: "
    with failing_as(CallerError, cannot, of=broken), zipfile.ZipFile(bundle) as file:
        for item in file.infolist():
            where, _, name = item.filename.rpartition("/")
            above, _, sender = where.rpartition("/")
            form, path = OBJECT.fullmatch(name), folder / where / name
            if f"{above}/" != topic(run, me, "") or not is_name(sender) or sender == me:
                counts["not for us"] += 1
            elif form is None or item.compress_type or not 0 < item.file_size == item.compress_size <= LARGEST_DATAGRAM:
                counts["no datagram"] += 1
            else:
                process = path.parent, form[1]
                least[process] = min(form[2], least.get(process, form[2]))
                counts["known" if path.exists() else "new"] += 1
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with replaced(path, opener=for_others) as copy:
                        copy.write(file.read(item))
    if not least:
        raise CallerError(f"{bundle}: {counts['not for us']} objects, and none is for {me} of run {run}")
    for (place, of), number in least.items():
        for path in place.glob(f"{of}-*"):
            if path.name.split("-")[1] < number:
                path.unlink(missing_ok=True)
    return counts
