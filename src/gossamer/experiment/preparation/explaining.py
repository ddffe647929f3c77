"""A run in plain words, before it is made: who takes part, what leaves whom, what epsilon means, how long, how large.

It is said of a plan, before anything is computed on data, for somebody who has read no page on differential privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from gossamer.algorithms.plan import Plan
from gossamer.errors import counted
from gossamer.experiment.preparation.planning import Forecast
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.experiment.preparation.private_scale import found_by_release
from gossamer.privacy.guarantees import Guarantee, rounded_up
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Poisson
from gossamer.sides.plan import SidePlan, most_of

Words = dict[str, str]
"""Sentences by what they are about, in the order in which they are to be read."""

_DEALT = {
    "iid": "dealt to them at random",
    "linear": "dealt to them at random, to the first least",
    "sizes": "dealt to them at random in the given numbers",
    "by_person": "dealt to them by person, so that nobody's are at two of them",
}
_BY_CLASS = "dealt to them by class, so that each sees some classes more than others"


def explain(prepared: Prepared, plan: Plan, forecast: Forecast) -> Words:
    """Say in plain words what a run of this plan does."""
    return {
        "who": _who(prepared, plan),
        "what leaves": _what_leaves(prepared, plan),
        **_promise(plan),
        "public": _public(prepared),
        "how long": _how_long(prepared, plan, forecast),
        "memory": _memory(forecast),
    }


def _who(prepared: Prepared, plan: Plan) -> str:
    sizes = list(prepared.shard_sizes.values())
    words = plan.words
    others = len(prepared.cast.servers)
    beside = "" if words.server is not None or not others else f" and {counted(others, 'server')}"
    alone = "" if words.server is not None or others or len(sizes) == 1 else ", without a server"
    each = "" if len(sizes) == 1 else f": {_between(min(sizes), max(sizes), 'example')} each"
    return (
        f"{words.parties(len(sizes))}{beside}{alone}. The {sum(sizes):,} training examples are "
        f"{_dealt(prepared)}{each}."
    )


def _dealt(prepared: Prepared) -> str:
    """Say whose examples each node has."""
    name, nodes = prepared.experiment.partition.name, len(prepared.names)
    if nodes == 1:
        return "all in one place"
    if name != "natural":
        return _DEALT.get(name, _BY_CLASS)
    owners = 0 if prepared.dataset.owners is None else len(set(prepared.dataset.owners.tolist()))
    column = prepared.experiment.dataset.owner
    of = "" if column is None else f" (column {column})"
    return f"split by owner{of}, one owner each" if owners == nodes else f"split by owner{of}, {owners} owners in all"


def _between(least: int, most: int, noun: str) -> str:
    return counted(most, noun, form=",") if least == most else f"{least:,} to {counted(most, noun, form=',')}"


def _what_leaves(prepared: Prepared, plan: Plan) -> str:
    """Say what may be sent that was computed on data, a sentence for each kind of party."""
    numbers = counted(prepared.objective.size, "number", form=",")
    groups: dict[type[SidePlan], list[tuple[str, SidePlan]]] = {}
    for name, side in plan.sides.items():
        groups.setdefault(type(side), []).append((name, side))
    said = [_of_kind(prepared, plan, members) for members in groups.values()]
    parts = " ".join(part for part in said if part)
    return (
        f"{_before(prepared)}{parts} Each is {numbers}, as many as the model has; whatever else is sent is made of "
        "these, or of no data. The examples themselves stay where they are."
    )


def _before(prepared: Prepared) -> str:
    """Say what is released before the run, if anything is."""
    columns = found_by_release(prepared.dataset)
    if not columns:
        return ""
    return (
        f"Before the run each node releases once, with noise, how large its values of {', '.join(columns)} are, of "
        "which a common scale is made. "
    )


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
        return {"privacy": f"no guarantee. {guarantee.proof} With a secret it would be as follows."} | _stated(
            guarantee.would_be, {}
        )
    if math.isinf(guarantee.epsilon):
        return {"privacy": f"no guarantee. {_sentence(guarantee.proof)}"}
    return _stated(guarantee, plan.guarantees)


def _stated(guarantee: Guarantee, by_observer: Mapping[str, Guarantee]) -> Words:
    bare = [one.observer for one in by_observer.values() if math.isinf(one.epsilon) and one.would_be is None]
    open_to = f" Not protected from: {'; '.join(bare)}." if bare else ""
    return {
        "who may see it": f"protected against {guarantee.observer}.{open_to}",
        "epsilon planned": (
            f"{rounded_up(guarantee.epsilon)} at delta {guarantee.delta:g} for each {guarantee.unit}, when all of that "
            "has been sent; nothing is spent yet."
        ),
        "which means": _meaning(guarantee),
    }


def _meaning(guarantee: Guarantee) -> str:
    """Say what the whole profile means for a guess: a bound that holds whatever else is known."""
    what = guarantee.unit.split(" of ")[0].split(" with ")[0]
    question = {
        NeighboringRelation.ADD_OR_REMOVE_ONE: f"whether a certain {what} was in the data",
        NeighboringRelation.REPLACE_ONE: f"which of two possible versions of a certain {what} was in the data",
    }[guarantee.neighboring_relation]
    right = guarantee.profile.accuracy
    often = "may be right nearly always" if right > _ALWAYS else f"is right at most {_percent(right)} times in 100"
    return (
        f"somebody who has to guess {question}, knows everything else, and was right 50 times in 100 before, {often} "
        f"after seeing it all.{_verdict(right)}"
    )


def _percent(share: float) -> str:
    """A bound as a percentage with a decimal, rounded up."""
    up = Decimal(repr(100 * share)).quantize(Decimal("0.1"), ROUND_CEILING)
    return f"{up.normalize():f}"


def _verdict(right: float) -> str:
    return " That promises little; a smaller epsilon promises more." if right > _LITTLE else ""


_LITTLE, _ALWAYS = 0.9, 0.999


def _public(prepared: Prepared) -> str:
    spec, tested = prepared.experiment, len(prepared.dataset.test.targets)
    names = "names of columns and labels" if spec.dataset.path is not None else "labels"
    seed = "" if not spec.reproducible else ", the noise"
    return (
        f"this spec with the {names} in it, how many examples each has{seed}, and who talks to whom and when. The "
        f"{counted(tested, 'test example', form=',')} and the scores on them are not protected."
    )


def _early(prepared: Prepared) -> str:
    spec = prepared.experiment
    if spec.stop.accuracy is None:
        return ""
    which = "test" if spec.evaluation.public_path is None else "public"
    return f" It may end before, at stop.accuracy on {which} examples."


def _how_long(prepared: Prepared, plan: Plan, found: Forecast) -> str:
    made = counted(plan.updates, plan.words.made, form=",")
    early = _early(prepared)
    if not found.whole:
        return (
            f"more than {found.virtual_seconds:,.0f} virtual seconds (a simulated clock, not this machine's), {made} "
            f"and {found.messages:,} messages: as far as was looked ahead.{early}"
        )
    return (
        f"{found.virtual_seconds:,.0f} virtual seconds (a simulated clock, not this machine's), {made}, "
        f"{counted(found.messages, 'message', form=',')} ({_size(found.size)}).{early}"
    )


def _memory(found: Forecast) -> str:
    return f"about {_size(found.memory)} on this machine; the examples are {_size(found.examples)} of that."


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _size(number: float) -> str:
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
