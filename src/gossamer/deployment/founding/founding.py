"""Founding a federation: keys, invitations and the broker's configuration, in one folder.

    founded = found("federation", spec=text, parties={"a": 341, "b": 210}, broker="mqtts://broker.example.org:8883")
    print(founded.organiser.fingerprint)      # to be told to every party by another way

What lies where is said in `papers`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.federation_spec import check_names, federation_spec, roster, start_of, with_parties
from gossamer.deployment.founding.runs import Runs, rules, signer_and_runs
from gossamer.errors import CallerError, SpecError, failing_as
from gossamer.experiment.preparation.objective import pretrained_file
from gossamer.experiment.preparation.prepare import servers
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_text
from gossamer.files import read_file
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import WATCHER, Invitation, further_run, invite, parse_signed, read_signed
from gossamer.keys.private_files import read_private
from gossamer.runtimes.mqtt.broker import access_list
from gossamer.runtimes.mqtt.certificates import Authority, user_name

VALID = timedelta(days=90)
"""For how long invitations and certificates are good, unless something else is said."""


@dataclass(frozen=True)
class Founded:
    """A federation's papers.

    Attributes
    ----------
    invitation : Invitation
        One of those that were signed; all say the same, but for whom they are.
    made : tuple of str
        The parties whose private keys were made here, since they had sent no public key.
    files : mapping of str to bytes
        Everything that is written, by its place in the folder.
    """

    invitation: Invitation
    made: tuple[str, ...]
    files: papers.Files = field(repr=False)

    @property
    def organiser(self) -> PublicKey:
        """The key of who signed."""
        return self.invitation.organiser

    def write(self, folder: str | Path) -> None:
        """Write everything; keys must be new there, and all else is replaced."""
        papers.write(Path(folder), self.files)


def found(folder: str | Path, **terms: Any) -> Founded:
    """Found a federation in a new folder: `draft` of its terms, and written.

    Raises
    ------
    CallerError
        As `draft`, and if the folder has something in it.
    """
    papers.check_empty(Path(folder))
    founded = draft(**terms)
    founded.write(folder)
    return founded


def draft(
    *,
    spec: str,
    parties: Mapping[str, int],
    broker: str,
    keys: Mapping[str, PublicKey] | None = None,
    valid: timedelta = VALID,
    organiser: Identity | None = None,
    insecure: bool = False,
    beside: Path | None = None,
    wheel: bytes | None = None,
) -> Founded:
    """The papers of a new federation; nothing is written.

    Parameters
    ----------
    spec : str
        The experiment, in YAML; see `federation_spec` for what becomes of it.
    parties : mapping of str to int
        The parties with data, in the order of the algorithm's nodes, and how many training examples each has declared.
    broker : str
        ``mqtts://host:port``, with TLS and client certificates. ``mqtt://`` has neither, and is for this machine. Or a
        store, such as ``file:///mnt/share/run``.
    keys : mapping of str to PublicKey, optional
        Keys of parties that have made their own identities; the others' are made here.
    valid : timedelta, optional
        Time for which invitations and certificates are good.
    organiser : Identity, optional
        Party who signs; by default a new one, kept in the folder.
    insecure : bool, optional
        Whether ``mqtt://`` may name another machine.
    beside : Path, optional
        The folder that a path in the spec is taken from; by default the working directory.
    wheel : bytes, optional
        Content of the file that everybody is to install; its hash goes into the invitations.

    Raises
    ------
    CallerError
        If something does not fit together.
    """
    text = federation_spec(spec, len(parties), beside)
    experiment = read_text(text)
    everybody = [*parties, *servers(experiment)]
    check_names(parties, everybody[len(parties) :], papers.RESERVED)
    papers.check_known("keys", keys or {}, everybody)
    signer = organiser or Identity.generate()
    run, issued = secrets.token_hex(16), datetime.now(UTC)
    installed = None if wheel is None else hashlib.sha256(wheel).hexdigest()
    (made, given), watcher = _keys(everybody, keys), Identity.generate()
    members = roster(experiment, parties, given)
    times, watches = (issued + valid, issued), watcher.public_key
    invitations = invite(signer, broker, members, text, *times, run, installed, watches)
    papers.check_secrecy(broker, insecure)
    authority, files = None, _start(spec, beside, experiment, papers.START)
    if papers.has_tls(broker):
        authority = Authority(f"gossamer {run}")
        files |= {papers.AUTHORITY_KEY: authority.key, papers.AUTHORITY_CERTIFICATE: authority.certificate}
    files |= {papers.ORGANISER_KEY: signer.pem} if organiser is None else {}
    files |= {papers.WATCHER_KEY: watcher.pem}
    return _founded(invitations, made, authority, files | papers.configuration(broker, len(members)))


def _keys(
    names: Iterable[str], keys: Mapping[str, PublicKey] | None
) -> tuple[dict[str, Identity], dict[str, PublicKey]]:
    """New identities of those who have sent no public key, and the public keys of all."""
    made = {name: Identity.generate() for name in names if name not in (keys or {})}
    return made, {**(keys or {}), **{name: identity.public_key for name, identity in made.items()}}


def _start(spec: str, beside: Path | None, agreed: Experiment, place: str) -> dict[str, bytes]:
    """The model that all start from: the file of the organiser's spec, which has the hash in that of the parties."""
    start, known = start_of(read_text(spec), beside), agreed.objective.pretrained
    if start is None or known is None:
        return {}
    return {place: pretrained_file(start.model_copy(update={"sha256": known.sha256}))[0]}


