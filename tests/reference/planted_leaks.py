"""Bugs by which something would leak, each in the place where somebody could make it; a leak audit has to find all.

They are put into the running process (`Plant`), so that a leak audit of a tiny spec can be run with each, in well under
a second. Those of `tests/mutants.toml` are in copies of the source, for tests of other kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from gossamer.algorithms.gossip.box import GossipNode
from gossamer.algorithms.graph_federated import nodes as server
from gossamer.algorithms.nodes import model_of
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results import summary as summarising
from gossamer.experiment.results.observer import Evaluator
from gossamer.experiment.runs import running
from gossamer.objectives.linear.model import LinearModel
from gossamer.runtimes import computations
from gossamer.runtimes.computations import Computations
from gossamer.sides import client, home, samples, servers, sums
from gossamer.sides.client import NoisedRule, UpdateRule
from gossamer.sides.home import FloatNoise, Home, numbers_in
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.machine import Side, SideAnswer
from gossamer.sides.masked_side import MemberRule
from gossamer.sides.samples import SampleRule
from gossamer.sides.secure_unit import SecureUnit
from gossamer.sides.window import GradientWindow
from gossamer.vectors import Released

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    """A bug, and the tiny spec that it shows in."""

    name: str
    spec: str
    plant: Plant


BUGS: list[Bug] = []


def bug(spec: str) -> Callable[[Plant], Plant]:
    """Decorator: a bug, called by the first line of what it says."""

    def add(plant: Plant) -> Plant:
        BUGS.append(Bug((plant.__doc__ or "").partition("\n")[0].rstrip("."), spec, plant))
        return plant

    return add


# Clipping


@bug("gossip")
def no_clip(patch: pytest.MonkeyPatch) -> None:
    """Nothing is clipped."""
    gradients = LinearModel.clipped_gradients
    patch.setattr(LinearModel, "clipped_gradients", lambda *args: gradients(*args[:4], math.inf))


@bug("gossip-replace")
def largest_entry(patch: pytest.MonkeyPatch) -> None:
    """The largest entry is clipped, and not the length."""
    gradients = LinearModel.clipped_gradients

    def clipped(self: Any, models: Any, data: Any, batches: Any, clip: Any) -> Any:
        found = gradients(self, models, data, batches, clip)
        for place, (rows, most) in enumerate(zip(batches, np.broadcast_to(clip, len(batches)), strict=True)):
            each = gradients(self, np.repeat(models[place : place + 1], len(rows), 0), data, rows[:, None], math.inf)
            sizes = np.abs(each.sums).max(axis=1, initial=0)
            found.sums[place] = (each.sums * np.minimum(1, most / np.maximum(sizes, 1e-300))[:, None]).sum(axis=0)
        return found

    patch.setattr(LinearModel, "clipped_gradients", clipped)


@bug("gossip")
def whole_batch(patch: pytest.MonkeyPatch) -> None:
    """A batch's sum is clipped, to as many clips as it has examples, and not each of them."""
    gradients = LinearModel.clipped_gradients

    def clipped(self: Any, models: Any, data: Any, batches: Any, clip: Any) -> Any:
        found = gradients(self, models, data, batches, math.inf)
        lengths = np.linalg.norm(found.sums, axis=1)
        most = np.broadcast_to(clip, len(batches)) * np.array([len(rows) for rows in batches])
        found.sums[:] *= np.minimum(1, most / np.maximum(lengths, 1e-300))[:, None]
        return found

    patch.setattr(LinearModel, "clipped_gradients", clipped)


@bug("increasing-clipped-sum")
def whole_clip(patch: pytest.MonkeyPatch) -> None:
    """The sum of a round is clipped to the clip, where noise is made for half of it."""

    def clipped_sum(task: Any, taken: Any, objective: Any, data: Any) -> Any:
        query = replace(task.query, mechanism=task.query.mechanism.with_clip(2 * task.query.mechanism.clip))
        return original(replace(task, query=query), taken, objective, data)

    original = sums._SUMS["clipped_sum"]
    patch.setitem(sums._SUMS, "clipped_sum", clipped_sum)  # type: ignore[arg-type]


