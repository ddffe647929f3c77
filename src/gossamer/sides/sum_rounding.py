"""Distance of a computed sum of clipped gradients from a sum of vectors that are no longer than the clip.

A guarantee bounds what one example moves the *computed* sum by. Three things stand between that and the clip, and
noise on a grid has room for each of them (`GridGaussian.error`, and a clip that is a little larger).

**Additions.** In the objective's own type, the sum of so many vectors errs by `summation_error`, which grows with their
square. So a batch is computed in *pieces*, and these are added in float64: with K examples in pieces of k, K k units
of roundoff in the place of K^2.

**How many are added.** A Poisson sample may be the whole shard, which would cost far more noise than all samples that
ever occur. What is provided for is K, which it exceeds with a probability of at most `UNLIKELY`: by Bernstein's
inequality, for mean m and L = -log(UNLIKELY), ``K = m + L/3 + sqrt(L^2/9 + 2 L m)`` does. Were the noiseless sum of a
larger sample the true one, everything here would be proved; what is drawn differs from that with that probability,
which is added to delta for every sample (`deployed_guarantee`). The realised size itself enters nowhere.

**Other examples.** What is clipped has to be a function of the example and the model, which a peer may have chosen. The
kernels of linear models go through examples one by one, always in the same way. Those of networks are the library's
own, and round differently for another number of rows: a network's examples are computed one at a time.

**Norms.** Gradients of a linear model are scaled by norms computed in float64: their own rounding, and that of the
products, is 2 units of roundoff and `size` of float64's. Norms of networks are sums in float32, whose order is the
library's own. Room is left for 2^-10 of them; that this suffices is an assumption of the guarantee.

A clipped sum, and the count that an adaptive clip asks for, as one vector with noise on one grid.

Of n examples in a batch, with clip C, the sum s of gradients gets noise of standard deviation z C, and the centred
count c = sum_i (b_i - 1/2) of those that were not clipped s_b, where (`clipping`; m the multiplier, r the share of the
count)

    z = m / sqrt(1 - r),        s_b = m / (2 sqrt(r)).

So the noise on a c, with a = 2 C sqrt(r/(1-r)), has the standard deviation a s_b = z C, that on s. The vector (s, a c)
is a sum over the examples, however many they are, of (g_i, a (b_i - 1/2)), of length at most

    sqrt(C^2 + a^2/4) = C / sqrt(1 - r) = C',        and z C = m C'.

It is one Gaussian query of clip C' and multiplier m, in one coordinate more. An example that comes or goes moves it by
its own vector, of length C' at most, and one that is replaced by two of them; n, which depends on who is drawn and on
who is there, needs no argument of its own. Everything that decides the grid is public: C, m, r, the size, and how many
examples there may be. What is done after it, dividing by a among the rest, is post-processing.

References
----------
Casacuberta, Shoemate, Vadhan and Wagaman, "Widespread underestimation of sensitivity in differentially private
libraries and how to fix it", CCS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective
from gossamer.privacy.exact.grid_noise import LARGEST, MOST, GridGaussian, Words, summation_error
from gossamer.privacy.mechanisms import BatchSampling, Gaussian
from gossamer.protocol.snapshots import kept_whole

UNLIKELY = 2.0**-170
"""Most probability of a Poisson sample that is larger than what is provided for."""
SHARE = 2.0**-8
"""How much of the clip the error of additions may be, where that takes no pieces smaller than `SMALLEST_PIECE`."""
SMALLEST_PIECE = 16
NETWORK_SLACK = 2.0**-10
"""What is left for errors of a network's norms, relative to the clip."""


def largest_batch(sampling: BatchSampling, count: int) -> int:
    """The most examples that a sample of ``count`` has, but for a probability of `UNLIKELY`; at least 1."""
    size = getattr(sampling, "batch_size", None)
    if size is None:
        mean, log = count * sampling.rate, -math.log(UNLIKELY)
        size = min(count, math.ceil((mean + log / 3 + math.sqrt(log**2 / 9 + 2 * log * mean)) * (1 + 1e-12)))
    return max(int(size), 1)