def _founded(
    invitations: Mapping[str, str],
    made: Mapping[str, Identity],
    authority: Authority | None,
    files: Mapping[str, bytes],
    broker: bytes | None = None,
    before: Runs = MappingProxyType({}),
    run: str | None = None,
) -> Founded:
    """The papers, with what is written anew whenever invitations are: these, certificates, and the record of them.

    Parameters
    ----------
    invitations : mapping of str to str
        Invitations by name.
    made : mapping of str to Identity
        Identities that were made here.
    authority : Authority or None
        Party who signs certificates; None without TLS.
    files : mapping of str to bytes
        Other files, by place.
    broker : bytes, optional
        Certificate of the broker, if it has one already.
    before : mapping
        Runs of the federation as they were.
    run : str, optional
        The one that these are to, by its name; by default the first.
    """
    record = next(iter(invitations.values())).encode()
    invitation, place = parse_signed(record), papers.place_of(run)
    files = {**files, **{f"{name}/{papers.IDENTITY}": identity.pem for name, identity in made.items()}}
    if authority is not None:
        runs = {**before, run: (invitation, before[run][1] if run in before else ())}
        until = max(one.expires for one, _ in runs.values())
        files |= papers.for_broker(invitation.broker, authority, until, broker) | {papers.ACCESS: rules(runs)}
        for member in (*invitation.members, *invitation.watchers):
            known, folder = papers.known_as(member.name, run), f"{member.name}/{place}"
            files |= papers.for_party(known, member.key, authority, invitation.expires, folder)
    # A node that runs from this folder begins anew as soon as it sees another invitation, so that comes last.
    files |= {f"{name}/{place}{papers.INVITATION}": text.encode() for name, text in invitations.items()}
    files |= {f"{WATCHER}/{place}{papers.RECORD}": record} if invitation.watchers else {}
    return Founded(invitation, tuple(made), {**files, f"{place}{papers.RECORD}": record})


# Further runs of the same parties: identities, broker and organiser are those of the founding, and all that is agreed
# is new. Each has its papers in folders of its own, and is charged for itself.

_LONGEST = 64  # letters of a name in a certificate


