"""The card of a model: all that is public and needed to use it, beside its numbers; and the function that it names.

It is the file `model.json` of a folder, and the text under `gossamer` in the metadata of a safetensors file, so that a
file that is handed on alone can be used, too. It has the declaration of the data, and none of their rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gossamer import mistakes
from gossamer.arrays import FloatArray
from gossamer.data.declaration import Declaration
from gossamer.data.settings import IN_MEMORY
from gossamer.errors import DataError, ModelError, failing_as
from gossamer.files import elsewhere, read_text
from gossamer.objectives.linear.kernels import LOSSES
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.network_settings import KIND, AdapterSettings, OwnLoss
from gossamer.objectives.objective import Objective
from gossamer.section import Section
from gossamer.trained.about import AboutSettings
from gossamer.vectors import Part, pack, unpack
from gossamer.version import __version__

ARRAYS = "model.safetensors"
_SUFFIX = ".safetensors"


def saved(model: FloatArray, card: Card) -> bytes:
    """The content of a safetensors file with the vector ``model`` [size], and with the card in its metadata."""
    arrays = unpack(np.asarray(model), card.arrays)
    return save({name: np.ascontiguousarray(part) for name, part in arrays.items()}, card.metadata)


def read_model(place: Path) -> tuple[Card, FloatArray]:
    """The card and the vector [size] of a folder, or of a safetensors file that was handed on alone.

    Raises
    ------
    DataError
        If there is none, or its files are damaged or do not fit each other.
    """
    odd = OSError, ValueError  # a name that is too long, or has a zero byte
    with failing_as(DataError, f"{str(place)[:80]}: cannot be read (", "); give a run's results", odd):
        folder = place.is_dir()
        arrays = place / ARRAYS if folder else place
        there = arrays.is_file()
    if not there:
        found = elsewhere(place, ARRAYS) or ", found none"
        raise DataError(
            f"{place}: expected the folder of a run, with {ARRAYS}{found}; give a run's results, or a party's --store, "
            "or such a file itself"
        )
    try:
        with safe_open(arrays, "np") as file:
            text = (file.metadata() or {}).get(METADATA)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        if folder or place.suffix == _SUFFIX:
            raise damaged(arrays, str(error)) from None
        raise DataError(
            f"{place}: expected a run's results, a party's --store, or a file that ends in {_SUFFIX}, found a file of "
            "another kind; give the model there"
        ) from None
    inside = None if text is None else read_card(text, arrays)
    beside = _card_beside(place / FILE) if folder else None
    if inside is not None and beside is not None and inside != beside:
        raise damaged(place, f"{FILE} and {ARRAYS} are not of one run")
    card = beside or inside
    if card is None:
        raise DataError(
            f"{place}: expected a model with its card, which says how rows are read, found arrays without one; give "
            "the results folder or file of a run of this Gossamer"
        )
    return card, _vector(arrays, card, tensors)


def _card_beside(path: Path) -> Card | None:
    if not path.exists():
        return None
    try:
        return read_card(read_text(path, LARGEST), path)
    except OSError as error:
        raise damaged(path, str(error.strerror or error)) from None


def _vector(path: Path, card: Card, found: dict[str, Any]) -> FloatArray:
    """The numbers, in the order of the card's parts."""
    if found.keys() != (expected := {part.name for part in card.arrays}):
        raise damaged(path, f"arrays {sorted(found)[:5]} in the place of {sorted(expected)[:5]}")
    try:
        vector = pack(found, card.arrays, card.objective.dtype)
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from None
    if not np.isfinite(vector).all():
        raise DataError(
            f"{path}: expected finite numbers, found others: the run diverged, and such a model predicts nothing; "
            "lower its learning rate"
        )
    return vector


FILE = "model.json"
METADATA = "gossamer"
"""The key of a safetensors file's metadata."""
LARGEST = 32 << 20
"""Most characters of a card."""

_MOST = 2**31
Size = Annotated[int, Field(ge=1, le=_MOST)]


