"""The scale that parties of a federation on one machine find together: each in its own process, before they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.founding.invitations import read_signed
from gossamer.deployment.founding.layout import SCALE
from gossamer.deployment.founding.scale_papers import content_of
from gossamer.deployment.party.agreement import Agreed, Terms
from gossamer.deployment.party.scaling import SUFFIX, combined
from gossamer.errors import CallerError
from gossamer.experiment.private_scale import found_by_release, rescaled
from gossamer.files import write_own
from gossamer.keys.identity import Identity

if TYPE_CHECKING:
    from gossamer.cli.federation.local_federation import LocalFederation


def find_scale(federation: LocalFederation, say: Callable[[str], object]) -> None:
    """Have all parties release, combine that, and hand it round; nothing where the spec asks for none.

    Parameters
    ----------
    federation : LocalFederation
        Founded, and not started. Its data are scaled after this.
    say : callable
        Takes a line.

    Raises
    ------
    CallerError
        If a party does not release.
    """
    prepared, folder = federation.prepared, federation.folder
    if not found_by_release(prepared.dataset):
        return
    say("each party releases, once and with noise, how large the values of its columns are")
    for name in prepared.names:
        federation.begin(name, federation.scale_command(name))
    for name in prepared.names:
        federation.processes[name].join()
    for name in prepared.names:
        if federation.processes[name].exitcode:
            raise CallerError(f"{name}: {federation.last_line(name)}")
    federation.processes.clear()
    invitation = read_signed(folder / papers.RECORD, federation.organiser)
    agreed = Agreed.on(Terms.of(invitation, own_code(prepared.experiment), federation.start_file))
    files = {name: folder / name / f"{name}{SUFFIX}" for name in prepared.names}
    contents = {str(path): content_of(path, "a party's release") for path in files.values()}
    text, ranges = combined(agreed, contents, Identity.load(folder / papers.ORGANISER_KEY))
    for name in federation.members:
        write_own(folder / name / SCALE, text)
    federation.prepared = rescaled(prepared, ranges)
    federation.ranges = ranges
