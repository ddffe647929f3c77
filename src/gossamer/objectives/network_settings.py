"""Settings of a network in a spec: its loss, Gossamer's own by name or registered by others, and its adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt, SerializeAsAny, WrapValidator, model_serializer

from gossamer.section import Kind, Section, bare


class AdapterSettings(Section):
    """Low-rank adapters (LoRA): of a network only these are trained, clipped, noised and sent.

    A layer ``W x`` becomes ``W x + (alpha / rank) B A x``; A is drawn, and B begins at zero. All parameters that the
    network has otherwise stay as they are, and are public.

    Attributes
    ----------
    rank : int
        Number of rows of A.
    alpha : float
        Factor of what an adapter adds, times the rank.
    modules : list of str
        Names of `torch.nn.Linear` layers (or `Conv1D` of transformers), as ``named_modules()`` has them, or their ends:
        ``q_proj`` is the layer of this name in every block.
    """

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    modules: tuple[str, ...] = Field(min_length=1)


class NamedLoss(Section):
    """A loss of Gossamer's own. It has no settings, and a spec is written with its name alone."""

    name: Literal["cross_entropy", "mse", "binary_cross_entropy"]

    @model_serializer
    def _a_name(self) -> str:
        return self.name


class OwnLoss(Section):
    """Base of losses of other distributions, which register them in the group ``gossamer.losses``.

    A class has a ``name: Literal["..."] = "..."``, its settings, a `task`, and `loss`. It sees one example at a time,
    whatever it does: clipping a gradient bounds how much an example counts only if its loss depends on no other.

    A module's outputs for one example come as a number [] if there is one of them, and as [outputs] if there are more.

    Attributes
    ----------
    task : {"classification", "regression"}
        Whether targets are class numbers or real numbers.
    """

    task: ClassVar[Literal["classification", "regression"]]

    def outputs(self, classes: int) -> int:
        """Number of outputs that the module must have for an example; ``classes`` is 1 for real targets."""
        return classes

    def loss(self, outputs: Any, target: Any) -> Any:
        """Loss of one example, a tensor [], which `torch.func` must be able to differentiate and to vectorise.

        Parameters
        ----------
        outputs : Tensor [] or [outputs]
            The module's, for the example.
        target : Tensor []
            Class number (int64) of the example, or its real target.
        """
        raise NotImplementedError

    def scores(self, outputs: Any) -> Any:
        """Scores of one example: what it is predicted by; by default the outputs.

        Parameters
        ----------
        outputs : Tensor [] or [outputs]
            The module's, for the example.

        Returns
        -------
        Tensor [classes] or []
            A score a class, whose softmax are its probabilities; or the real number that is predicted.
        """
        return outputs


def said_of(settings: NamedLoss | OwnLoss) -> str | OwnLoss:
    """The name of a loss of Gossamer's own, or the settings of another."""
    return settings.name if isinstance(settings, NamedLoss) else settings


KIND = Kind("loss", "gossamer.losses", (NamedLoss,), OwnLoss, "its loss of an example depends on that alone")
if TYPE_CHECKING:
    LossSettings: TypeAlias = NamedLoss | OwnLoss
else:  # the base of what others register is no loss itself
    LossSettings = Annotated[NamedLoss, WrapValidator(KIND.known), SerializeAsAny(), bare("name")]