def draft_run(
    folder: str | Path,
    spec: str,
    *,
    name: str | None = None,
    nodes: Collection[str] | None = None,
    examples: Mapping[str, int] = MappingProxyType({}),
    valid: timedelta = VALID,
    organiser: Identity | None = None,
    beside: Path | None = None,
) -> tuple[str, Founded]:
    """The name and the papers of a further run; nothing is written.

    Parameters
    ----------
    folder : path
        Place where the federation was founded.
    spec, beside, valid : str, Path, timedelta
        The same as in `draft`.
    name : str, optional
        What the run is called; by default its number.
    nodes : collection of str, optional
        The parties with data that take part; by default all that were removed from no run.
    examples : mapping of str to int, optional
        Numbers of training examples of those that have declared others than before.
    organiser : Identity, optional
        Party who founded the federation, if the key is not in the folder.

    Raises
    ------
    CallerError
        If the folder is not one of a federation, there is a run of that name, or something does not fit together.
    """
    folder = Path(folder)
    signer, runs = signer_and_runs(folder, organiser)
    papers.check_own(folder)
    first, name = runs[None][0], name or str(len(runs) + 1)
    place = papers.place_of(name)
    if name in runs:
        raise CallerError(
            f"{folder / place}: there is a run {name} already, and what was agreed for a run never changes; choose "
            f"another name, or write its papers anew by `federation renew {folder} --run {name}`"
        )
    parties = _taking_part(runs, first.sizes, nodes, examples)
    text = federation_spec(spec, len(parties), beside)
    experiment, keys = read_text(text), {member.name: member.key for member in first.members}
    papers.check_known(f"servers of {experiment.algorithm.name} are those of the first run", servers(experiment), keys)
    members, issued = roster(experiment, parties, keys), datetime.now(UTC)
    names = [*(one.name for one in members), *(() if first.overview is None else (WATCHER,))]
    if too_long := [one for one in names if len(papers.known_as(one, name)) > _LONGEST]:
        raise SpecError(f"{too_long[0]} and {name} are too long together for a certificate; choose a shorter name")
    of_founding = further_run(first.run, name, text, members), first.wheel_sha256, first.overview
    invitations = invite(signer, first.broker, members, text, issued + valid, issued, *of_founding)
    authority, certificate = _kept(folder, first)
    files = _start(spec, beside, experiment, f"{place}{papers.START}")
    return name, _founded(invitations, {}, authority, files, certificate, runs, name)


def _taking_part(
    runs: Runs, sizes: Mapping[str, int], nodes: Collection[str] | None, examples: Mapping[str, int]
) -> dict[str, int]:
    """Parties of a further run, and their training examples."""
    removed = {name for _, gone in runs.values() for name in gone}
    papers.check_known("nodes", nodes or (), sizes)
    if gone := sorted(removed & set(nodes or ())):
        raise CallerError(f"{gone[0]} was removed by the organiser, so it takes part in no further run; leave it out")
    chosen = [name for name in sizes if name not in removed and (nodes is None or name in nodes)]
    papers.check_known("examples", examples, chosen)
    return {name: examples.get(name, sizes[name]) for name in chosen}


def _kept(folder: Path, first: Invitation) -> tuple[Authority | None, bytes | None]:
    """Authority of a federation, and its broker's certificate; None without TLS."""
    authority = kept_authority(folder) if papers.has_tls(first.broker) else None
    certificate = folder / papers.BROKER_CERTIFICATE
    return authority, read_file(certificate) if certificate.exists() else None


# Invitations to a run that is under way, issued again: for parties that join, or because the old ones expire.
#
# Everybody gets a new invitation to the same run; the one issued last counts. Keys stay what they were.

_MOMENT = timedelta(seconds=1)  # times in invitations have whole seconds


def draft_again(
    folder: str | Path,
    parties: Mapping[str, int],
    *,
    keys: Mapping[str, PublicKey] | None = None,
    valid: timedelta = VALID,
    organiser: Identity | None = None,
    run: str | None = None,
) -> Founded:
    """New invitations and certificates for all, and for ``parties`` that join; nothing is written.

    Parameters
    ----------
    folder : path
        Place where the federation was founded.
    parties : mapping of str to int
        Parties who join, and how many training examples each has declared; nobody, to renew what would expire.
    keys : mapping of str to PublicKey, optional
        Keys of those who have made their own identities.
    valid : timedelta, optional
        Time for which invitations and certificates are good, from now.
    organiser : Identity, optional
        Party who founded the federation, if the key is not in the folder.
    run : str, optional
        The further run that they are to, which nobody joins; by default the first.

    Raises
    ------
    CallerError
        If the folder is not one of a federation, or a name or a number does not fit.
    """
    folder = Path(folder)
    if folder.is_dir():
        papers.check_own(folder)
    signer, runs = signer_and_runs(folder, organiser, run)
    before = runs[run][0]
    papers.check_known("keys", keys or {}, parties)
    spec = _spec(before, parties)
    made, given = _keys(parties, keys)
    known = {member.name: member.key for member in before.members}
    members = roster(read_text(spec), {**before.sizes, **parties}, {**known, **given})
    issued = max(datetime.now(UTC), before.issued + _MOMENT)
    times, same = (issued + valid, issued), (before.run, before.wheel_sha256)
    invitations = invite(signer, before.broker, members, spec, *times, *same, before.overview)
    authority, certificate = _kept(folder, before)
    # Only a broker that has no room for those who join gets another configuration: it may have been edited by hand.
    outgrown = len(members) > max(papers.FEWEST, len(before.members))
    files = papers.configuration(before.broker, len(members)) if outgrown else {}
    return _founded(invitations, made, authority, files, certificate, runs, run)


