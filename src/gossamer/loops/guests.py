"""Ledgers of loops inside other libraries: events of ``dp_accounting``, and a mod of Flower's ``ClientApp``.

    app = ClientApp(mods=[gs.FlowerMod(ledger, noise_multiplier=4.0)])

A Flower app stays on its own server then, which sees what the mod lets out: updates that are clipped, noised and
charged as a whole, and nothing else of the client's data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gossamer.errors import ModelError, SpecError
from gossamer.loops.own_loop import LoopLedger, Releases
from gossamer.privacy.exact.grid_noise import GridGaussian
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.privacy.mechanisms import Gaussian
from gossamer.sides.client import SLACK, clipped
from gossamer.sides.home import saturated


def releases_of(event: Any) -> list[Releases]:
    """Releases that an event of ``dp_accounting`` consists of: the plan of a `LoopLedger`.

    Parameters
    ----------
    event : DpEvent
        ``GaussianDpEvent``, alone or in a ``PoissonSampledDpEvent``, and these in ``SelfComposedDpEvent`` and
        ``ComposedDpEvent``.

    Raises
    ------
    SpecError
        If it is of another kind, or a number is out of its range.
    """
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent  # slow

    match event:
        case GaussianDpEvent():
            return [Releases(1, event.noise_multiplier)]
        case PoissonSampledDpEvent(event=GaussianDpEvent() as noise):
            return [Releases(1, noise.noise_multiplier, event.sampling_probability)]
        case SelfComposedDpEvent():
            return [replace(one, number=one.number * event.count) for one in releases_of(event.event)]
        case ComposedDpEvent():
            return [one for part in event.events for one in releases_of(part)]
    raise SpecError(f"a ledger takes Gaussian events, sampled by Poisson or not, and their sums, found {event!r:.100}")


def charge_event(ledger: LoopLedger, event: Any) -> None:
    """Charge all that an event of ``dp_accounting`` consists of, before it happens; see `LoopLedger.charge`.

    Parameters
    ----------
    ledger : LoopLedger
        Open ledger.
    event : DpEvent
        As for `releases_of`. What of it was charged before a release that is refused stays counted.

    Raises
    ------
    BudgetSpent
        If the plan does not cover it. Nothing of it may happen then.
    SpecError
        As `releases_of`.
    """
    for one in releases_of(event):
        for _ in range(one.number):
            ledger.charge(one.noise_multiplier, one.sampling_rate)


_TOLD = {"num-examples": 1, "num_examples": 1, "code": 0, "message": ""}
"""All that a server is told beside an update, for strategies that need it: constants, so all clients count alike."""


class FlowerMod:
    """A mod of a Flower ``ClientApp`` that clips, charges and noises its updates, for a server that is not trusted.

    Any data of the client may give any update of the length that it is clipped to, so a row moves it by up to twice
    that. So this length is half of the ledger's clip, and all of it where the policy counts replacements, which move
    by twice the clip. Noise is exact, as a party's own is.

    Parameters
    ----------
    ledger : LoopLedger
        Open ledger of the client's data, with as many planned releases as there are rounds for it; they are charged one
        at a time, unless it was given ``ahead``.
    noise_multiplier : float
        Standard deviation of the noise on an update, over the ledger's clip.
    """

    def __init__(self, ledger: LoopLedger, noise_multiplier: float) -> None:
        self._ledger, self._law = ledger, Gaussian(ledger.clip, noise_multiplier)
        self._length = ledger.clip * ledger.guarantee.neighboring_relation.sensitivity(1.0) / 2
        ledger.at_once = ledger.at_once or 1  # SuperNodes have a process for each message, which loses what is ahead

    def __call__(self, message: Any, context: Any, app: Callable[[Any, Any], Any]) -> Any:
        """Answer of the ``app`` to a message to train, with another update, and constants in the place of its metrics.

        It is charged before the app is asked, whose failure a server sees, too, and could bring about by what it sends.

        Raises
        ------
        BudgetSpent
            If the plan is used up; the app is not asked.
        ModelError
            If the message asks for something else than training, which would be answered without noise, or has not one
            model; or if the client fails, in words that are no data's, since Flower sends them.
        """
        if not (kind := message.metadata.message_type).startswith("train"):
            raise ModelError(f"the ledger covers updates alone, and a server asked to {kind}; let it test by itself")
        sent = {name: np.array(array.numpy()) for name, array in _only(message).items()}
        moved = [name for name, array in sent.items() if array.dtype.kind == "f"]
        if not moved:
            raise ModelError("a server sent a model to train: expected arrays of floating-point numbers, found none")
        self._ledger.charge(self._law.noise_multiplier)
        try:
            reply = app(message, context)
            record = _only(reply)
            after = {name: array.numpy() for name, array in record.items()}
            wanted, found = ({name: array.shape for name, array in each.items()} for each in (sent, after))
            if wanted != found:
                raise ModelError(f"a client is to return the arrays that it was sent, {wanted}, found {found}")
            with np.errstate(all="ignore"):
                parts = [np.subtract(after[name], sent[name], dtype=np.float64).ravel() for name in moved]
            update = clipped(np.concatenate(parts), self._length)
        except Exception as error:
            raise ModelError("this client failed, or gave no model such as it was sent; see its own log") from error
        grid = GridGaussian.like(self._law, len(update), error=SLACK * self._ledger.clip)
        noised = np.split(grid.release(update, SecretRandomness().words), np.cumsum([len(part) for part in parts])[:-1])
        for name, change in zip(moved, noised, strict=True):
            old = sent[name]
            sent[name] = saturated(old.ravel() + change, old.dtype).reshape(old.shape)
        start = {name: type(record[name])(array) for name, array in sent.items()}
        for name, told in [*reply.content.items()]:
            kept = start if told is record else {key: value for key, value in _TOLD.items() if key in told}
            reply.content[name] = type(told)(kept)
        return reply


def _only(message: Any) -> Any:
    """The one model in a message."""
    found = list(message.content.array_records.values())
    if len(found) != 1:
        raise ModelError(f"a mod is for one model in a message, an ArrayRecord, found {len(found)}")
    return found[0]
