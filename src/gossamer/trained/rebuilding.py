"""The function that a card names, built anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from gossamer.data.settings import IN_MEMORY
from gossamer.errors import DataError, ModelError
from gossamer.objectives.linear.losses import LOSSES
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.loss_settings import KIND, OwnLoss
from gossamer.objectives.objective import Objective
from gossamer.section import place, said
from gossamer.trained.card import Card, LossCard, ObjectiveCard, damaged


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


def describe(objective: Objective, name: str | None, module: str | None) -> ObjectiveCard:
    """Describe an objective, so that `rebuilt` makes it again.

    Parameters
    ----------
    objective : Objective
        Objective that was minimised.
    name, module : str, optional
        Name and module as in a spec; neither for a module that was given from memory.
    """
    dtype: Any = objective.dtype.name
    if isinstance(objective, LinearModel):
        loss: Any = next(known for known, law in LOSSES.items() if law is objective.loss)
        return ObjectiveCard(name=loss, loss=loss, intercept=objective.intercept, dtype=dtype)
    network: Any = objective
    loss, registered = network.loss, None
    if not isinstance(loss, str):
        found = KIND.of(loss)
        if found is None:
            raise ModelError(f"the loss {type(loss).__name__} is registered by nobody, so no file can name it")
        registered = LossCard(
            settings=loss.model_dump(mode="json"),
            distribution=found.distribution,
            version=found.version,
            sha256=found.source,
        )
        loss = "registered"
    return ObjectiveCard(name=name, module=module, loss=loss, registered=registered, dtype=dtype, frozen=network.frozen)


def rebuilt(card: Card, where: Path, module: Any = None) -> Objective:
    """The objective of a card, which is from ``where``.

    Parameters
    ----------
    card : Card
        Card of the model.
    where : Path
        Place of the card, for errors.
    module : torch.nn.Module, or a class or function that makes one, optional
        The network, where the card names none because the run had it from memory.

    Raises
    ------
    DataError
        If the parts of what the card names are not those of the card.
    ModelError
        If the module cannot be made, or is another one.
    """
    made = _linear(card, where, module) if card.objective.linear else _network(card, where, module)
    if tuple(made.parts) != card.parts:
        missing = next(
            (f"{wanted.name} {list(wanted.shape)}" for wanted in card.parts if wanted not in made.parts), "an order"
        )
        raise ModelError(
            f"{where}: the model has {missing}, which {_named(card)} has not: it was changed since the run, or the "
            "card was; bring back what the run used"
        )
    return made


def _named(card: Card) -> str:
    return card.objective.module or card.objective.name or "the module"


def _linear(card: Card, where: Path, module: Any) -> Objective:
    told = card.objective
    if module is not None:
        raise ModelError(f"{where}: the model is linear ({told.loss}), and has no module; leave module= out")
    features = int(np.prod(card.shape))
    classes = None if card.classes is None else len(card.classes)
    try:
        return LinearModel(told.loss, features, classes, intercept=told.intercept, dtype=np.dtype(told.dtype))
    except DataError as error:
        raise damaged(where, str(error)) from None


def _network(card: Card, where: Path, module: Any) -> Objective:
    # Networks need torch, which is optional, so it is imported only here.
    from gossamer.objectives.models import build_model, load_module
    from gossamer.objectives.models import made as made_of
    from gossamer.objectives.networks.module import TorchModule
    from gossamer.objectives.networks.network import loss_of

    told, classes = card.objective, None if card.classes is None else len(card.classes)
    loss: str | OwnLoss = told.loss if told.registered is None else own_loss(told.registered, where)
    outputs = loss_of(loss, classes).wanted or classes or 1
    if module is not None:
        module = made_of(module, card.shape, outputs).module
    elif told.module is not None and not told.module.startswith(f"{IN_MEMORY}:"):
        module = load_module(told.module, card.shape, outputs)
    elif told.module is None and told.name is not None:
        module = build_model(told.name, card.shape, outputs)
    else:
        raise ModelError(
            f"{where}: the run had its module from memory, and no file has its code; give it: "
            "gs.load_model(folder, module=...)"
        )
    # It is not trained, so it does not matter what it does in training mode, and its scores need no kernels.
    made = TorchModule(module.eval(), loss=loss, strategy="loop", classes=classes)
    if told.frozen != made.frozen:
        raise ModelError(
            f"{where}: numbers of {_named(card)} that are not trained, such as buffers, are not those of the run; give "
            "the module as it was"
        )
    return made
