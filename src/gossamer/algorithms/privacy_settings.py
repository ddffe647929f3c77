"""The sections ``privacy`` and ``budget`` of a spec."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, PositiveFloat, StrictBool, Tag, model_validator

from gossamer.privacy.accounting.group_rows import MOST_ROWS
from gossamer.privacy.clipping import ClipSettings
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.section import Composite, Section

Multiplier = Annotated[float, Field(ge=1e-2, le=1e6)]
# Tags in brackets are left out of error messages.
_ONE_OR_EACH = Discriminator(lambda value: "[each]" if isinstance(value, (list, tuple)) else "[one]")
Multipliers = Annotated[
    Annotated[Multiplier, Tag("[one]")] | Annotated[tuple[Multiplier, ...], Tag("[each]")], _ONE_OR_EACH
]
Epsilons = Annotated[
    Annotated[PositiveFloat, Tag("[one]")] | Annotated[tuple[PositiveFloat, ...], Tag("[each]")], _ONE_OR_EACH
]
"""A number for all nodes, or a list with one for each."""


class PrivacySettings(Composite):
    """Settings that make releases private.

    Attributes
    ----------
    mechanism : {"gaussian", "l2_laplace", "laplace", "none"}
        The noise law. ``l2_laplace``: density ~ exp(-epsilon |noise| / sensitivity). ``laplace``: of each coordinate,
        for `graph_federated`. ``none``: no noise, and the guarantee says "none".
    clip : float or mapping, optional
        C, the most L2 norm of a per-example gradient, or a mapping with a ``policy``: ``fixed`` (``bound``),
        ``quantile`` (follows a quantile of the norms, for a share of each release), ``stages`` (of `mapa`) or ``none``
        (of `graph_federated`: nothing is bounded, so nothing is guaranteed). By default, `mapa` has stages, `audp` with
        Gaussian noise a quantile, and other noise a clip of 1; without noise nothing is clipped. `graph_federated`
        clips mean gradients of mini-batches, with the regulariser's part. `fedavg`, `fedbuff` and `fedasync` clip a
        client's whole update, of all its local steps; with ``privacy_unit: example`` they clip per-example gradients.
    sampling : {"poisson", "fixed_size"}
        How batches are drawn.
    neighboring_relation : {"add_or_remove_one", "replace_one"}
        Which datasets are neighbours.
    noise_multiplier : float or list, optional
        Of ``gaussian``: standard deviation of the noise on the sum over C; a list has one for each node. Left out, it
        is calibrated to the budget.
    epsilon : float or list, optional
        Of ``l2_laplace``: the pure epsilon of one release on a full batch; a list has one for each node. Left out, it
        is calibrated to the budget.
    standard_deviation : float, optional
        Of ``gaussian`` and ``laplace`` in `graph_federated`: of each coordinate of what a server's noise is made of
        in a round. Left out, it is calibrated to the budget.
    agent_noise : float, optional
        Of `graph_federated` with ``masking: secure``: standard deviation of each coordinate of what an agent adds
        to its update, against its own server, over the most length of an update, mu B.
    norm : {"gamma", "exponential"}
        Of ``l2_laplace``. ``exponential`` reproduces a paper's figures and guarantees nothing.
    noise_scope : {"all", "first_layer"}
        Of ``l2_laplace``. ``first_layer`` reproduces a paper's figures and guarantees nothing.
    delta : float
        At which epsilon is reported when there is no budget.
    accept_weak : bool, optional
        ``true`` takes a delta above 0.01, of the budget or this one, which says next to nothing.
    noise_secret : {"fresh", "reproducible"}
        ``fresh``: noise and samples of a simulation come from 128 random bits, drawn for each run and kept beside its
        results. ``reproducible``: from the seed, for tests and studies; the guarantee says "none".
    shared_samples : bool, optional
        ``true`` draws batches from the seed alone, so that runs which differ in noise, mechanism or masking draw the
        same ones, for paired comparisons. Only with reproducible noise, or where there is nothing to hide.
    """

    mechanism: Literal["gaussian", "l2_laplace", "laplace", "none"] = "gaussian"
    clip: ClipSettings | None = None
    sampling: Literal["poisson", "fixed_size"] = "poisson"
    neighboring_relation: NeighboringRelation | None = None
    noise_multiplier: Multipliers | None = None
    epsilon: Epsilons | None = None
    standard_deviation: PositiveFloat | None = None
    agent_noise: PositiveFloat | None = None
    norm: Literal["gamma", "exponential"] = "gamma"
    noise_scope: Literal["all", "first_layer"] = "all"
    delta: float = Field(default=1e-5, ge=1e-50, lt=1)
    accept_weak: StrictBool | None = None
    noise_secret: Literal["fresh", "reproducible"] = "fresh"
    shared_samples: StrictBool | None = None

    @model_validator(mode="after")
    def _levels_belong_to_their_law(self) -> PrivacySettings:
        if self.noise_multiplier is not None and self.mechanism != "gaussian":
            raise ValueError(f"noise_multiplier is for gaussian noise, and mechanism is {self.mechanism}; leave it out")
        if self.epsilon is not None and self.mechanism != "l2_laplace":
            raise ValueError(
                f"epsilon is that of one release of l2_laplace, and mechanism is {self.mechanism}; "
                "leave it out, or give a budget"
            )
        if self.standard_deviation is not None and self.mechanism not in ("gaussian", "laplace"):
            raise ValueError(
                f"standard_deviation is for gaussian and laplace noise, and mechanism is {self.mechanism}; leave it out"
            )
        if not self.proved and self.mechanism != "l2_laplace":
            raise ValueError(f"norm and noise_scope are for l2_laplace, and mechanism is {self.mechanism}")
        if not self.proved and self.epsilon is None:
            raise ValueError("norm: exponential and noise_scope: first_layer meet no budget; give privacy.epsilon")
        return self

    @property
    def proved(self) -> bool:
        """Whether the noise is one of those that a guarantee is proved for, or none at all."""
        return self.norm == "gamma" and self.noise_scope == "all"

    @property
    def level(self) -> float | tuple[float, ...] | None:
        """Amount of noise that the spec says."""
        if self.standard_deviation is not None:
            return self.standard_deviation
        return self.noise_multiplier if self.mechanism == "gaussian" else self.epsilon

    @property
    def relation(self) -> NeighboringRelation:
        """The relation asked for, or the one that goes with the sampling."""
        if self.neighboring_relation is not None:
            return self.neighboring_relation
        poisson = self.sampling == "poisson"
        return NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE


class Budget(Section):
    """The most that any node's data may leak: ``epsilon`` at ``delta``; a list has an epsilon for each node.

    Attributes
    ----------
    epsilon : float or list
        Upper bound of the privacy loss.
    delta : float
        Probability with which it may not hold.
    rows_per_person : int, optional
        The guarantee is for all training examples of a person together, who has at most so many. Left out, it is for
        each example. Where the data say whose they are (``dataset.person``), more are refused.
    """

    epsilon: Epsilons
    delta: float = Field(default=1e-5, ge=1e-50, lt=1)
    rows_per_person: int | None = Field(default=None, ge=1, le=MOST_ROWS)
