"""Runs of a federation, as its organiser's folder has them, and the orders that are given to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from gossamer.deployment.founding import layout as papers
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Invitation, read_signed
from gossamer.keys.orders import PAUSE, REMOVE, RESUME, STOP, Order, Orders
from gossamer.runtimes.mqtt.broker import access_list

Runs = Mapping[str | None, tuple[Invitation, Collection[str]]]
"""Runs of a federation by name, of which the first has none: an invitation, and who was removed."""


def signer_and_runs(folder: Path, organiser: Identity | None, run: str | None = None) -> tuple[Identity, Runs]:
    """The key of a federation's organiser, by default that in its folder, and its runs, of which one is asked for."""
    key = folder / papers.ORGANISER_KEY
    if organiser is None and not key.exists():
        raise CallerError(
            f"{folder}: there is no {papers.ORGANISER_KEY}; name the folder that `federation new` made, and the "
            "organiser's key if it lies elsewhere"
        )
    signer, before = organiser or Identity.load(key), read_signed(folder / papers.RECORD)
    further = [record.parent.name for record in sorted((folder / papers.RUNS).glob(f"*/{papers.RECORD}"))]
    if signer.public_key != before.organiser:
        raise CallerError(
            f"{folder}: expected the key of this federation's organiser, with fingerprint "
            f"{before.organiser.fingerprint}, found another one, with {signer.public_key.fingerprint}; give the "
            "organiser's with --organiser"
        )
    if run is not None:
        papers.check_known("run", [run], further)
    known = {name: read_signed(folder / papers.place_of(name) / papers.RECORD) for name in (None, *further)}
    return signer, {name: (one, _orders(folder, one, name).removed) for name, one in known.items()}


def _orders(folder: Path, before: Invitation, run: str | None) -> Orders:
    return Orders(folder / papers.place_of(run) / papers.ORDERS, before.run, before.organiser)


def give_order(folder: Path, what: str, organiser: Identity | None = None, run: str | None = None) -> str:
    """Sign an order to all parties of a run, and keep it in its folder, from where those who watch tell it.

    One that removes a party takes it from the broker's access list, too. The order is returned, with its number if it
    has one.

    Raises
    ------
    CallerError
        If the folder is not one of a federation, the key not that of its organiser, or nobody can go on without the
        party.
    """
    signer, runs = signer_and_runs(folder, organiser, run)
    before = runs[run][0]
    orders, name = _orders(folder, before, run), what.removeprefix(REMOVE)
    if what in (PAUSE, RESUME):
        what = f"{what} {orders.newest[0] + 1}"
    elif what != STOP:
        papers.check_known("remove", [name], [member.name for member in before.members])
        left = [one for one in before.sizes if one not in {name, *orders.removed}]
        if name not in before.sizes or len(left) < 2:
            others = "it serves the others" if name not in before.sizes else "it would leave one party with data"
            raise CallerError(f"{name} cannot be removed, since {others}; `federation stop` ends the run for all")
        _check_nobody_alone(before, left, name)
    orders.take(Order.signed(signer, before.run, what))
    if papers.has_tls(before.broker) and (folder / papers.ACCESS).exists():
        papers.write(folder, {papers.ACCESS: rules({**runs, run: (before, orders.removed)})})
    return what


def _check_nobody_alone(before: Invitation, left: Collection[str], name: str) -> None:
    """Raise CallerError if a party would lose the last one that it exchanges messages with: it would go on alone."""
    # It needs all algorithms; other orders need none of them.
    from gossamer.experiment.preparation.prepare import contacts_of
    from gossamer.experiment.specs.spec_file import read_text

    gone = set(before.sizes) - set(left)
    for other, contacts in contacts_of(read_text(before.spec), tuple(before.sizes)).items():
        if other in left and gone.issuperset(contacts):
            raise CallerError(
                f"{name} cannot be removed, since {other} would have nobody left to exchange messages with; remove "
                f"{other} first, or end the run for all by `federation stop`"
            )


def rules(runs: Runs) -> bytes:
    """Rights of each at the broker."""
    lists = (
        access_list(one.run, papers.on_broker(one, removed), partial(papers.known_as, run=name))
        for name, (one, removed) in runs.items()
    )
    return "\n".join(lists).encode()