def _spec(before: Invitation, parties: Mapping[str, int]) -> str:
    """The run's spec, for as many parties as there are now."""
    if not parties:
        return before.spec
    everybody = [*before.sizes, *parties]
    check_names(everybody, servers(read_text(before.spec)), papers.RESERVED)
    return with_parties(before.spec, len(everybody))


def kept_authority(folder: Path) -> Authority:
    """Authority whose certificate and key are in a folder.

    Raises
    ------
    CallerError
        If they cannot be read, or are none.
    """
    path = folder / papers.AUTHORITY_CERTIFICATE
    with failing_as(CallerError, f"{path}: cannot read the authority's certificate: "):
        certificate = read_file(path)
    try:
        return Authority.load(certificate, read_private(folder / papers.AUTHORITY_KEY))
    except SpecError as error:
        both = f"{papers.AUTHORITY_CERTIFICATE} and {papers.AUTHORITY_KEY}"
        raise CallerError(f"{folder}: {error}; put back {both}, which were made together") from None


# One broker for several federations: an authority of its own, and certificates that name the run.
#
#     BROKER/
#       authority.key             signs the certificates of all who use this broker; its operator's alone
#       authority.crt             by which others know what it signed
#       federations/RUN.yaml      an invitation of each federation that is served, as its organiser signed it
#       broker/                   for the broker's machine: mosquitto.conf, acl, ca.crt, broker.crt, broker.key
#       parties/RUN/PARTY/        for one party: ca.crt and tls.crt, in place of those that its federation came with
#
# A broker shows one certificate to everybody, and parties trust the authority of their own federation alone, so one
# port for several federations takes an authority that they share. Its certificates name the run beside the party, and
# the broker goes by both: nearly every federation has a party ``server``. No secret of an organiser is needed, since an
# invitation has the public keys of all members, and no invitation changes.

FEDERATIONS = "federations"
PARTIES = "parties"


class SharedBroker(NamedTuple):
    """A shared broker's papers.

    Attributes
    ----------
    federations : tuple of Invitation
        All that are served.
    issued : tuple of Invitation
        Those whose parties get certificates now.
    files : mapping of str to bytes
        Everything that is written, by its place in the folder.
    """

    federations: tuple[Invitation, ...]
    issued: tuple[Invitation, ...]
    files: papers.Files

    def write(self, folder: Path) -> None:
        """Write everything; keys must be new there, and all else is replaced."""
        papers.write(folder, self.files)


def papers_of(run: str) -> str:
    """Folder of the certificates of a run's parties, in the broker's folder."""
    return f"{PARTIES}/{run}"


def share(folders: Iterable[Path], out: Path, place: Path | None = None) -> SharedBroker:
    """Papers of a new shared broker; nothing is written.

    Parameters
    ----------
    folders : iterable of path
        Folders of federations, as ``federation new`` made them, or invitations of theirs.
    out : path
        A new folder.
    place : path, optional
        The folder of the broker's files on its machine; by default ``broker`` in ``out``.

    Raises
    ------
    CallerError
        If a folder is no federation's, or they cannot share one broker.
    """
    papers.check_empty(out, "a new broker, or give this one to --join")
    authority, place = Authority("gossamer broker"), place or out / papers.BROKER
    if not str(place.absolute()).isprintable():
        raise CallerError(f"{str(place)!r}: expected a path that mosquitto.conf can hold, of printable letters")
    made = _serving(folders, out, authority)
    url, members = made.federations[0].broker, sum(len(one.members) for one in made.federations)
    files = {papers.AUTHORITY_KEY: authority.key, papers.AUTHORITY_CERTIFICATE: authority.certificate}
    files |= papers.for_broker(url, authority, authority.until)
    return made._replace(files={**made.files, **files, **papers.configuration(url, members, place.absolute())})


