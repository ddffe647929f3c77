"""Settings of `fedavg`, what no run is made of, and what follows from settings alone: cohorts and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients.server import Waiting
from gossamer.algorithms.clients.settings import ClientSettings, Masking
from gossamer.algorithms.problem import Spec
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.sampling import Poisson
from gossamer.randomness import Stream
from gossamer.sides.plan import WHOLE

Draw = Callable[[int], tuple[str, ...]]
"""Round -> the clients that are asked in it."""


class Settings(ClientSettings):
    """Settings of `fedavg`, beside those of clients.

    Attributes
    ----------
    rounds : int
        T.
    clients_per_round : int, optional
        m, how many clients are in a round, on average where they are drawn in secret; all by default.
    cohorts : {"public", "secret"}
        Draw of the clients of a round. ``public``: m of them, by coins that everybody knows, so that being drawn
        hides nobody. ``secret``: each with probability m/nodes, by coins of a trusted server, which makes each round
        reveal less of everybody.
    timeout : float, optional
        Seconds after which a round goes on without those who have not answered. Without it a round waits for all but
        those that are lost: asked after ``patience``, they were silent for as long as `links.silence` and their own
        earlier times say. With ``cohorts: secret`` it waits for these, too. With ``masking`` it runs for each of the
        five steps of a sum anew.
    patience : float, optional
        Seconds without ``timeout``, after which those that are waited for are asked whether they are there; 30 by
        default, then twice as long each time.
    late : {"awaited", "skipped"}, optional
        Whether, with ``timeout``, later rounds wait for a client that was late in one. ``awaited``, the default: each
        for the whole timeout. ``skipped``: not until it is heard of again and is asked in the round after that, as long
        as others answer, or with ``masking`` are enough for a sum.
    over_selection : float, optional
        Factor on m: as many clients are asked in a round, rounded up; it goes on with the first m that answer, and
        leaves out the others. Every client that is asked is accounted for. With ``public`` cohorts only.
    weights : {"equal", "declared"}, optional
        ``equal``, the default: all updates count alike. ``declared``: each by its client's number of examples, which is
        declared to be public by this.
    """

    name: Literal["fedavg"] = "fedavg"
    rounds: int = Field(default=20, ge=1, le=1_000_000)
    clients_per_round: int | None = Field(default=None, ge=1, le=1_000_000)
    cohorts: Literal["public", "secret"] = "public"
    timeout: PositiveFloat | None = None
    patience: PositiveFloat | None = None
    late: Literal["awaited", "skipped"] | None = None
    over_selection: Annotated[float | None, Field(ge=1, le=1000)] = None
    weights: Literal["equal", "declared", "examples"] | None = None

    @property
    def drawn(self) -> int:
        """m."""
        return self.nodes if self.clients_per_round is None else self.clients_per_round

    @property
    def asked(self) -> int:
        """Number of clients that are asked in a round, m of whom are waited for."""
        return math.ceil(round(self.drawn * (self.over_selection or 1), 6))  # 10 times 1.1 is 11, not a little more

    @property
    def secret(self) -> bool:
        """Whether the server draws the clients of a round in secret."""
        return self.cohorts == "secret" and self.drawn < self.nodes

    @property
    def waiting(self) -> Waiting:
        """Time that the server gives the clients of a round; how long a secret cohort takes is not to show."""
        asks = self.timeout is None and not self.secret
        return Waiting(self.timeout, self.patience, self.late == "skipped", asks)

    @property
    def unseen(self) -> str:
        return "cohorts: secret" if self.secret else ""

    @property
    def sampling(self) -> Poisson:
        """Sampling of the clients of a round, for accounting: secret coins alone hide anybody."""
        return Poisson(self.drawn / self.nodes) if self.secret else WHOLE

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        if self.drawn > self.nodes:
            yield (
                f"algorithm.clients_per_round: expected at most the {self.nodes} clients that there are, found "
                f"{self.drawn}"
            )
        elif self.asked > self.nodes:
            yield (
                f"algorithm.over_selection: {self.over_selection:g} times {self.drawn} are {self.asked} clients, and "
                f"there are {self.nodes}; lower it, or clients_per_round"
            )
        if self.late is not None and self.timeout is None:
            yield "algorithm.late: without a timeout nobody is late; leave it out, or say timeout"
        if self.patience is not None and (self.timeout is not None or self.cohorts == "secret"):
            yield "algorithm.patience: rounds with a timeout, or of secret cohorts, ask nobody; leave it out"
        if self.masking is not None:
            yield from self._unmaskable(self.masking)
        elif self.cohorts == "secret" and not self.curated:
            yield (
                "algorithm.cohorts: secret coins are those of a server that is trusted, and clients that add their own "
                "noise are seen to send it; take noise_by: server, or cohorts: public"
            )
        elif self.cohorts == "secret" and self.drawn == self.nodes:
            yield (
                f"algorithm.cohorts: secret hides who of the clients was drawn, and all {self.nodes} are in each "
                "round; say fewer with clients_per_round, or take cohorts: public"
            )
        if self.cohorts == "secret" and self.over_selection is not None:
            yield (
                "algorithm.over_selection: who is among the first depends on who is fast, and on who was drawn before, "
                "and secret cohorts must not show it; leave it out, or take cohorts: public"
            )
        if self.weights == "examples":
            yield (
                "algorithm.weights: a weight by how many examples a client has tells that number; say declared if such "
                "numbers are public, or equal"
            )
        if self.updates_per_node is not None:
            yield f"algorithm.updates_per_node: {self.name} ends after its rounds; leave it out, and say rounds"

    def _unmaskable(self, masking: Masking) -> Iterator[str]:
        """Settings that do not go with masks, a line each."""
        if self.cohorts == "secret":
            yield (
                "algorithm.cohorts: clients mask with the others of their round, so all know who is in it; take "
                "cohorts: public, or leave masking out"
            )
        if self.over_selection is not None:
            yield (
                "algorithm.over_selection: nobody who has masked is cut off; leave it out, and say how many are enough "
                "with masking.minimum"
            )
        if self.weights is not None:
            yield "algorithm.weights: masked updates count alike, as the server sees their sum alone; leave it out"
        yield from masking.wrong(self.drawn)


def public_cohorts(settings: Settings, seed: int, names: tuple[str, ...]) -> Draw:
    """The clients of each round by public coins: everyone can follow the draws, which depend on no data."""
    coins, asked = Stream(seed, settings.name, "cohorts"), settings.asked

    def draw(round: int) -> tuple[str, ...]:
        if asked == len(names):
            return names
        found = coins.at(round).choice(len(names), asked, replace=False, shuffle=False)
        return tuple(names[number] for number in sorted(found.tolist()))

    return draw


# Weights of clients' updates: alike, or by numbers of examples that are public.
#
# A weight is at most 1, so an update that is clipped to C is no longer than C when it is weighted: noise and guarantee
# are those of equal weights. Weights are known before the run, and sums are divided by what is made of them alone. A
# weight by a private number of examples would tell it, so there is none.


def weights_of(shard_sizes: Mapping[str, int], declared: bool) -> dict[str, float] | None:
    """Weight of each client, in proportion to its examples, and 1 for those who have most; None where all count alike.

    Parameters
    ----------
    shard_sizes : mapping of str to int
        Numbers of examples, which are public.
    declared : bool
        Whether updates are weighted by them.
    """
    if not declared:
        return None
    most = max(1, *shard_sizes.values())
    return {name: size / most for name, size in shard_sizes.items()}


# Settings that do not go with cohorts that a server draws in secret.
#
# What `sides.plan` proves of them is proved of sums of all who were drawn, and of as many sums as planned. How
# long a round takes depends on who is in it. So whoever is cut off by the clock, or away by it, is missing for a reason
# that depends on who was drawn before; and a run that ends by the clock shows in how many sums there are how long they
# took. Such cohorts amplify nothing.


def shown(spec: Spec, timeout: float | None) -> Iterator[str]:
    """The settings of a private run by which secret coins decide who is missing in a sum, or how many sums there are.

    Parameters
    ----------
    spec : Spec
        Spec of the run.
    timeout : float or None
        Seconds after which a round goes on without those who have not answered.

    Yields
    ------
    str
        A line for each.
    """
    if timeout is not None:
        yield (
            "algorithm.timeout: who is too late in a round depends on who was drawn before, and secret cohorts must "
            "not show it; leave it out, or take cohorts: public"
        )
    if spec.disturbed:
        yield (
            "algorithm.cohorts: secret needs all clients there whenever they are drawn, found faults.absences, "
            "faults.availability or links.partitions; leave these out, or take cohorts: public"
        )
    if spec.stop.epochs is not None:
        yield (
            "stop.epochs: when clients have had enough shows how often they were drawn; leave it out with cohorts: "
            "secret, and say rounds"
        )
    if spec.ends_by_clock:
        yield (
            "stop: a run that ends by the clock shows how long its rounds took, and so who was in them; with cohorts: "
            "secret leave out stop.virtual_seconds, and evaluation.every_seconds where stop.accuracy is said"
        )


def check_followed(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a clip which follows a quantile breaks, a line each."""
    if not isinstance(spec.privacy.clip, QuantileClip):
        return
    if settings.stepwise:
        yield (
            f"privacy.clip.policy: {settings.name} knows fixed, found quantile, which follows whole updates; take "
            "privacy_unit: client"
        )
    elif not settings.curated:
        yield (
            "privacy.clip.policy: quantile needs a server that counts updates and adds the noise; take noise_by: "
            "server, or fixed"
        )
    if settings.weights == "declared":
        yield "privacy.clip.policy: quantile counts updates that are alike; take weights: equal, or fixed"