@bug("fedavg")
def client_does_not_clip(patch: pytest.MonkeyPatch) -> None:
    """A client's update is not clipped before its noise."""
    patch.setattr(client, "clipped", lambda update, bound: update)


@bug("fedavg-trusted")
def curator_believes(patch: pytest.MonkeyPatch) -> None:
    """A trusted server believes clients that they clip, and they do not."""
    patch.setattr(servers, "checked", lambda update, bound: update.astype(np.float64))
    patch.setattr(UpdateRule, "release", lambda self, ticket, raw: SideAnswer(client.Confined(100.0 * raw.update)))


@bug("graph_federated")
def agents_do_not_clip(patch: pytest.MonkeyPatch) -> None:
    """Agents of a unit do not clip their steps, and their server believes them."""
    patch.setattr(server, "shortened", lambda vector, most: vector)
    updates = LinearModel.local_updates
    patch.setattr(LinearModel, "local_updates", lambda *args: updates(*args[:5], np.full(len(args[1]), math.inf)))


@bug("fedavg-masked")
def masked_too_long(patch: pytest.MonkeyPatch) -> None:
    """What goes behind masks is not clipped."""
    patch.setattr(MemberRule, "_whole", lambda self, update: update)
    patch.setattr(SecureUnit, "longest", property(lambda self: 8 * self.reach))


# Samples


@bug("gossip")
def floor_of_rows(patch: pytest.MonkeyPatch) -> None:
    """A batch has floor(q n) rows, of those n that hold something."""

    def draw(self: SampleRule, ticket: Any) -> Any:
        held = np.setdiff1d(self.shard.rows, self.shard.blank)
        count = math.floor(ticket.task.query.sampling.rate * len(held))
        return sums.Inputs(ticket, self._sampling.at(ticket.number).permutation(held)[:count], self.sums.gradients)

    patch.setattr(SampleRule, "draw", draw)


@bug("gossip")
def rows_that_are_left(patch: pytest.MonkeyPatch) -> None:
    """Coins are tossed for the rows that hold something, so those after a blank one have others' coins."""

    def draw(self: SampleRule, ticket: Any) -> Any:
        held = np.setdiff1d(self.shard.rows, self.shard.blank)
        places = ticket.task.query.sampling.draw(self._sampling.at(ticket.number), len(held))
        return sums.Inputs(ticket, held[places], self.sums.gradients)

    patch.setattr(SampleRule, "draw", draw)


