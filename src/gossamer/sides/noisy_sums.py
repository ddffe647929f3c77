"""Sums of a simulation that get their noise where they are computed, all of a call together, such as on a graphics
card.

The noise is the one that `Simulated.noisy` draws: normal numbers of the same keys, to a few units in the last place.
Other laws, and sums in float64, leave here without noise, and get it as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.asked import NoisyObjective, Normals
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import Gaussian
from gossamer.randomness import Stream
from gossamer.sides.answers import divided
from gossamer.sides.number_source import Numbers
from gossamer.sides.sums import Batch, Noisy, Together, Total


class NoisyTogether(Together):
    """All gradients of a call in one, with their noise.

    Parameters
    ----------
    objective : Objective
        A `NoisyObjective`.
    data : Split
        The training examples.
    numbers : callable
        The noise's numbers of an owner, by name.
    """

    def __init__(self, objective: Objective, data: Split, numbers: Callable[[str], Numbers]) -> None:
        super().__init__(objective, data)
        assert isinstance(objective, NoisyObjective)
        self._noisy, self._numbers = objective, numbers
        self._streams: dict[str, Numbers] = {}

    def gradients(self, asked: Sequence[Batch]) -> list[Total | Noisy]:
        """The clipped sums of gradients, those of normal noise with it."""
        keys, deviations = np.zeros((len(asked), 2), np.uint64), np.zeros(len(asked))
        for place, item in enumerate(asked):
            if (deviation := self._deviation(item)) is not None:
                keys[place], deviations[place] = self._keys(item), deviation
        models, batches, clips = self.gathered(asked)
        found = self._noisy.noisy_gradients(models, self._data, batches, clips, Normals(keys, deviations))
        rows = zip(asked, found.sums, found.zeroed.tolist(), found.unclipped.tolist(), deviations > 0, strict=True)
        return [
            self._with_count(item, total, zeroed, unclipped)
            if drawn
            else Total(total, zeroed, unclipped, len(item.rows))
            for item, total, zeroed, unclipped, drawn in rows
        ]

    def _deviation(self, item: Batch) -> float | None:
        """Standard deviation of the noise that is added here; None where it is added elsewhere, or there is none."""
        query = item.ticket.task.query
        law, _ = divided(query.mechanism, query.count_share)
        here = isinstance(law, Gaussian) and self.objective.dtype == np.float32
        return law.standard_deviation if here and type(self._stream(item)) is Stream else None  # type: ignore[attr-defined]

    def _keys(self, item: Batch) -> tuple[np.uint64, np.uint64]:
        from gossamer.philox import first_words  # a compiler's import takes as long as most commands

        return first_words(self._stream(item).key, item.ticket.number)  # type: ignore[attr-defined, no-any-return]

    def _stream(self, item: Batch) -> Numbers:
        name = item.ticket.side.name
        if name not in self._streams:
            self._streams[name] = self._numbers(name)
        return self._streams[name]

    def _with_count(self, item: Batch, total: FloatArray, zeroed: int, unclipped: int) -> Noisy:
        query = item.ticket.task.query
        if query.count_share:
            _, deviation = divided(query.mechanism, query.count_share)
            generator = self._stream(item).at(item.ticket.number)
            generator.bit_generator.random_raw(2)  # what the sum's noise followed from
            count = unclipped - len(item.rows) / 2 + deviation * generator.standard_normal()
            total = np.append(total, total.dtype.type(count))
        return Noisy(total, zeroed)
