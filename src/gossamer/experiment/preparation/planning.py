"""Planning a run, which its algorithm does from what is known of spec and data; and the run in plain words."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Any

from gossamer.algorithms.plan import Plan, Problem, Quotas, StopSettings, differing
from gossamer.algorithms.table import registered_as
from gossamer.errors import RunWarning, SpecError, counted
from gossamer.experiment.preparation.doubts import doubts
from gossamer.experiment.preparation.ending import INCOMPLETE, STALLED, Observer, drive, ending, in_words
from gossamer.experiment.preparation.held_out import check_held_out, with_held_out
from gossamer.experiment.preparation.prepare import Prepared, public_seed
from gossamer.experiment.preparation.private_scale import beforehand
from gossamer.experiment.specs.spec import Experiment, of_others
from gossamer.files import in_bytes, words_beside
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.guarantees import Guarantee, rounded_up
from gossamer.privacy.mechanisms import Mechanism, NoNoise, Poisson
from gossamer.protocol.encoding import encode
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.plan import SidePlan, counts_of, most_of
from gossamer.sides.pool import BlankSides

# A run in plain words, before it is made: who takes part, what leaves whom, what epsilon means, how long, how large.
#
# It is said of a plan, before anything is computed on data, for somebody who has read no page on differential privacy.

Words = dict[str, str]
"""Sentences by what they are about, in the order in which they are to be read."""

_WORDS = words_beside(__file__)


def proved(plan: Plan) -> dict[str, Any]:
    """Return the guarantee as plain data, and where observers differ, that against each."""
    others = {observer: guarantee.as_dict() for observer, guarantee in differing(plan.guarantees).items()}
    return {"guarantee": plan.guarantee.as_dict(), **({"guarantees": others} if others else {})}


def explain(prepared: Prepared, plan: Plan, forecast: Forecast) -> Words:
    """Say in plain words what a run of this plan does."""
    return {
        "who": _who(prepared, plan),
        "what leaves": _what_leaves(prepared, plan),
        **_promise(plan),
        "public": _public(prepared),
        "how long": _how_long(prepared, plan, forecast),
        "memory": _said("memory", memory=in_bytes(forecast.memory), examples=in_bytes(forecast.examples)),
        **({} if (device := device_in_words(prepared)) is None else {"device": device}),
    }


def device_in_words(prepared: Prepared) -> str | None:
    """Say where sums are computed, if the spec asks for a device: of linear models on the processor all the same."""
    if prepared.experiment.compute.device is None:
        return None
    return prepared.objective.computing().device or "the processor: linear models are computed there on any machine"


def _who(prepared: Prepared, plan: Plan) -> str:
    sizes, words, others = list(prepared.shard_sizes.values()), plan.words, len(prepared.cast.servers)
    beside = "" if words.server is not None or len(sizes) == 1 else ", without a server"
    if words.server is None and others:
        beside = f" and {counted(others, 'server')}"
    each = "" if len(sizes) == 1 else f": {_between(min(sizes), max(sizes), 'example')} each"
    facts = {"examples": sum(sizes), "dealt": _dealt(prepared), "each": each}
    return _said("who", parties=words.parties(len(sizes)), beside=beside, **facts)


def _said(name: str, **facts: object) -> str:
    """Words of ``planning.yaml`` with what stands in them."""
    return str(_WORDS[name].format(**facts))


def _dealt(prepared: Prepared) -> str:
    """Say whose examples each node has."""
    dealt, name, nodes = _WORDS["dealt"], prepared.experiment.partition.name, len(prepared.names)
    if nodes == 1 or name != "natural":
        return str(dealt["alone"] if nodes == 1 else dealt.get(name, dealt["by_class"]))
    owners = 0 if prepared.dataset.owners is None else len(set(prepared.dataset.owners.tolist()))
    column = prepared.experiment.dataset.owner
    of = "" if column is None else f" (column {column})"
    return str(dealt["owner" if owners == nodes else "owners"].format(of=of, owners=owners))


def _between(least: int, most: int, noun: str) -> str:
    return counted(most, noun, form=",") if least == most else f"{least:,} to {counted(most, noun, form=',')}"


def _what_leaves(prepared: Prepared, plan: Plan) -> str:
    """Say what may be sent that was computed on data, a sentence for each kind of party."""
    numbers = counted(prepared.objective.size, "number", form=",")
    groups: dict[type[SidePlan], list[tuple[str, SidePlan]]] = {}
    for name, side in plan.sides.items():
        groups.setdefault(type(side), []).append((name, side))
    columns = ", ".join(prepared.scaled_privately)
    before = [_said("before", columns=columns)] if columns else []
    parts = filter(None, [*before, *(_of_kind(prepared, plan, members) for members in groups.values())])
    return _said("leaves", parts=" ".join(parts), numbers=numbers)


def _of_kind(prepared: Prepared, plan: Plan, members: Sequence[tuple[str, SidePlan]]) -> str:
    """The most that leaves parties of one kind."""
    name, side = members[0]
    most = [made for _, one in members if (made := most_of(one)) is not None]
    often = f"at most {_range(min(most), max(most))}" if most else "any number of"
    who = f"each {plan.words.party}" if name in prepared.names else "the server" if len(members) == 1 else "each server"
    sentence = side.said(who, often, _batch(prepared))
    return sentence[:1].upper() + sentence[1:]


def _range(least: int, most: int) -> str:
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _batch(prepared: Prepared) -> str:
    """Say how many of its examples a node takes for an update."""
    sizes = {prepared.workload.of(name, 0) for name in prepared.names}
    drawn = isinstance(prepared.sampling(prepared.names[0], min(sizes)), Poisson)
    return f"{'about ' if drawn else ''}{_range(min(sizes), max(sizes))}"


def _promise(plan: Plan) -> Words:
    """Say what epsilon is planned, who sees what it is about, and what it means."""
    guarantee = plan.guarantee
    if guarantee.would_be is not None:
        return {"privacy": _said("would be", proof=guarantee.proof)} | _stated(guarantee.would_be, {})
    if math.isinf(guarantee.epsilon):
        return {"privacy": _said("nothing", proof=guarantee.proof.removesuffix(".") + ".")}
    return _stated(guarantee, plan.guarantees)


def _stated(guarantee: Guarantee, by_observer: Mapping[str, Guarantee]) -> Words:
    bare = [one.observer for one in by_observer.values() if math.isinf(one.epsilon) and one.would_be is None]
    return {
        "who may see it": _said("seen by" if bare else "seen", observer=guarantee.observer, bare="; ".join(bare)),
        "epsilon planned": _said("planned", guarantee=guarantee, epsilon=rounded_up(guarantee.epsilon)),
        "which means": _meaning(guarantee),
    }


def _meaning(guarantee: Guarantee) -> str:
    """Say what the whole profile means for a guess: a bound that holds whatever else is known."""
    what = guarantee.unit.split(" of ")[0].split(" with ")[0]
    question = _WORDS["question"][guarantee.neighboring_relation.value].format(what=what)
    right = guarantee.profile.accuracy
    often = _said("nearly always" if right > _ALWAYS else "right", percent=_percent(right))
    meaning = _said("meaning", question=question, often=often)
    return f"{meaning} {_WORDS['little']}" if right > _LITTLE else meaning


def _percent(share: float) -> str:
    """A bound as a percentage with a decimal, rounded up."""
    up = Decimal(repr(100 * share)).quantize(Decimal("0.1"), ROUND_CEILING)
    return f"{up.normalize():f}"


_LITTLE, _ALWAYS = 0.9, 0.999


def _public(prepared: Prepared) -> str:
    spec, tested = prepared.experiment, len(prepared.dataset.test.targets)
    names = "names of columns and labels" if spec.dataset.path is not None else "labels"
    examples = counted(tested, "test example", form=",")
    told = _said("tested" if spec.evaluation.release is None else "released", examples=examples)
    return _said("public", names=names, noise=", the noise" if spec.reproducible else "", tested=told)


def _how_long(prepared: Prepared, plan: Plan, found: Forecast) -> str:
    spec, made = prepared.experiment, counted(plan.updates, plan.words.made, form=",")
    messages, size = counted(found.messages, "message", form=","), in_bytes(found.size)
    long = _said("long" if found.whole else "longer", found=found, made=made, messages=messages, size=size)
    which = "test" if spec.evaluation.public_path is None else "public"
    return long if spec.stop.accuracy is None else f"{long} {_said('early', which=which)}"


OTHERS_CODE = "the code of {code} is trusted: its algorithm plans all that it releases, and sends nothing else"
"""Assumption of a guarantee for an algorithm that another distribution registers."""
TRUSTED = "the code of {code} is trusted: {promise}, and it does nothing else"
"""Assumption for a topology, a partition or a loss that another distribution registers."""
PUBLIC_EXAMPLES = "examples of evaluation.public_path are public, and none of them is protected"
UNITS = "when the run ends is not covered: stop.accuracy looks at models of units, which are not released outside them"
_LOOKS = 1000
"""Most evaluations in the time of an update."""
_LONG = 100_000
"""Updates after which a look ahead is said to be long: some ten seconds."""


def plan_run(prepared: Prepared) -> Plan:
    """Fix schedule, noise and guarantee.

    Raises
    ------
    CallerError
        If what the spec asks for does not fit together, or no noise meets the budget.
    """
    spec = prepared.experiment
    check_held_out(prepared)
    problem = problem_of(prepared)
    found = prepared.algorithm.plan(problem)
    _check_beforehand(problem, found)
    found = replace(found, words=replace(found.words, server=prepared.cast.hub, estimates=prepared.estimates))
    if (code := registered_as(spec.algorithm.name)) is not None:
        found = found.assuming(OTHERS_CODE.format(code=code))
    for line in _assumptions(prepared):
        found = found.assuming(line)
    found = with_held_out(prepared, found)
    for line in [*found.words.advice, *prepared.advice(found.mechanisms, found.quotas, found.updates)]:
        warnings.warn(line, RunWarning, stacklevel=2)
    _check_looks(spec)
    return found.reproducible() if spec.private and spec.reproducible else found


def _assumptions(prepared: Prepared) -> list[str]:
    """Assumptions of a guarantee on code of others, and on what may end the run early."""
    spec = prepared.experiment
    found = [
        TRUSTED.format(code=one, promise=kind.promise or f"its {kind.noun} is public") for kind, one in of_others(spec)
    ]
    if whose := prepared.objective.whose:
        found += [line.format(whose=whose) for line in _WORDS["foreign"]]
    if spec.stop.accuracy is not None:
        found += [PUBLIC_EXAMPLES] if spec.evaluation.public_path is not None else []
        found += [UNITS] if prepared.cast.trust else []
    return found


def _check_beforehand(problem: Problem[Any], plan: Plan) -> None:
    """Refuse releases before the run that its plan does not cover: nobody would charge them."""
    for kind, count in problem.beforehand.items():
        if not all((counts_of(plan.side(name)) or {}).get(kind, 0) >= count for name in problem.names):
            raise SpecError(
                "dataset.scale: private is for nodes that release sums over samples of their own examples, and those "
                "of this algorithm and its settings release something else; declare ranges under dataset.columns"
            )


def _check_looks(spec: Experiment) -> None:
    """Refuse looks in such numbers that a run would do nothing else."""
    every, seconds = spec.evaluation.every_seconds, spec.speeds.seconds
    if every is not None and spec.evaluation.name == "on" and spec.speeds.name != "file" and every < seconds / _LOOKS:
        raise SpecError(
            f"evaluation.every_seconds is {every:g}, more than {_LOOKS} looks in the {seconds:g} s of an update "
            "(speeds.seconds); raise it"
        )


def problem_of(prepared: Prepared) -> Problem[Any]:
    """Return the problem that the algorithm plans for.

    Raises
    ------
    CallerError
        If a node cannot make the first update, or the settings do not fit together.
    """
    spec = prepared.experiment
    text = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return Problem(
        spec=spec,
        shard_sizes=prepared.shard_sizes,
        parts=prepared.objective.parts,
        graph=prepared.graph,
        initial=prepared.initial,
        seed=public_seed(spec),
        run=prepared.run,
        agreed=hashlib.sha256(encode((text, prepared.run))).digest(),
        first_clip=_first_clip(prepared),
        workload=prepared.workload,
        dry_run=partial(_dry_run, prepared),
        check=partial(_check_nodes, prepared),
        holdings=prepared.holdings,
        beforehand=beforehand(prepared) if prepared.scaled_privately else {},
    )


def _first_clip(prepared: Prepared) -> float:
    clip = prepared.experiment.privacy.clip
    if clip is not None and clip.initial_bound is not None:
        return clip.initial_bound
    return prepared.algorithm.clips.first(prepared.experiment.algorithm)


def _dry_run(prepared: Prepared, stop: StopSettings, quotas: Quotas | None) -> BlankSides:
    """Count what is asked in a run of the schedule."""
    by_clock = len(prepared.names) * (stop.virtual_seconds or math.inf) / prepared.experiment.speeds.seconds
    most = min(stop.updates or math.inf, by_clock, sum(quotas.values()) if quotas else math.inf)
    if _LONG <= most < math.inf:
        warnings.warn(
            f"the schedule that stop fixes is looked ahead at, and is long: about {most:,.0f} updates; "
            "algorithm.updates_per_node or stop.epochs in its place need no such look",
            RunWarning,
            stacklevel=2,
        )
    sides = BlankSides()
    with closing(_without_data(prepared, sides, quotas=quotas)) as simulator:
        drive(simulator, stop, Observer())
    return sides


def _without_data(
    prepared: Prepared, sides: BlankSides, plan: Plan | None = None, quotas: Quotas | None = None
) -> Simulator:
    """The same nodes on the same clock, with nothing in their vectors: of a plan, or before there is one."""
    if plan is None:
        context = prepared.context(dict.fromkeys(prepared.names, NoNoise()), quotas, blank=True)
    else:
        context = prepared.context(plan.mechanisms, plan.quotas, blank=True, lengths=plan.lengths)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    return Simulator(nodes, sides, prepared.world, count=prepared.count)


def _check_nodes(prepared: Prepared, mechanisms: Mapping[str, Mechanism]) -> None:
    """Build the nodes once, or raise, before a run."""
    prepared.algorithm.build(prepared.experiment.algorithm, prepared.context(mechanisms, None, blank=True))


# What a run will take, found without its data
_MOST = 50_000
"""After so many messages or updates a look ahead ends: a second or two."""
_PROGRAM = 250 * 2**20
_WITH_TORCH = 400 * 2**20
"""Bytes of the program itself, measured on Linux, with the libraries that it imports."""
_COPIES = 6
"""Vectors of the model's size that a simulation keeps for each node: its own, one averaged, and those under way."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run.

    Attributes
    ----------
    virtual_seconds : float
        Seconds until the run ends on the clock of the simulation, or the look ahead, where that is not ``whole``.
    messages, size : int
        Number of messages that nodes send each other until then, and of their bytes in all.
    whole : bool
        Whether the look ahead went to the run's end.
    memory : int
        Bytes, about.
    examples : int
        Bytes of the examples, training and test, which are part of ``memory``.
    remarks : tuple of str
        Lines on why the run would not come to the end of its plan, on whom it would lose, and on what does not fit.
    """

    virtual_seconds: float
    messages: int
    size: int
    whole: bool
    memory: int
    examples: int
    remarks: tuple[str, ...] = ()


class _Patience(Observer):
    """An observer that has seen enough after so many messages, or updates that need none."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    @property
    def satisfied(self) -> bool:
        return max(self._simulator.messages, self._simulator.counters.updates) >= _MOST


