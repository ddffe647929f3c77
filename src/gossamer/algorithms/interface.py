"""An algorithm as one value: all that runs, deployments and tests ask of it.

What an algorithm has to say is its `Settings` and `build`; everything else has a default. The suite in
`gossamer.testing.contracts` runs on each, and ``algorithms/table.py`` has the table of them. Those of other
distributions register by entry points; how they are found, hashed and allowed is in `gossamer.section`:

    [project.entry-points."gossamer.algorithms"]
    mean = "mean_of_gradients:ALGORITHM"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from gossamer.algorithms.command import Command
from gossamer.algorithms.context import Batches, Context, InFlight, Staleness, Workload
from gossamer.algorithms.nodes import mean_model, model_of
from gossamer.algorithms.plan import Plan, Problem, Spec
from gossamer.algorithms.plan import Terms as Terms
from gossamer.algorithms.sample_planning import check_samples, plan_samples
from gossamer.privacy.clipping import ClipSettings, FixedClip
from gossamer.privacy.guarantees import Claim
from gossamer.protocol.node import Node
from gossamer.topology.graphs import Graph
from gossamer.topology.kinds import Ring
from gossamer.topology.mixing import Matrix
from gossamer.topology.topologies import Topology
from gossamer.vectors import Confined, Model

if TYPE_CHECKING:
    from gossamer.algorithms.population import PopulationRules

S = TypeVar("S")


@dataclass(frozen=True)
class Cast:
    """Parties of a run, and how they stand to each other.

    Attributes
    ----------
    workers : tuple of str
        The nodes that hold data.
    servers : tuple of str
        Nodes beside them, which `Algorithm.build` puts last.
    parents : mapping of str to str
        The node above each that has one: messages go up and down. Those without may be joined by the graph.
    joined : tuple of str
        Parties that the topology joins.
    holders : tuple of str
        Parties whose models are tested.
    trust : mapping of str to str
        The trust scope of each node that is in one, such as its federated unit: what is `Confined` stays inside. It is
        called after the node that hears it; see `protocol.messages`.
    topology : Topology
        Graph that joins ``joined``.
    mixing : callable, optional
        (that graph) -> the matrix of one averaging as expected before the run, E[A'A], of which the summary has rho.
    directed : bool
        Whether the graph may have arcs of one way, and change from step to step.
    unseen : str
        The setting by which nobody may see which parties talk to each other, and when, or the guarantee is void; empty
        where all may see it. Parties of a deployment have a broker, and others on the wires, that do.
    """

    workers: tuple[str, ...]
    servers: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    joined: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    trust: Mapping[str, str] = field(default_factory=dict)
    topology: Topology = field(default_factory=Ring)
    mixing: Callable[[Graph], Matrix] | None = None
    directed: bool = False
    unseen: str = ""

    def __post_init__(self) -> None:
        for name in ("joined", "holders"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.workers)

    @property
    def hub(self) -> str | None:
        """Name of the one node above all others, which all need, if there is one."""
        above = set(self.parents.values()) - self.parents.keys()
        return above.pop() if len(above) == 1 else None

    @property
    def scopes(self) -> dict[str, tuple[str, ...]]:
        """The nodes with data in each trust scope, in order."""
        found: dict[str, list[str]] = {}
        for name in self.workers:
            if name in self.trust:
                found.setdefault(self.trust[name], []).append(name)
        return {scope: tuple(names) for scope, names in found.items()}


@dataclass(frozen=True)
class Clips(Generic[S]):
    """Choices of an algorithm about clips and noise.

    Attributes
    ----------
    policies : tuple of str
        The values of ``privacy.clip.policy`` that its nodes follow; others are refused.
    default : ClipSettings
        Value of ``privacy.clip`` where there is Gaussian noise and nothing is said.
    first : callable
        The bound at the start, of its settings, where the policy gives none.
    laws : tuple of str, optional
        The values of ``privacy.mechanism`` that it can do with; None is all.
    """

    policies: tuple[str, ...] = ("fixed",)
    default: ClipSettings = field(default_factory=FixedClip)
    first: Callable[[S], float] = lambda settings: 1.0
    laws: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SmallRuns:
    """Runs that are small enough for thousands of simulated faults.

    Attributes
    ----------
    sizes : tuple of mappings
        Choices of seeds: values of settings, and the sections ``stop`` and ``privacy`` of a spec.
    fitting : mapping
        Other values that fit so few examples.
    bounded : tuple of str
        Settings that may be left out, and are given here, so that nobody is waited for without end.
    waits : bool
        Whether a run waits for every node, however long that is away: then one that never comes back ends progress.
    chunk : int
        Bytes of a frame that cuts messages into two to six chunks.
    unanswered : int or None
        Updates of each server that are made of no answer of a data side; None where all of its plan are.
    levels : mapping of str to mapping
        Amounts of noise in the section ``privacy``, for laws whose amount is another than usual.
    """

    sizes: tuple[Mapping[str, Any], ...]
    fitting: Mapping[str, Any] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()
    waits: bool = False
    chunk: int = 112
    unanswered: int | None = 0
    levels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of_more(self, robust: Any, *counts: str) -> SmallRuns:
        """Runs in which each of these settings is as many as a ``robust`` rule needs, if there is one."""
        least = 0 if robust is None else robust.least
        more = ({key: max(size[key], least) for key in counts if size.get(key)} for size in self.sizes)
        return replace(self, sizes=tuple({**size, **each} for size, each in zip(self.sizes, more, strict=True)))


def _batches(settings: Any, shard_sizes: Mapping[str, int], seed: int) -> Batches:
    return Batches(settings.batch_size, shard_sizes, settings.updates_per_node)


def few(*pairs: tuple[int, int], bounded: tuple[str, ...] = (), **fitting: Any) -> SmallRuns:
    """Runs of so many nodes and updates of each, and with values of settings that are ``fitting``."""
    sizes = tuple({"nodes": nodes, "updates_per_node": updates} for nodes, updates in pairs)
    return SmallRuns(sizes, fitting, bounded)


def _few(settings: Any) -> SmallRuns:
    """Runs of few nodes and updates, and of small batches where the settings have one size for all."""
    fitting: dict[str, Any] = {"batch_size": 2} if "batch_size" in type(settings).model_fields else {}
    return few((2, 4), (3, 3), (5, 2), **fitting)


@dataclass(frozen=True)
class Figures:
    """Functions by which an algorithm describes its runs.

    Attributes
    ----------
    count : callable, optional
        nodes -> how many updates were made, where a computation is not one.
    staleness : callable, ``"computing"`` or None
        Measure of the staleness of updates for figures of a run; see `context.Staleness`.
    invariants : callable
        (nodes, messages in flight) -> vectors that only a node's own update may change, by name.
    unit_models : callable
        nodes -> the models of federated units, whose distances are measured.
    report : callable
        nodes -> figures of its own for the summary, as plain data.
    remarks : callable
        nodes -> warnings at the end of a run, a line each.
    advice : callable
        (settings, context, updates) -> warnings about a run of so many updates, a line each.
    claims : callable
        (problem, plan) -> what the paper claims of a run with noise, never its guarantee.
    """

    count: Callable[[Mapping[str, Node]], int] | None = None
    staleness: Staleness = None
    invariants: Callable[[Mapping[str, Node], Sequence[InFlight]], dict[str, Any]] = lambda *given: {}
    unit_models: Callable[[Mapping[str, Node]], dict[str, Any]] = lambda *given: {}
    report: Callable[[Mapping[str, Node]], dict[str, Any]] = lambda *given: {}
    remarks: Callable[[Mapping[str, Node]], list[str]] = lambda *given: []
    advice: Callable[[Any, Context, int], list[str]] = lambda *given: []
    claims: Callable[[Problem[Any], Plan], list[Claim]] = lambda *given: []


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """An algorithm.

    Attributes
    ----------
    Settings : type
        A frozen pydantic model with ``name``, ``nodes`` and ``updates_per_node``, and ``batch_size`` unless there is a
        `workload`.
    build : callable
        (settings, context) -> the nodes, by name.
    model_of : callable
        node -> the model that it would deploy; by default its state's ``w``, or a server's ``x``.
    output : callable
        nodes -> the model of the whole run; by default the mean of all.
    roles : tuple of str
        Words for the nodes with data in invitations, and then for others: the first word of their names.
    cast : callable
        (settings, names of the nodes with data) -> who else is there, and how they stand to each other.
    decided : callable
        (settings, whether there is noise) -> the settings with the defaults filled in that depend on it.
    terms : callable
        settings -> what they decide about releases.
    check : callable
        (settings, the spec) -> what the spec says that does not fit, a line each.
    plan : callable
        problem -> the plan of a run; by default that of nodes which release noisy sums over samples of their examples.
    clips : Clips
        Choices about clips and noise.
    workload : callable
        (settings, shard sizes, seed) -> examples of each update.
    estimates : callable, optional
        settings -> names of constants that they leave out, and that are estimated on synthetic examples before a run
        is planned; by default none.
    grows : bool
        Whether nodes may join a run that has begun: no state depends on how many there are.
    figures : Figures
        Functions that say something of a run, before it, during it and at its end.
    small_runs : callable
        settings -> runs for simulated faults; by default of a few nodes.
    command : callable, optional
        Function that returns what ``gossamer plan NAME`` does; called, and so imported, when the command is used.
    population : callable, optional
        Function that returns rules for nodes that are numbers in arrays; called, and so imported, for populations.
    """

    Settings: type[S]
    build: Callable[[S, Context], dict[str, Node]]
    model_of: Callable[[Node], Model | Confined] = model_of
    output: Callable[[Mapping[str, Node]], Model] = mean_model
    roles: tuple[str, ...] = ("worker",)
    cast: Callable[[S, tuple[str, ...]], Cast] = lambda settings, names: Cast(names)
    decided: Callable[[S, bool], S] = lambda settings, private: settings
    terms: Callable[[S], Terms] = lambda settings: Terms()
    check: Callable[[S, Spec], Iterable[str]] = check_samples
    plan: Callable[[Problem[S]], Plan] = plan_samples
    clips: Clips[S] = field(default_factory=Clips)
    workload: Callable[[S, Mapping[str, int], int], Workload] = _batches
    estimates: Callable[[S], tuple[str, ...]] = lambda settings: ()
    grows: bool = False
    figures: Figures = field(default_factory=Figures)
    small_runs: Callable[[S], SmallRuns] = _few
    command: Callable[[], Command] | None = None
    population: Callable[[], PopulationRules] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its settings may have: variants of it have several."""
        settings: Any = self.Settings
        return get_args(settings.model_fields["name"].annotation)


def imported_when_used(module: str, name: str = "COMMAND") -> Callable[[], Any]:
    """Return a function that imports an algorithm's ``module`` and returns what has the ``name`` there."""
    return lambda: getattr(import_module(module), name)
