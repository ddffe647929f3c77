"""Objects that a run is given from memory, and what its spec says of them.

A spec is data, and results hold the spec. So where examples or a module are given from memory, the spec says just that:
``dataset.name: in memory`` and ``objective.module: in memory:Net``. Nothing of the arrays goes into it, not even a
hash; and whoever runs that spec alone is told what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gossamer.data.datasets import Dataset, load_dataset
from gossamer.data.memory import Data
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import SpecError
from gossamer.experiment.spec import Experiment

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


@dataclass(frozen=True)
class FromMemory:
    """Objects in the place of what a spec names; each may be missing.

    Attributes
    ----------
    data : Data or None
        Examples.
    module : torch.nn.Module, or a class or function that makes one, or None
        The network.
    """

    data: Data | None = field(default=None, repr=False)
    module: Given | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, Data | None):
            raise SpecError(f"data: expected gs.Data(x, y, ...), found {type(self.data).__name__}; wrap the arrays")

    def named(self, experiment: Experiment) -> Experiment:
        """The spec that says what is given from memory.

        Raises
        ------
        SpecError
            If it names something else already.
        """
        changes: dict[str, Any] = {}
        if self.data is not None:
            said = experiment.dataset if "dataset" in experiment.model_fields_set else None
            changes["dataset"] = self.data.settings(said)
        if self.module is not None:
            changes["objective"] = experiment.objective.model_copy(update={"module": self._name(experiment)})
        return experiment.model_copy(update=changes)

    def dataset(self, settings: DatasetSettings) -> Dataset:
        """The examples that were given, else those that ``settings`` name."""
        return load_dataset(settings) if self.data is None else self.data.dataset(settings)

    def _name(self, experiment: Experiment) -> str:
        from gossamer.objectives.models import name_of  # needs torch, which is optional

        found, settings = f"{IN_MEMORY}:{name_of(self.module)}", experiment.objective
        if settings.name is not None or settings.module not in (None, found):
            raise SpecError(
                f"the spec's objective is {settings.name or settings.module!r}, and module= gives another; leave one "
                "of them out"
            )
        return found


NOTHING = FromMemory()