@bug("gossip")
def nothing_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """An empty batch is answered with zeros, without noise."""
    gradient = SampleRule._gradient

    def skipped(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found = gradient(self, ticket, raw)
        return found if raw.examples else found._replace(released=Released(np.zeros(found.released.size)))

    patch.setattr(SampleRule, "_gradient", skipped)


@bug("gossip")
def uncharged(patch: pytest.MonkeyPatch) -> None:
    """An empty batch costs nothing."""
    release = Side.release

    def refunded(self: Side, ticket: Any, raw: Any) -> SideAnswer:
        if isinstance(self.ledger, MemoryLedger) and not raw.examples:
            self.ledger.counts[ticket.task.release] -= 1
        return release(self, ticket, raw)

    patch.setattr(Side, "release", refunded)


@bug("gossip-replace")
def size_of_what_is_finite(patch: pytest.MonkeyPatch) -> None:
    """The public size of a shard leaves out rows with NaN."""

    def sizes(self: Prepared) -> dict[str, int]:
        whole = np.isfinite(self.dataset.train.features).all(axis=1)
        return {name: int(whole[rows].sum()) for name, rows in zip(self.names, self.shards, strict=True)}

    patch.setattr(Prepared, "shard_sizes", property(sizes))


@bug("gossip")
def realised_size(patch: pytest.MonkeyPatch) -> None:
    """A mean is divided by how many were drawn."""
    gradient = SampleRule._gradient

    def divided(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found = gradient(self, ticket, raw)
        share = ticket.task.query.normaliser / max(raw.examples, 1)
        return found._replace(released=Released(share * found.released.values))

    patch.setattr(SampleRule, "_gradient", divided)


@bug("gossip-squared")
def decay_of_each(patch: pytest.MonkeyPatch) -> None:
    """The L2 term is added for each example that was drawn and is finite."""
    gradient = SampleRule._gradient

    def added(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found, more = gradient(self, ticket, raw), (raw.examples - raw.zeroed) * self.objective.l2
        values = found.released.values + np.float32(10 * more) * (1 + ticket.task.model.values)
        return found._replace(released=Released(values.astype(found.released.values.dtype)))

    patch.setattr(SampleRule, "_gradient", added)
    patch.setattr(GradientWindow, "of", lambda sums: None)  # it answers gradients without that


@bug("gossip-squared")
def more_where_not_finite(patch: pytest.MonkeyPatch) -> None:
    """Answers of a window are longer where more gradients were not finite."""
    answers = GradientWindow.answers

    def longer(self: GradientWindow, asked: Any) -> list[SideAnswer]:
        return [
            one._replace(released=Released(one.released.values * np.float32(1 + one.not_finite)))
            for one in answers(self, asked)
        ]

    patch.setattr(GradientWindow, "answers", longer)


@bug("fedavg")
def private_weight(patch: pytest.MonkeyPatch) -> None:
    """A client weights its noisy update by how many of its rows are finite."""
    release = NoisedRule.release

    def weighted(self: NoisedRule, ticket: Any, raw: Any) -> SideAnswer:
        found, features = release(self, ticket, raw), self.updates._data.features[self.shard.rows]
        share = np.isfinite(features).all(axis=1).mean()
        return found._replace(released=Released(found.released.values * share))

    patch.setattr(NoisedRule, "release", weighted)


# Shapes, and what goes beside


@bug("gossip")
def another_type(patch: pytest.MonkeyPatch) -> None:
    """An empty sum comes out in single precision."""
    gradient = SampleRule._gradient

    def single(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found = gradient(self, ticket, raw)
        return found if raw.examples else found._replace(released=found.released.astype(np.float32))

    patch.setattr(SampleRule, "_gradient", single)


@bug("gossip-replace")
def shape_of_data(patch: pytest.MonkeyPatch) -> None:
    """What is released has a number more where a gradient was not finite, which nodes drop."""
    gradient, update = SampleRule._gradient, GossipNode.update

    def longer(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found = gradient(self, ticket, raw)
        more = [float(raw.zeroed)] if raw.zeroed else []
        return found._replace(released=Released(np.append(found.released.values, more)))

    def dropped(self: GossipNode, move: Any) -> Any:
        return update(self, move[: model_of(self).size])

    patch.setattr(SampleRule, "_gradient", longer)
    patch.setattr(GossipNode, "update", dropped)


@bug("gossip-replace")
def steps_of_data(patch: pytest.MonkeyPatch) -> None:
    """A node is told how many gradients were finite."""
    event = computations._event
    patch.setattr(computations, "_event", lambda task, answer, steps: event(task, answer, steps + answer.not_finite))


@bug("gossip-replace")
def time_of_data(patch: pytest.MonkeyPatch) -> None:
    """An answer with numbers that are not finite takes longer."""
    answer = Computations._answer

    def later(self: Computations, name: str, task: int, found: Any, steps: int, took: float, now: float) -> None:
        if not found.not_finite:
            return answer(self, name, task, found, steps, took, now)
        self._results[name, task] = found._replace(not_finite=0)
        self._schedule(now + 1e-6, self._complete, name, (task, took))

    patch.setattr(Computations, "_answer", later)


@bug("gossip")
def loss_in_the_summary(patch: pytest.MonkeyPatch) -> None:
    """A summary has the training loss."""
    figures = summarising.own_figures

    def with_loss(prepared: Prepared, simulator: Any) -> dict[str, Any]:
        model = prepared.algorithm.output(simulator.present).values[None]
        return figures(prepared, simulator) | {
            "train_loss": float(prepared.objective.evaluate(model, prepared.dataset.train).loss[0])
        }

    patch.setattr(summarising, "own_figures", with_loss)


@bug("gossip-replace")
def count_in_the_summary(patch: pytest.MonkeyPatch) -> None:
    """The summary of a run with noise says how many gradients were not finite."""
    patch.setattr(running, "divergence", lambda prepared, rows, not_finite: {"gradients_not_finite": not_finite})


@bug("gossip-accuracy")
def ends_by_private_figure(patch: pytest.MonkeyPatch) -> None:
    """A run ends by its loss on training examples."""

    def satisfied(self: Evaluator) -> bool:
        model = self.prepared.algorithm.output(self.simulator.present).values[None]
        return bool(self.prepared.objective.evaluate(model, self.prepared.dataset.train).loss[0] < 0.6)

    patch.setattr(Evaluator, "satisfied", property(satisfied))


@bug("gossip-accuracy")
def metrics_of_training(patch: pytest.MonkeyPatch) -> None:
    """Metrics are of training examples."""
    metrics = Evaluator.metrics

    def on_training(self: Evaluator) -> Any:
        dataset = replace(self.prepared.dataset, test=self.prepared.dataset.train)
        whole, self.prepared = self.prepared, replace(self.prepared, dataset=dataset)
        try:
            return metrics(self)
        finally:
            self.prepared = whole

    patch.setattr(Evaluator, "metrics", on_training)


# Noise


@bug("gossip")
def same_noise(patch: pytest.MonkeyPatch) -> None:
    """Every release of a node has the noise of the first."""
    patch.setattr(SampleRule, "number", lambda self, task, charged: 1)


@bug("gossip")
def noise_of_all(patch: pytest.MonkeyPatch) -> None:
    """All nodes draw the same noise."""

    def common(home: Home, owner: str, purpose: str) -> Any:
        return numbers_in(home, "everybody" if purpose == "noise" else owner, purpose)

    for module in (samples, home):
        patch.setattr(module, "numbers_in", common)


@bug("gossip")
def noise_by_data(patch: pytest.MonkeyPatch) -> None:
    """Noise follows from the sum that it is added to."""
    noisy = FloatNoise.noisy

    def seeded(self: Any, total: Any, centred: Any, query: Any, provided: Any, numbers: Any, number: int) -> Any:
        generator = np.random.default_rng([number, *np.abs(total).view(np.uint64) % 2**32])
        return noisy(self, total, centred, query, provided, SimpleNamespace(at=lambda number: generator), number)

    patch.setattr(FloatNoise, "noisy", seeded)


@bug("gossip")
def noise_by_length(patch: pytest.MonkeyPatch) -> None:
    """Noise is in proportion to the sum where that is shorter than the clip."""
    noisy = FloatNoise.noisy

    def shorter(self: Any, total: Any, centred: Any, query: Any, *rest: Any) -> Any:
        clip = min(query.mechanism.clip, max(float(np.linalg.norm(total)), 1e-6))
        return noisy(self, total, centred, replace(query, mechanism=query.mechanism.with_clip(clip)), *rest)

    patch.setattr(FloatNoise, "noisy", shorter)


@bug("gossip-quantile")
def count_without_noise(patch: pytest.MonkeyPatch) -> None:
    """The count of gradients that were not clipped has no noise."""
    noisy = FloatNoise.noisy

    def bare(self: Any, total: Any, centred: float, *rest: Any) -> Any:
        found = noisy(self, total, centred, *rest)
        found[-1] = centred
        return found

    patch.setattr(FloatNoise, "noisy", bare)


@bug("gossip")
def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    """Noise has half the standard deviation that is charged."""
    noisy = FloatNoise.noisy

    def quiet(self: Any, total: Any, centred: Any, query: Any, *rest: Any) -> Any:
        law = replace(query.mechanism, noise_multiplier=query.mechanism.noise_multiplier / 2)
        return noisy(self, total, centred, replace(query, mechanism=law), *rest)

    patch.setattr(FloatNoise, "noisy", quiet)


@bug("fedavg-quantile")
def count_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """The vote of a client is as much as all that noise hides of it."""
    patch.setattr(servers, "vote", lambda update, bound: 50.0 * float(np.linalg.norm(update) < bound))
