"""Settings of a spec for models that nodes make for themselves alone, after the run."""

from __future__ import annotations

from pydantic import Field

from gossamer.algorithms.learning_rate import OneRate
from gossamer.privacy.unit_tasks import TrainingQuery
from gossamer.section import Section


class PersonalisationSettings(Section):
    """A last training of the final model by each node on its own examples, which is never sent.

    It changes neither the run nor its guarantee. What comes of it is raw: it is for the node that made it, and for
    nobody else.

    Attributes
    ----------
    steps : int
        Mini-batch steps from the final model.
    learning_rate : float
        Of each step.
    momentum : float
        Of the steps, as in PyTorch; 0 is plain SGD.
    proximal : float
        mu of mu/2 |w - x|^2, which is added to what a node minimises, to hold it near the final model x.
    batch_size : int
        Examples of a step: a node shuffles its own, and takes them in turn.
    """

    steps: int = Field(ge=1, le=1_000_000)
    learning_rate: OneRate = Field(default=0.1, gt=0, le=1e6)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    proximal: float = Field(default=0.0, ge=0, le=1e6)
    batch_size: int = Field(default=16, ge=1, le=1_000_000)

    @property
    def query(self) -> TrainingQuery:
        """The training."""
        return TrainingQuery(self.steps, self.batch_size, self.learning_rate, self.momentum, self.proximal)
