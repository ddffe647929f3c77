"""Losses of other distributions in cards of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gossamer.errors import ModelError
from gossamer.objectives.loss_settings import KIND, OwnLoss
from gossamer.section import place, said
from gossamer.trained.card import LossCard, damaged


def described(loss: str | OwnLoss) -> dict[str, Any]:
    """Entries of an objective's card on a network's loss."""
    if isinstance(loss, str):
        return {"loss": loss}
    found = KIND.of(loss)
    if found is None:
        raise ModelError(f"the loss {type(loss).__name__} is registered by nobody, so no file can name it")
    card = LossCard(
        settings=loss.model_dump(mode="json"),
        distribution=found.distribution,
        version=found.version,
        sha256=found.source,
    )
    return {"loss": "registered", "registered": card}


def own_loss(card: LossCard, where: Path) -> OwnLoss:
    """The loss of a card, which is from ``where``; its code is imported.

    Raises
    ------
    ModelError
        If it is not installed, or another distribution registers one of its name.
    DataError
        If its settings are none.
    """
    found = KIND.find(card.name)
    if found is None or found.distribution != card.distribution:
        instead = "nobody registers it" if found is None else f"{found} registers one of that name"
        raise ModelError(
            f"{where}: the model was trained with the loss {card.name} of {card.distribution} {card.version}, and here "
            f"{instead}; install that distribution"
        )
    made: Any = KIND.load(found)
    try:
        loss: OwnLoss = made.model_validate(card.settings)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, ("objective.registered.settings", *place(problem))))
        raise damaged(where, f"{key}: {said(problem)}") from None
    return loss