class LossCard(Section):
    """A loss that another distribution registers.

    Attributes
    ----------
    settings : mapping
        Name and settings of the loss.
    distribution, version : str
        Distribution that registered it, and its version.
    sha256 : str
        Digest of its source.
    """

    settings: dict[str, Any]
    distribution: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """As specs say it."""
        return str(self.settings.get("name"))


_OfScores = Literal["logistic", "softmax", "squared", "squared_error", "poisson", "hinge"]
"""Losses of linear models."""
_OfOthers = Literal["cross_entropy", "mse", "registered", "binary_cross_entropy", "foreign"]


class ObjectiveCard(Section):
    """The function that the parameters are of.

    Attributes
    ----------
    name : str, optional
        Name of a linear model or a network of Gossamer's.
    module : str, optional
        One's own network as ``package.module:Class``. Of a module that was given from memory there is neither.
    loss : str
        Loss that was minimised: it says what scores mean. ``registered`` is one of another distribution, ``foreign``
        that of code which is not Gossamer's, and which alone predicts.
    registered : LossCard, optional
        Loss of another distribution.
    intercept : bool
        Whether a linear model has a bias.
    dtype : {"float32", "float64"}
        Type of the parameters.
    frozen : str, optional
        SHA-256 of a network's numbers that are not trained, which are in its code and not in the file.
    adapters : AdapterSettings, optional
        Adapters of a network, whose parameters these are.
    outputs : int, optional
        Number of answers an example, where there are several.
    """

    name: str | None = None
    module: str | None = None
    loss: Literal[_OfScores, _OfOthers]
    registered: LossCard | None = None
    intercept: bool = True
    dtype: Literal["float32", "float64"] = "float32"
    frozen: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    adapters: AdapterSettings | None = None
    outputs: Annotated[int | None, Field(ge=1, le=_MOST)] = None

    @property
    def linear(self) -> bool:
        """Whether scores are ``W x + b``."""
        return self.loss in get_args(_OfScores)

    def _problems(self) -> Iterator[str]:
        if (self.loss == "registered") != (self.registered is not None):
            yield "loss: registered goes with what is registered, and no other loss does"


class PartCard(Section):
    """An array of the model's.

    Attributes
    ----------
    name : str
        Name in the safetensors file.
    shape : tuple of int
        Shape of the array.
    """

    name: str = Field(min_length=1)
    shape: tuple[Size, ...]


class Card(Section):
    """A model without its numbers.

    Attributes
    ----------
    format : int
        Version of these keys.
    gossamer : str
        Version that wrote it.
    objective : ObjectiveCard
        Function that the model is.
    parts : tuple of PartCard
        Arrays of the model, in the order in which they make a vector.
    data : Declaration
        Declaration of how rows are read, scaled and ordered, and of what the classes are called.
    owners : tuple of str, optional
        The parties whose data it was trained on, where they are public.
    note : str, optional
        Note that its holder must know.
    about : AboutSettings, optional
        What people said of it.
    recalibration : tuple of float, optional
        Intercept and slope of its log odds that were fitted after the run, which its numbers have in them.
    """

    format: Literal[2] = 2
    gossamer: str = __version__
    objective: ObjectiveCard
    parts: tuple[PartCard, ...] = Field(min_length=1)
    data: Declaration
    owners: tuple[str, ...] | None = None
    note: str | None = None
    about: AboutSettings | None = None
    recalibration: tuple[float, float] | None = None

    def to_json(self, *, indent: int | None = None) -> str:
        """Write it as standard JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=indent, allow_nan=False, ensure_ascii=False)

    def _problems(self) -> Iterator[str]:
        if not self.data.shape or min(self.data.shape) < 1 or max(self.data.shape) > _MOST:
            yield f"data.shape must have sizes from 1 to {_MOST}, found {list(self.data.shape)}"
        if self.data.classes is not None and len(self.data.classes) < 2:
            yield "data.classes must be two or more"

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of a safetensors file. One key alone: the file has several in an order that changes."""
        return {METADATA: self.to_json()}

    @property
    def arrays(self) -> tuple[Part, ...]:
        """The parts of the vector."""
        return tuple(Part(part.name, part.shape) for part in self.parts)


