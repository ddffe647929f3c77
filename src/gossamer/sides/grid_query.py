"""A clipped sum, and the count that an adaptive clip asks for, as one vector with noise on one grid.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.privacy.exact.discrete_gaussian_blocks import LARGEST, Words
from gossamer.privacy.exact.grid_noise import MOST, GridGaussian
from gossamer.privacy.mechanisms import Gaussian
from gossamer.sides.sum_rounding import Rounding

_UP = 1 + 1e-12


@dataclass(frozen=True)
class GridQuery:
    """Draw of one release: its noise, and what an example counts for.

    Attributes
    ----------
    noise : GridGaussian
        Of all coordinates.
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
            What is provided for in the sum.
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
