"""Policies that choose the bound on per-example gradients: the setting ``privacy.clip``.

| policy | the clip | costs |
|---|---|---|
| `FixedClip` | stays what it is | nothing |
| `StageClip` | falls from stage to stage, by a schedule fixed before the run (algorithm `mapa`) | nothing |
| `QuantileClip` | follows a quantile of the gradients' norms | a share of every release |
| `NoClip` | there is none | the guarantee: noise on what nothing bounds proves nothing |

`QuantileClip`. With every gradient a batch answers how many of its n examples have a norm of at most the clip, as
``sum_i (b_i - 1/2)`` with b_i 1 or 0. The sum of gradients, in units of the clip, and this count are *one* release of
one sample: with noise of standard deviations z and s_b, one example moves both, in units of their noise, by at most
``sqrt(1/z^2 + 1/(4 s_b^2))`` under add-or-remove-one, and by twice that under replace-one, where b_i moves from -1/2 to
1/2. So the two are a Gaussian release of multiplier ``(1/z^2 + 1/(4 s_b^2))^(-1/2)``, and are charged as that. Of a
release with multiplier m the count gets the share r of the squared privacy loss:

    z = m / sqrt(1 - r)          s_b = m / (2 sqrt(r))

From the released fraction ``b~ = (sum_i (b_i - 1/2) + noise)/B + 1/2``, B the expected batch size, the clip moves by
``C <- C exp(-eta_C (b~ - gamma))``. A clip is therefore kept and sent as its *logarithm*, which is linear in what was
released, and needs no privacy of its own.

References
----------
Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping", NeurIPS 2021,
algorithm 1 and theorem 1 (there for users in rounds; here for examples in batches).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from gossamer.privacy.tasks import Query
from gossamer.section import Section
from gossamer.vectors import Blank, Model, Public, Released

_MOST = math.log(1e9)  # logarithms beyond are taken for this: no peer makes a clip that overflows
Bound = Annotated[float, Field(ge=1e-9, le=1e9)]


class _Policy(Section):
    @property
    def initial_bound(self) -> float | None:
        """The clip at the start; None where something else decides it."""
        return getattr(self, "bound", getattr(self, "initial", math.inf))


class FixedClip(_Policy):
    """The same clip throughout. A bare number is this."""

    policy: Literal["fixed"] = "fixed"
    bound: Bound = 1.0


class StageClip(_Policy):
    """The stages of `mapa`; ``initial`` replaces the first one's bound (Theorem 3's by default)."""

    policy: Literal["stages"] = "stages"
    initial: Bound | None = None


class QuantileClip(_Policy):
    """The clip follows the ``quantile`` of the gradients' norms, from ``initial``.

    Attributes
    ----------
    initial : float
        The clip before anything is known. Too small costs a few slow steps; too large, a model that noise has carried
        far away by the time the clip is right.
    quantile : float
        gamma, the share of examples whose gradients are to stay as they are.
    learning_rate : float
        eta_C, by how much a logarithm of the clip moves at most in one update.
    count_share : float
        r, the share of a release's squared privacy loss that is spent on the count.
    step_bound : float, optional
        While the clip is larger than this, gradients (not the L2 term) are scaled down by their ratio, so that a
        step is never longer, or noisier, than with a fixed clip of this size; None scales nothing.
    """

    policy: Literal["quantile"] = "quantile"
    initial: Bound = 0.1
    quantile: float = Field(default=0.8, gt=0, lt=1)
    learning_rate: float = Field(default=0.2, gt=0, le=10)
    count_share: float = Field(default=0.01, gt=0, lt=1)
    step_bound: Bound | None = 1.0


class NoClip(_Policy):
    """Nothing is clipped, for a paper's figures: noise then guarantees nothing."""

    policy: Literal["none"] = "none"


_STEADY = frozenset({FixedClip, NoClip})
"""Policies whose clip never moves."""


def _from_number(value: Any) -> Any:
    # A string may be a number that YAML 1.1 does not recognise, such as 1e-2.
    if isinstance(value, (int, float)):
        return {"policy": "fixed", "bound": value}
    if isinstance(value, str):
        return {"policy": value} if value.isidentifier() else {"policy": "fixed", "bound": value}
    return value


ClipSettings = Annotated[
    Annotated[FixedClip | StageClip | QuantileClip | NoClip, Field(discriminator="policy")],
    BeforeValidator(_from_number),
]
"""A number, the name of a policy, or a mapping with a ``policy``."""


@dataclass(frozen=True)
class Clipping:
    """A policy at work, in the hands of whoever owns the clip: a node for itself, or a server for its edges.

    Attributes
    ----------
    policy : FixedClip, StageClip, QuantileClip or NoClip
        Policy that the spec names.
    """

    policy: FixedClip | StageClip | QuantileClip | NoClip = field(default_factory=FixedClip)

    def initial(self, like: Model, bound: float | None = None) -> Public:
        """The logarithm of the first clip, [1], or of ``bound``; blank where the model ``like`` is."""
        if isinstance(like.values, Blank):
            return Public(Blank(1, np.float64))
        bound = self.policy.initial_bound if bound is None else bound
        return Public(np.array([math.log(1.0 if bound is None else bound)]))

    def query(self, query: Query, log_clip: Model) -> Query:
        """``query`` at this clip; without a moving clip it is the same."""
        if type(self.policy) in _STEADY:
            return query
        bound = bound_of(log_clip)
        at_bound = replace(query, mechanism=query.mechanism.with_clip(bound))
        if isinstance(self.policy, StageClip):
            return at_bound
        assert isinstance(self.policy, QuantileClip)
        longest = bound if self.policy.step_bound is None else self.policy.step_bound
        return replace(at_bound, count_share=self.policy.count_share, unit=max(bound / longest, 1.0))

    def moved(self, log_clip: Model, released: Released) -> tuple[Model, Released]:
        """The clip after a release, and the gradient without the count.

        Parameters
        ----------
        log_clip : Public or Released
            Logarithm of the clip, [1].
        released : Released
            Answer of the data side: the mean gradient [size], and with `QuantileClip` the count [1] after it.
        """
        if type(self.policy) in _STEADY or not isinstance(self.policy, QuantileClip):
            return log_clip, released
        count, gradient = released[released.size - 1 :], released[: released.size - 1]
        excess = count - self._target(log_clip)
        return (log_clip - self.policy.learning_rate * excess).within(_MOST), gradient

    def _target(self, log_clip: Model) -> Public:
        """gamma - 1/2, what the centred fraction should be."""
        assert isinstance(self.policy, QuantileClip)
        blank = isinstance(log_clip.values, Blank)
        return Public(Blank(1, np.float64) if blank else np.array([self.policy.quantile - 0.5]))


def bound_of(log_clip: Model) -> float:
    """The clip of which ``log_clip`` [1] is the logarithm, between 1e-9 and 1e9; 1 for a blank one."""
    if isinstance(log_clip.values, Blank):
        return 1.0
    return math.exp(min(max(float(log_clip.values[0]), -_MOST), _MOST))
