"""Results of a party at the end of its part in a run: the model that it would deploy, a personal one, and a summary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.experiment.results.observing import fit_figures
from gossamer.experiment.results.results_folder import to_json
from gossamer.experiment.results.summarising import NOTE, algorithm_of, card_of, personal_models
from gossamer.privacy import guarantee_card
from gossamer.runtimes.host import Host
from gossamer.sides.receipts import FILE as RECEIPTS
from gossamer.trained.card import ARRAYS, saved
from gossamer.trained.card import FILE as CARD
from gossamer.version import __version__, source_hash

PERSONAL = "personal.safetensors"
"""File of a party's personal model."""
SPENDING = "spending.json"
"""File with what all runs have taken of the budget of a party's data, as they were at the end of this one."""


def write_results(folder: StateFolder, agreed: Agreed, host: Host, held: DataHeld, alone: str) -> dict[str, Any]:
    """Write model and summary as they are now; what the summary says. ``alone`` says why it was, if it was."""
    prepared, rounds = agreed.prepared, host.node.rounds_made
    model = np.asarray(prepared.algorithm.model_of(host.node).values)
    card = card_of(prepared, owners=agreed.terms.names)
    folder.write(CARD, card.to_json(indent=2) + "\n")
    folder.write(ARRAYS, saved(model, card))
    summary = {
        "gossamer": __version__,
        "run": agreed.terms.invitation.run,
        "node": agreed.terms.me.name,
        "role": agreed.terms.me.role,
        **algorithm_of(prepared),
        "finished": host.finished or None,
        "alone": alone or None,
        **({} if rounds is None else {"rounds": rounds._asdict()}),
        "parameters": prepared.objective.size,
        "privacy": held.describe(),
        "metrics": _tested(held, model),
        **(_personalised(folder, held, model) if host.finished else {}),
    }
    folder.write("summary.json", to_json(summary, indent=2) + "\n")
    _write_proved(folder, held)
    return summary


def _write_proved(folder: StateFolder, held: DataHeld) -> None:
    """Write receipts, the card of what is proved of what they are of, and what all runs have taken of a budget."""
    terms, plan = held.agreed.terms, held.agreed.plan
    if not terms.holds_data and held.receipts is None:
        return
    guarantee, others = held.guarantees
    software = guarantee_card.Software(name="gossamer", version=__version__, source=f"sha256:{source_hash()}")
    card = guarantee_card.GuaranteeCard.of(
        [guarantee, *others.values()],
        plan.describe(),
        __version__,
        software,
        run=terms.invitation.run,
        party=terms.me.name,
    )
    if held.receipts is not None:
        text, head, signature = held.receipts.ended(held.sign_receipts, card.digest)
        folder.write(RECEIPTS, text)
        card = card.ended(guarantee_card.ReceiptsHead(releases=head.releases, head=head.head, signature=signature))
    folder.write(guarantee_card.FILE, card.to_json())
    if (spending := held.spending) is not None and spending.budget is not None:
        bar = spending.bar(f"{terms.invitation.run}/{terms.me.name}")
        folder.write(SPENDING, to_json(bar, indent=2) + "\n")


def _personalised(folder: StateFolder, held: DataHeld, model: FloatArray) -> dict[str, Any]:
    """Write this party's personal model, if the spec asks for one and there are data to make it of, and describe it."""
    agreed = held.agreed
    settings = agreed.prepared.experiment.personalisation
    if settings is None or not agreed.terms.holds_data:
        return {}
    (personal,) = personal_models(agreed.prepared, settings, [agreed.terms.me.name], model[None])
    folder.write(PERSONAL, saved(personal, card_of(agreed.prepared, owners=agreed.terms.names, note=NOTE)))
    folder.say(f"wrote {PERSONAL}. {NOTE}")
    return {"personalisation": {"personal": _tested(held, personal), "final_model": _tested(held, model), "note": NOTE}}


def _tested(held: DataHeld, model: FloatArray) -> dict[str, float]:
    """Test the model on this party's own test examples, if it has any: for itself alone."""
    if held.test is None:
        return {}
    objective, dataset = held.agreed.prepared.objective, held.agreed.prepared.dataset
    found = objective.evaluate(model[None], held.test)
    figures = {"test_loss": float(found.loss[0])}
    if dataset.classes is not None:
        figures["test_accuracy"] = float(found.accuracy[0])
    further = fit_figures(objective, model, dataset, held.test)
    figures |= {name: value for name, value in further.items() if value is not None}
    return {name: value for name, value in figures.items() if math.isfinite(value)}
