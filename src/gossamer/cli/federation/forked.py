"""Imports shared by the parties of a federation on one machine: made once, by the process theirs are forked off.

A hundred parties that each imported the accountants, and loaded compiled loops, would keep a small machine busy for
longer than they wait for each other. So a small plan is made here, and what it needs is there after the fork.
"""

import gc

import numpy as np

import gossamer.cli.federation.node
import gossamer.cli.main
import gossamer.deployment.party.party  # noqa: F401
from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting import accountants, planner
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson, ReleaseKind

_RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE


def _load_what_is_lazy() -> None:
    """Plan and compute a little, so that what is imported or compiled on first use is there."""
    sampling = Poisson(0.1)
    law = planner.calibrate(1.0, 1e-5, _RELATION, [{sampling: 10}], planner.gaussian_family(1.0)).mechanism
    accountants.renyi_divergence(ReleaseKind(law, sampling, 1), 8.0, _RELATION)
    model = LinearModel("softmax", features=1, classes=2)
    split = Split(np.zeros((2, 1), dtype=np.float32), np.array([0, 1]))
    models = np.zeros((1, model.size), dtype=np.float32)
    model.clipped_gradients(models, split, [np.arange(2)], 1.0)


_load_what_is_lazy()
# The collector of a forked process would write to all objects that there are, and so make copies of them.
gc.collect()
gc.freeze()