def join(folders: Iterable[Path], folder: Path) -> SharedBroker:
    """Papers of federations that come to a shared broker, or have new invitations; nothing is written.

    Others keep what they have. A federation whose file in ``federations`` was deleted is let in no more.

    Parameters
    ----------
    folders : iterable of path
        The same as of `share`.
    folder : path
        Folder of the broker, as `share` made it.

    Raises
    ------
    CallerError
        If the folder is no shared broker's, or as `share`.
    """
    if not (folder / FEDERATIONS).is_dir():
        raise CallerError(f"{folder}: no shared broker; name a folder that `federation broker --out` made")
    return _serving(folders, folder, kept_authority(folder))


def _serving(folders: Iterable[Path], hub: Path, authority: Authority) -> SharedBroker:
    """Certificates for the parties of these federations, their records, and who may do what beside those before."""
    served = {one.run: one for one in map(read_signed, sorted((hub / FEDERATIONS).glob("*.yaml")))}
    new: dict[str, Invitation] = {}
    for one in map(_read, folders):
        _check_successor(served.get(one.run, one), one)
        new[one.run] = served[one.run] = one
    if not served:  # and an access list of nobody would let everybody in
        raise CallerError(f"{hub}: no federation is to be served; name the folder of one, or stop the broker")
    _check_one_broker(served.values())
    lists = (
        access_list(run, papers.on_broker(one), partial(user_name, run=run)) for run, one in sorted(served.items())
    )
    files = {f"{papers.BROKER}/acl": "\n".join(lists).encode()}
    for run, one in new.items():
        files[f"{FEDERATIONS}/{run}.yaml"] = one.written
        for member in (*one.members, *one.watchers):
            place = f"{papers_of(run)}/{member.name}/"
            files |= papers.for_party(member.name, member.key, authority, one.expires, place, run)
    return SharedBroker(tuple(served.values()), tuple(new.values()), files)


def _read(folder: Path) -> Invitation:
    record = folder / papers.RECORD if folder.is_dir() else folder
    if folder.is_dir() and not record.exists():
        raise CallerError(
            f"{folder}: no federation, for it has no {papers.RECORD}; name a folder that `federation new` made, or an "
            "invitation"
        )
    invitation = read_signed(record)
    if not papers.has_tls(invitation.broker):
        raise CallerError(
            f"{folder}: {invitation.broker} has no TLS, without which a broker cannot tell federations apart; found "
            "the federation with mqtts://"
        )
    if invitation.expires <= datetime.now(UTC):
        raise CallerError(f"{folder}: it expired at {invitation.expires.isoformat()}; `federation renew` it first")
    return invitation


def _check_successor(before: Invitation, after: Invitation) -> None:
    """Raise CallerError if an invitation is not by the organiser of the one that is known, or is older."""
    if after.organiser != before.organiser:
        raise CallerError(
            f"run {after.run}: expected its organiser {before.organiser.fingerprint}, found another one, "
            f"{after.organiser.fingerprint}; ask who sent it"
        )
    if after.issued < before.issued:
        raise CallerError(
            f"run {after.run}: this was issued {after.issued.isoformat()}, and the broker has what was issued "
            f"{before.issued.isoformat()}; give the latest"
        )


def _check_one_broker(served: Iterable[Invitation]) -> None:
    """Raise CallerError unless all go to one address."""
    brokers = {one.broker: one.run for one in served}
    if len(brokers) > 1:
        (one, _), (other, run) = list(brokers.items())[:2]
        raise CallerError(
            f"run {run} goes to {other}, and others to {one}; a shared broker has one address, so found the "
            "federations with the same --broker"
        )
