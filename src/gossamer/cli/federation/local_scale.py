"""The scale that parties of a federation on one machine have released for: combined, and handed to each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.founding.invitations import read_signed
from gossamer.deployment.founding.layout import ORGANISER_KEY, RECORD, SCALE
from gossamer.deployment.founding.scale_papers import content_of
from gossamer.deployment.party.agreement import Agreed, Terms
from gossamer.deployment.party.scaling import SUFFIX, combined
from gossamer.experiment.prepared import Prepared
from gossamer.files import write_own
from gossamer.keys.identity import Identity


def hand_round(prepared: Prepared, folder: Path, members: Iterable[str], start: Path | None) -> Mapping[str, float]:
    """The ranges that follow from the parties' releases; each member has the paper after this.

    Parameters
    ----------
    prepared : Prepared
        As a simulation of the same spec has it, before its scale is found.
    folder : Path
        Of the federation, with a folder for each party.
    members : iterable of str
        All parties.
    start : Path, optional
        The model that all start from, if there is one.
    """
    agreed = Agreed.on(Terms.of(read_signed(folder / RECORD), own_code(prepared.experiment), start))
    files = (folder / name / f"{name}{SUFFIX}" for name in prepared.names)
    contents = {str(path): content_of(path, "a party's release") for path in files}
    text, ranges = combined(agreed, contents, Identity.load(folder / ORGANISER_KEY))
    for name in members:
        write_own(folder / name / SCALE, text)
    return ranges
