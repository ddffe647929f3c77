"""The section ``stop`` of a spec."""

from __future__ import annotations

from pydantic import Field, PositiveFloat

from gossamer.section import Section


class StopSettings(Section):
    """Conditions that end a run, whichever comes first. Without any, it ends after the algorithm's rounds or 20 epochs.

    Attributes
    ----------
    updates : int, optional
        Updates of all nodes together. The schedule up to there is looked ahead at before a run, some 10,000 a second;
        ``updates_per_node`` of the algorithm and ``epochs`` need no such look.
    epochs : float, optional
        Passes of each node over its own shard, in expectation; a node that is done goes on answering.
    virtual_seconds : float, optional
        Of the simulated clock.
    accuracy : float, optional
        Accuracy of the run's model, the server's or the mean of the nodes', on the public examples of
        ``evaluation.public_path``; without these on the test examples, which then look better than they are. Privacy is
        charged for the whole plan, so another bound is needed too.
    """

    updates: int | None = Field(default=None, ge=1, le=10**8)
    epochs: float | None = Field(default=None, gt=0, le=1e6)
    virtual_seconds: PositiveFloat | None = None
    accuracy: float | None = Field(default=None, gt=0, le=1)
