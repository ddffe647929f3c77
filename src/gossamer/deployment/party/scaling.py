"""A scale that parties find together before they start: one release of each, charged, and what follows from all.

The release is that of a simulation (`experiment.private_scale`), by a deployed data side. The plan of the whole run
enters the ledger first, as at a start; the release is then the first that is charged to it. It is made once: if its
file is lost, no second one with other noise takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.deployment.founding.layout import SCALE
from gossamer.deployment.founding.scale_papers import (
    ScaleError,
    ScalePaper,
    ScaleRelease,
    check_all,
    content_of,
    parse_release,
    parse_scale,
    write_release,
    write_scale,
)
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import Invited, accept
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.state_folder import STORE, StateFolder
from gossamer.errors import CallerError
from gossamer.experiment.private_scale import found_by_release, question, ranges_of
from gossamer.files import write_own
from gossamer.keys.identity import Identity
from gossamer.privacy.mechanisms import Gaussian
from gossamer.sides.deployed import Deployed
from gossamer.sides.ledger import Ledger
from gossamer.sides.making import open_pool
from gossamer.sides.plan import SidePlan
from gossamer.sides.samples import Shard
from gossamer.sides.sum_rounding import Rounding

SUFFIX = ".scale"
"""Of a party's release, after its name."""
_FAR = 10.0
"""Standard deviations that no noise is away from 0: the chance is below 2e-23 a number."""
_DIGIT = 0.0101
"""Most that ranges of three digits differ by, where machines differ in the last bit of what is rounded to these."""


def release_scale(options: PartyOptions) -> Path:
    """Make a party's release for the scale of its run, unless it is there already; the file that it is in.

    Raises
    ------
    CallerError
        If the run has no such release, or what a start may refuse is refused; then nothing is charged. Or if it was
        made before, and its file is not there.
    """
    invited = accept(options)
    terms = invited.agreed.terms
    if not found_by_release(invited.agreed.prepared.dataset):
        raise CallerError("this run has no dataset.scale: private, so there is nothing to release; start the node")
    if not terms.holds_data:
        raise CallerError(f"{terms.me.name} is the {terms.me.role} of this run, and has no examples to release from")
    path = options.folder / f"{terms.me.name}{SUFFIX}"
    if path.exists():
        _check_own(path, invited)
        return path
    with ExitStack() as stack:
        folder = StateFolder(options.state, echo=not options.quiet)
        folder.take()
        stack.callback(folder.give_back)
        stack.callback(folder.forget)
        held = DataHeld(options, invited, folder)
        stack.callback(held.close)
        if held.charged:
            raise ScaleError(
                f"{path}: {terms.me.name} has made its release for this run before, and a second one would be charged "
                "again; put the file back, or found a new federation"
            )
        _check_noise(held)
        held.charge()
        text = write_release(invited.identity, terms.invitation, terms.me.name, released(held))
        write_own(path, text, durable=True)
    return path


def _check_own(path: Path, invited: Invited) -> None:
    try:
        found = parse_release(content_of(path, "this party's release"), invited.agreed.terms.invitation)
    except ScaleError as error:
        raise ScaleError(f"{path}: {error}") from None
    if found.party != invited.agreed.terms.me.name:
        raise ScaleError(f"{path}: it is the release of {found.party}; move it away, and put this party's own back")


def _check_noise(held: DataHeld) -> None:
    """Refuse noise that cannot be drawn, before anything is charged.

    Raises
    ------
    SpecError
        If it is out of the range of the grid.
    """
    magnitudes, task = question(held.agreed.prepared)
    examples = held.agreed.terms.sizes[held.agreed.terms.me.name]
    provisions = partial(Rounding.of, magnitudes, task.query.sampling, examples)
    Deployed(_no_ledger).provided(task.query, magnitudes.size, provisions)


def _no_ledger(name: str, plan: SidePlan) -> Ledger:
    raise AssertionError(f"nothing of {name} is released yet")


def released(held: DataHeld) -> FloatArray:
    """The answer of a party's data side, charged to its ledger before anything is drawn.

    Parameters
    ----------
    held : DataHeld
        Charged with the whole plan, and with no release of it yet.

    Raises
    ------
    ScaleError
        If another process was faster.
    """
    agreed, ledger, name = held.agreed, held.ledger, held.agreed.terms.me.name
    prepared = agreed.prepared
    magnitudes, task = question(prepared)
    rows = dict(zip(prepared.names, prepared.shards, strict=True))[name]
    assert ledger is not None
    home = Deployed(lambda owner, plan: ledger, receipts=held.receipts)
    pool = open_pool({name: agreed.plan.side(name)}, {name: Shard(rows)}, magnitudes, prepared.dataset.train, home)
    ticket = pool.admit(name, task)
    if ledger.releases != 1:
        raise ScaleError(f"{name}: another process has made the release for this run; nothing was drawn")
    (answer,) = pool.compute([ticket])
    return np.asarray(answer.released.values, np.float64)