@dataclass(frozen=True)
class Rounding:
    """Provisions for rounding in sums of at most ``most`` gradients: public numbers.

    Attributes
    ----------
    most : int
        K.
    piece : int
        k, the most examples whose gradients are added in the objective's type.
    dtype : dtype
        Type that these are added in.
    slack : float
        Part of the clip by which a gradient may be longer than that.
    """

    most: int
    piece: int
    dtype: np.dtype[np.floating]
    slack: float

    @classmethod
    def of(cls, objective: Objective, sampling: BatchSampling, count: int) -> Rounding:
        """Provide for samples of ``count`` examples, and this objective's gradients."""
        most, unit = largest_batch(sampling, count), float(np.finfo(objective.dtype).eps) / 2
        # Kernels of networks round differently for batches of different sizes, so that a model made for it would turn
        # the gradients of all when one example comes or goes. Each is computed on its own: then it depends on the
        # example and the model alone.
        alone = not isinstance(objective, LinearModel)
        piece = 1 if alone else max(SMALLEST_PIECE, int(min(SHARE / (most * unit), most)))
        return cls(most, piece, objective.dtype, clip_slack(objective))

    @classmethod
    def of_clipped_sum(cls, objective: Objective) -> Rounding:
        """Provide for sums that are clipped as a whole, in float64, after all additions."""
        return cls(1, 1, objective.dtype, _float64_slack(objective))

    def clip(self, clip: float) -> float:
        """The most length of a gradient that was clipped to ``clip``."""
        return clip * (1 + self.slack)

    def error(self, clip: float) -> float:
        """Most that the computed sum is off, in L2 norm, from that of vectors of length `clip` of ``clip``.

        Two examples more than are added pay for the rounding of products and that of a piece's sum.
        """
        piece = min(self.piece, self.most)
        pieces = -(-self.most // piece)
        inside = pieces * summation_error(self.clip(clip), piece + 2, self.dtype)
        return inside + summation_error(self.clip(clip) * piece, pieces + 2, np.float64)

    def pieces(self, count: int) -> Iterator[slice]:
        """Runs of at most `piece` of ``count`` examples; one empty run where there are none."""
        for start in range(0, max(count, 1), self.piece):
            yield slice(start, start + self.piece)


def clip_slack(objective: Objective) -> float:
    """Most that a clipped gradient may be longer than the clip, relative to it."""
    return _float64_slack(objective) if isinstance(objective, LinearModel) else NETWORK_SLACK


def _float64_slack(objective: Objective) -> float:
    """Relative slack of a norm in float64, and of numbers that are rounded to the objective's type once."""
    return float(np.finfo(objective.dtype).eps) + (objective.size + 16) * 2.0**-52


_UP = 1 + 1e-12


@dataclass(frozen=True)
class GridQuery:
    """Draw of one release: its noise, and what an example counts for.

    Attributes
    ----------
    noise : GridGaussian
        Noise of all coordinates.
    per_example : float
        a, what one example counts for; 0 where nothing is counted.
    """

    noise: GridGaussian
    per_example: float

    @classmethod
    def of(
        cls, law: Gaussian, size: int, rounding: Rounding, count_share: float = 0.0, *, any_clip: bool = False
    ) -> GridQuery:
        """Make the draw for sums of ``size`` coordinates.

        Parameters
        ----------
        law : Gaussian
            The noise on the sum; of all that is released, if something is counted.
        size : int
            d.
        rounding : Rounding
            Provisions for rounding in the sum.
        count_share : float
            r; 0 counts nothing.
        any_clip : bool
            Whether noise of this multiplier has to be within the range for every other clip of `bound_of`, too. Steps
            are powers of two, so that another clip can make it twice as many of them.

        Raises
        ------
        SpecError
            If noise like ``law`` is out of the range of the grid.
        """
        clip, error = rounding.clip(law.clip), rounding.error(law.clip)
        if count_share:
            a = 2 * clip * math.sqrt(count_share / (1 - count_share))
            clip = clip / math.sqrt(1 - count_share) * _UP
            error += a * rounding.most * 2.0**-52
        else:
            a = 0.0
        try:
            noise = GridGaussian.like(replace(law, clip=clip), size + bool(count_share), error=error)
        except SpecError as found:
            raise SpecError(f"noise of {law.noise_multiplier:g} times the clip cannot be drawn: {found}") from None
        room = 2 if any_clip else 1
        if not room * (rounding.most * clip + error) < MOST * noise.step:
            raise SpecError(
                f"noise of {law.noise_multiplier:g} times the clip is too little for sums of up to {rounding.most} "
                "gradients on a grid, which would saturate: use more noise"
            )
        if not room * noise.scale <= LARGEST:
            raise SpecError(f"noise of {law.noise_multiplier:g} times the clip is too much for a grid: use less noise")
        return cls(noise, a)

    def release(self, total: npt.NDArray[np.floating], count: float, words: Words) -> FloatArray:
        """The sum [size] with noise, and after it the count, if there is one.

        Parameters
        ----------
        total : ndarray [size]
            The clipped sum.
        count : float
            c: a whole number or a half.
        words : callable
            Random words that are used for nothing else.
        """
        answer = self.noise.release(self.vector(total, count), words)
        if self.per_example:
            answer[-1] /= self.per_example
        return answer

    def vector(self, total: npt.NDArray[np.floating], count: float) -> npt.NDArray[np.floating]:
        """Return the vector that gets the noise: raw."""
        return np.append(total.astype(np.float64), self.per_example * count) if self.per_example else total


@kept_whole
@dataclass(frozen=True, slots=True)
class Provided:
    """Provisions for one release's sum and noise: public, and fixed before its charge.

    Attributes
    ----------
    rounding : Rounding or None
        Rounding of the sum; None where it is not covered.
    grid : GridQuery or None
        The noise; None for laws that are drawn in floating point, and for none.
    """

    rounding: Rounding | None = None
    grid: GridQuery | None = None


NOTHING_PROVIDED = Provided()