def forecast(prepared: Prepared, plan: Plan) -> Forecast:
    """Run the nodes of a run without data or vectors on the same virtual clock, but not for long.

    The schedule of a run depends on nothing private, so it is that of the run itself where nothing else ends that,
    such as ``stop.accuracy``.
    """
    simulator = _without_data(prepared, BlankSides(), plan)
    ended = drive(simulator, plan.stop, _Patience(simulator))
    status, found = ending(simulator, prepared.names, prepared.cast.parents, ended)
    remarks = prepared.algorithm.figures.remarks(simulator.nodes)
    if status in (STALLED, INCOMPLETE):
        remarks = [in_words(found, status, simulator.elapsed, prepared.experiment.algorithm), *remarks]
    examples = sum(array.nbytes for split in (prepared.dataset.train, prepared.dataset.test) for array in split.arrays)
    models = _COPIES * len(simulator.nodes) * prepared.objective.size * prepared.objective.dtype.itemsize
    return Forecast(
        simulator.elapsed,
        simulator.messages,
        simulator.bytes,
        ended != "accuracy",
        _program(prepared) + 2 * examples + models,
        examples,
        (*remarks, *doubts(prepared, plan)),
    )


def asked_in(prepared: Prepared, plan: Plan) -> dict[str, int]:
    """Count tasks for each node's data side in the whole run, found likewise; messages about masks left out."""
    sides = BlankSides()
    with closing(_without_data(prepared, sides, plan)) as simulator:
        drive(simulator, plan.stop, Observer())
    return sides.asked


def _program(prepared: Prepared) -> int:
    if isinstance(prepared.objective, LinearModel):
        return _PROGRAM
    return _WITH_TORCH + prepared.experiment.compute.memory_mib * 2**20