def combined(agreed: Agreed, contents: Mapping[str, bytes], organiser: Identity) -> tuple[str, dict[str, float]]:
    """The paper that all parties get, and the ranges in it.

    Parameters
    ----------
    agreed : Agreed
        By the organiser's record of the invitations.
    contents : mapping of str to bytes
        Releases, by the file that each comes from.
    organiser : Identity
        Signs it.

    Raises
    ------
    CallerError
        If a release is not what it should be; it names the file, or the party.
    """
    invitation, found = agreed.terms.invitation, {}
    if not found_by_release(agreed.prepared.dataset):
        raise CallerError("this run has no dataset.scale: private, so there is nothing to combine")
    if organiser.public_key != invitation.organiser:
        raise CallerError("the organiser's key is not the one that signed the invitations; give that one")
    for file, content in contents.items():
        try:
            one = parse_release(content, invitation)
            _check_values(agreed, one)
        except ScaleError as error:
            raise ScaleError(f"{file}: {error}") from None
        if one.party in found:
            raise ScaleError(f"{file}: there is another release of {one.party}; leave one of the files out")
        found[one.party] = one
    releases = [found[name] for name in agreed.terms.names if name in found]
    check_all(releases, invitation)
    ranges = ranges_of(agreed.prepared, [one.values for one in releases])
    return write_scale(organiser, invitation, releases, ranges), ranges


def ranges_in(agreed: Agreed, content: bytes) -> Mapping[str, float]:
    """The ranges of a paper, if they follow from releases of all parties.

    Raises
    ------
    ScaleError
        If something is not as it should be.
    """
    paper = parse_scale(content, agreed.terms.invitation)
    for one in paper.releases:
        _check_values(agreed, one)
    _check_ranges(ranges_of(agreed.prepared, [one.values for one in paper.releases]), paper)
    return paper.ranges


def agreed_ranges(options: PartyOptions, invited: Invited, folder: StateFolder) -> Mapping[str, float]:
    """The ranges that a party's node scales by; none where the spec asks for none.

    A node goes on by those that it began with, which its state folder keeps.

    Raises
    ------
    ScaleError
        If the paper is not there, is not as it should be, or is another than the one that the node began with.
    """
    agreed, path = invited.agreed, options.scale_file
    if not found_by_release(agreed.prepared.dataset):
        if options.scale is not None:
            raise CallerError("this run has no dataset.scale: private; leave out --scale")
        return {}
    content = content_of(
        path,
        "the scale that this run starts with (each party: gossamer federation scale; the organiser: gossamer "
        "federation combine)",
    )
    try:
        found = ranges_in(agreed, content)
    except ScaleError as error:
        raise ScaleError(f"{path}: {error}") from None
    record = folder.path / SCALE
    if record.exists() and (folder.path / STORE).exists():
        before = parse_scale(content_of(record, "the scale that the node began with"), agreed.terms.invitation)
        if dict(before.ranges) != dict(found):
            raise ScaleError(f"{path}: this node began with other ranges, and goes on by {record} alone; copy it here")
    folder.write(SCALE, content)
    return found


def _check_values(agreed: Agreed, release: ScaleRelease) -> None:
    """Refuse what no sum over a party's declared examples, with its noise, can be.

    So a dishonest party moves the scale as far as its examples and unlucky noise could, and no further.
    """
    magnitudes, task = question(agreed.prepared)
    if len(release.values) != magnitudes.size:
        raise ScaleError(
            f"expected {magnitudes.size} numbers from {release.party}, found {len(release.values)}; all parties need "
            "one version of gossamer"
        )
    law, examples = task.query.mechanism, agreed.terms.sizes[release.party]
    noise = law.noise_multiplier * law.clip if isinstance(law, Gaussian) else 0.0
    # Noise on a grid is a little larger than planned.
    most = 1.01 * (examples / math.sqrt(magnitudes.size) + _FAR * noise)
    if float(np.abs(release.values).max()) > most:
        raise ScaleError(
            f"the release of {release.party} is larger than {examples} examples and their noise can be, and nobody may "
            "use it"
        )


def _check_ranges(expected: Mapping[str, float], paper: ScalePaper) -> None:
    same = expected.keys() == paper.ranges.keys()
    if not same or any(abs(paper.ranges[name] - value) > _DIGIT * value for name, value in expected.items()):
        raise ScaleError("its ranges do not follow from its releases; ask the organiser for it again")
