"""Records of correlated noise that can be gone on with after a crash, though no noise is ever stored.

With A = B C the factorisation (`correlated_noise`), x_j what the unit's state s_j moves by in round j, and z fresh in
every record, message i is the i-th row of B (C x + z). Instead of the noise of rounds before, as `NoiseStream` does,
this keeps what was *answered* then, M_j, and the states s_j. They are enough. With c the kernel of C,

    q_i = x_i + c_1 x_(i-1) + ... + z_i,        y_i = q_i - c_1 y_(i-1) - ...,        M_i = M_(i-1) + y_i,

where x_j = s_j - s_(j-1) and y_j = M_j - M_(j-1): M = A y and C y = q, so M = B (C x + z). The last b of both are
needed, b the length of the kernel; of `random_walk` one, where M_i = M_(i-1) + (s_i - s_(i-1)) + z_i. With
`independent` noise C is A and B the identity, so M_i = s_i + z_i, and nothing is kept.

**What a crash costs.** Only q_i is computed from raw data, all else from what was answered. Noise z_i is drawn after
everything before it was fixed, and never again for this record, unless its first answer was not kept, in which case
it was not given to anybody. So whatever is answered, over any number of crashes, has the law of the run without
them, as far as crashes do not depend on the data; and the guarantee is the planned one. Where the answers kept do not
reach far enough back, a record could only start a new stream, which the plan does not cover
(`Factorisation.sensitivity_after_loss`): it is refused.

**On the grid.** The raw part of q_i is rounded to a grid, and z_i drawn on it (`grid_noise`). Let one change of the
data move every x_j by at most D. Then the raw part of q_i is moved by (C 1)_i D, and with rounding and error by at most
(C 1)_i (D + 2 error + g sqrt(d)), since (C 1)_i is 1 or more. So noise that is to D + 2 error + g sqrt(d) what the
planned noise is to D proves the same of all records together. The error is that of states in float64, added up over
the rounds: see `rounding_error`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.privacy.exact.grid_noise import MOST, GridGaussian
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, NoiseLaw, StreamRecord, Temporal


class RecordNoise:
    """Draws what is new in a record.

    Parameters
    ----------
    noise : CorrelatedNoise
        Noise of all records.
    size : int
        Coordinates of a record.
    moved : float or None
        D, how far one change of the data moves a unit's state in a round, in L2 norm; None where nothing is proved.
    agents : int
        L, agents whose updates are in a round.
    longest : float
        The most L2 norm of what a state moves by in a round.

    Raises
    ------
    SpecError
        If the noise is out of the range of the grid.
    """

    def __init__(self, noise: CorrelatedNoise, size: int, moved: float | None, agents: int, longest: float) -> None:
        factorisation = noise.factorisation
        self._independent = factorisation.temporal is Temporal.INDEPENDENT
        self._kernel = factorisation.kernel
        self.needed = 0 if self._independent else len(self._kernel)
        self._deviation, self._size = noise.standard_deviation, size
        self._random = SecretRandomness()
        self.grid: GridGaussian | None = None
        if noise.law is NoiseLaw.GAUSSIAN:
            self.grid = _grid(noise.standard_deviation, size, factorisation.rounds, moved, agents, longest)

    def answer(self, state: FloatArray, before: Sequence[StreamRecord]) -> FloatArray:
        """M_i [size], with fresh noise.

        Parameters
        ----------
        state : ndarray [size] of float64
            s_i.
        before : sequence of StreamRecord
            The last `needed` records or, of fewer, all; the oldest first.
        """
        if self._independent:
            return self._noisy(state)
        zero = np.zeros(self._size)
        # Newest first; before the first record there was nothing.
        states = [state, *(record.state for record in reversed(before)), zero]
        answers = [*(record.answer for record in reversed(before)), zero]
        raw = states[0] - states[1]
        known = answers[0].copy()
        for weight, now, then in zip(self._kernel[1:], states[1:], states[2:]):
            raw += weight * (now - then)
        for weight, now, then in zip(self._kernel[1:], answers, answers[1:]):
            known -= weight * (now - then)
        return known + self._noisy(raw)

    def _noisy(self, raw: FloatArray) -> FloatArray:
        if self.grid is not None:
            return self.grid.release(raw, self._random.words)
        return raw + self._deviation * self._random.laplace(0.0, np.sqrt(0.5), self._size)


def rounding_error(size: int, rounds: int, agents: int, longest: float) -> float:
    """Bound how far a round's computed move may be from one that changes of the data move by D.

    All is done in float64, with u = 2^-53; l stands for ``longest``. The mean of L updates errs by L u l, the norms
    that it may be shortened by by 2 d u l, a state of T of them by T u l in each round, and so does the difference of
    two. What kernels make of these, with weights of at most 1, errs by T^2 u l more. 8 (d + L + (T+1)^2) u l is more
    than all of that.
    """
    return 2.0**-50 * (size + agents + (rounds + 1) ** 2) * longest


def _grid(deviation: float, size: int, rounds: int, moved: float | None, agents: int, longest: float) -> GridGaussian:
    """Noise on a grid that is as private as that of standard deviation ``deviation``."""
    if moved is None:  # nothing is proved, so any grid will do
        return GridGaussian.like(Gaussian(deviation, 1.0), size)
    error = rounding_error(size, rounds, agents, longest)
    grid = GridGaussian.like(Gaussian(moved, deviation / moved), size, error=error)
    if not (rounds + 1) * longest < MOST * grid.step:
        raise SpecError(
            f"noise of standard deviation {deviation:g} is too little for states of length up to "
            f"{rounds * longest:g} on a grid, which would saturate: use more noise, or a smaller clip"
        )
    return grid