def read_card(text: str, where: Path) -> Card:
    """The card in a text, which is from the file ``where``.

    Raises
    ------
    DataError
        If it is damaged, or of another version.
    """
    return mistakes.read_card(Card, text, where, "model", LARGEST)


def damaged(where: Path, why: str) -> DataError:
    """Error for a file that no run has left so."""
    return mistakes.damaged(where, "model", why)


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
        raise damaged(where, mistakes.first_of(error, "objective.registered.settings")) from None
    return loss


def describe(objective: Objective, **said: Any) -> ObjectiveCard:
    """Describe an objective, so that `rebuilt` makes it again.

    Parameters
    ----------
    objective : Objective
        Objective that was minimised.
    **said
        Keys of the card that are as in a spec: ``name`` and ``module``, neither for a module that was given from
        memory, ``adapters`` and ``outputs``.
    """
    dtype: Any = objective.dtype.name
    if isinstance(objective, LinearModel):
        loss: Any = next(known for known, law in LOSSES.items() if law is objective.loss)
        return ObjectiveCard(name=loss, loss=loss, intercept=objective.intercept, dtype=dtype)
    network: Any = objective
    loss, registered = network.loss, None
    if not isinstance(loss, str):
        if (found := KIND.of(loss)) is None:
            raise ModelError(f"the loss {type(loss).__name__} is registered by nobody, so no file can name it")
        whose = {"distribution": found.distribution, "version": found.version, "sha256": found.source}
        registered = LossCard(settings=loss.model_dump(mode="json"), **whose)
        loss = "registered"
    return ObjectiveCard(loss=loss, registered=registered, dtype=dtype, frozen=network.frozen, **said)


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
    if tuple(made.parts) != card.arrays:
        missing = next(
            (f"{wanted.name} {list(wanted.shape)}" for wanted in card.arrays if wanted not in made.parts), "an order"
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
    features = int(np.prod(card.data.shape))
    classes = None if card.data.labels is None else len(card.data.labels)
    try:
        return LinearModel(told.loss, features, classes, intercept=told.intercept, dtype=np.dtype(told.dtype))
    except DataError as error:
        raise damaged(where, str(error)) from None


def _network(card: Card, where: Path, module: Any) -> Objective:
    # Networks need torch, which is optional, so it is imported only here.
    from gossamer.objectives.models import build_model, load_module
    from gossamer.objectives.models import made as made_of
    from gossamer.objectives.networks.adapters import adapt
    from gossamer.objectives.networks.module import TorchModule
    from gossamer.objectives.networks.network import loss_of

    told, classes = card.objective, None if card.data.labels is None else len(card.data.labels)
    if told.loss == "foreign":
        raise ModelError(f"{where}: the code that the run trained is not Gossamer's, and alone predicts; load {ARRAYS}")
    loss: str | OwnLoss = told.loss if told.registered is None else own_loss(told.registered, where)
    outputs = loss_of(loss, classes).wanted or classes or told.outputs or 1
    if module is not None:
        module = made_of(module, card.data.shape, outputs).module
    elif told.module is not None and not told.module.startswith(f"{IN_MEMORY}:"):
        module = load_module(told.module, card.data.shape, outputs)
    elif told.module is None and told.name is not None:
        module = build_model(told.name, card.data.shape, outputs)
    else:
        raise ModelError(
            f"{where}: the run had its module from memory, and no file has its code; give it: "
            "gs.load_model(folder, module=...)"
        )
    if told.adapters is not None:
        module = adapt(module, told.adapters)
    # It is not trained, so it does not matter what it does in training mode, and its scores need no kernels.
    made = TorchModule(module.eval(), loss=loss, strategy="loop", classes=classes)
    if told.frozen != made.frozen:
        raise ModelError(
            f"{where}: numbers of {_named(card)} that are not trained, such as buffers, are not those of the run; give "
            "the module as it was"
        )
    return made
