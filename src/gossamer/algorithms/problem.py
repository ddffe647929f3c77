"""Problem that a run is planned from: known before it, and public but for how persons' examples lie at nodes.

`experiment` makes a `Problem` of a spec and its data, and the algorithm makes a `Plan` of the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from gossamer.algorithms.context import Workload
from gossamer.algorithms.privacy_settings import Budget, PrivacySettings
from gossamer.algorithms.stopping import StopSettings
from gossamer.algorithms.terms import Terms
from gossamer.parameters import Part
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.releases import Counts
from gossamer.privacy.sampling import Sampling
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public

S = TypeVar("S")

Quotas = Mapping[str, int]
"""Updates of each node."""


Held = tuple[tuple[int, int], ...]
"""Of one person: the nodes that hold examples, by rising number, and how many each of them holds."""


class Holdings(Protocol):
    """Distribution of persons' training examples over nodes."""

    @property
    def held(self) -> frozenset[Held]:
        """Holdings of persons; several may hold alike."""
        ...

    @property
    def most(self) -> int:
        """The most examples of one person, at all nodes together."""
        ...

    @property
    def most_nodes(self) -> int:
        """The most nodes that hold examples of one person."""
        ...

    @property
    def together(self) -> bool:
        """Whether every person's examples are at one node."""
        ...


class Spec(Protocol):
    """Part of a spec that plans depend on, whatever its algorithm."""

    @property
    def privacy(self) -> PrivacySettings: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def stop(self) -> StopSettings: ...

    @property
    def terms(self) -> Terms:
        """Terms of releases that the algorithm's settings decide."""
        ...

    @property
    def private(self) -> bool:
        """Whether noise is added."""
        ...

    @property
    def reproducible(self) -> bool:
        """Whether noise can be drawn again by whoever knows the spec."""
        ...

    @property
    def proved(self) -> bool:
        """Whether a guarantee is proved for the noise, if there is any, and for what it is added to."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether the run's length is limited by something public."""
        ...

    @property
    def ends_by_clock(self) -> bool:
        """Whether the number of updates of a run depends on how long they take."""
        ...

    @property
    def disturbed(self) -> bool:
        """Whether nodes are away at times, or cut off from each other."""
        ...

    @property
    def rows_per_person(self) -> int:
        """Number of examples of one person that a guarantee covers together."""
        ...

    @property
    def delta(self) -> float:
        """Delta at which guarantees are stated."""
        ...


@dataclass(frozen=True)
class Estimated:
    """Constants that the spec leaves out, as they were estimated on so many examples that are not the nodes'."""

    constants: Mapping[str, float]
    examples: int
    smoothness_by: str

    def __str__(self) -> str:
        how = {"smoothness": f" ({self.smoothness_by})"}
        found = ", ".join(f"{name} {value:.4g}{how.get(name, '')}" for name, value in self.constants.items())
        return f"estimated on {self.examples} examples that are not the nodes': {found}"


@dataclass(frozen=True)
class Problem(Generic[S]):
    """Problem that a run is planned from.

    Attributes
    ----------
    settings : S
        Of the algorithm.
    spec : Spec
        The sections on privacy, budget and the run's end, and what follows from them.
    text : str
        All of the spec, the same at every party that has agreed to it.
    names : tuple of str
        The nodes with data.
    shard_sizes : mapping of str to int
        Training examples of each.
    parts : tuple of Part
        Of the model's vector.
    graph : Graph
        Who may talk to whom.
    initial : Public
        The common starting model, [size].
    seed : int
        Of the public randomness.
    run : str
        Name of a deployed run, whose parties have identities; empty in a simulation.
    clipping : Clipping
        How clips move.
    first_clip : float
        The bound at the start.
    first_state : callable
        () -> what nodes keep of the clip at the start, see `Clipping.initial`.
    workload : Workload
        Examples of each update.
    sampling : callable
        (node, batch) -> how the node draws so many examples.
    schedule : callable
        (stop, quotas) -> how many releases of which kind each node makes, found by running the nodes without data.
    asks : callable
        (stop, quotas) -> how much each node asks of its data side, found likewise: for those whose releases are of one
        kind, which no task says.
    check : callable
        Given each node's mechanism, builds the nodes once, without data.

        Raises CallerError if they cannot be built.
    absences : bool
        Whether nodes are away at times, so that they may not make all updates of their quotas.
    holdings : Holdings or None
        How persons' examples lie at nodes, where the data say whose they are.
    estimates : Estimated or None
        Constants that the spec does not say.
    public_examples : bool
        Whether constants may be what was estimated on public examples.
    server : str or None
        Name of the one node above all others, if there is one.
    beforehand : Counts
        Releases that each node makes of its examples before the run, such as those of a private scale.
    """

    settings: S
    spec: Spec
    text: str = field(repr=False)
    names: tuple[str, ...]
    shard_sizes: Mapping[str, int]
    parts: tuple[Part, ...]
    graph: Graph
    initial: Public
    seed: int
    run: str
    clipping: Clipping
    first_clip: float
    first_state: Callable[[], Public]
    workload: Workload
    sampling: Callable[[str, int], Sampling]
    schedule: Callable[[StopSettings, Quotas | None], Mapping[str, Counts]]
    asks: Callable[[StopSettings, Quotas | None], Mapping[str, int]]
    check: Callable[[Mapping[str, Mechanism]], None]
    absences: bool = False
    holdings: Holdings | None = None
    estimates: Estimated | None = None
    public_examples: bool = False
    server: str | None = None
    beforehand: Counts = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(part.size for part in self.parts)


def smallest_node(problem: Problem[Any]) -> str:
    """The node with the least number of examples."""
    return min(problem.names, key=lambda name: problem.shard_sizes[name])
