"""Rounds of cohorts: who is asked in one, when it goes on, and how often a client may be in one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients.masking_settings import Masking
from gossamer.algorithms.clients.planning import Participation, participation_in_updates
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.problem import Problem
from gossamer.privacy.sampling import Poisson
from gossamer.randomness import Stream
from gossamer.section import NEWER
from gossamer.sides.plan import WHOLE

S = TypeVar("S", bound="RoundSettings")

Draw = Callable[[int], tuple[str, ...]]
"""Round -> the clients that are asked in it."""


class RoundSettings(ClientSettings):
    """Settings of rounds, beside those of clients.

    Attributes
    ----------
    rounds : int
        T.
    clients_per_round : int, optional
        m, how many clients are in a round, on average where they are drawn in secret; all by default.
    cohorts : {"public", "secret"}
        How the clients of a round are drawn. ``public``: m of them, by coins that everybody knows, so that being drawn
        hides nobody. ``secret``: each with probability m/nodes, by coins of a trusted server, which makes each round
        reveal less of everybody.
    timeout : float, optional
        Seconds after which a round goes on without those who have not answered. Without it a round waits for all but
        those that are lost: asked after ``patience``, they were silent for as long as `links.silence` and their own
        earlier times say. With ``cohorts: secret`` it waits for these, too. With ``masking`` it runs for each of the
        five steps of a sum anew.
    patience : float, optional
        Without ``timeout``: seconds after which those that are waited for are asked whether they are there; 30 by
        default, then twice as long each time.
    late : {"awaited", "skipped"}, optional
        With ``timeout``: whether later rounds wait for a client that was late in one. ``awaited``, the default: each
        for the whole timeout. ``skipped``: not until it is heard of again and is asked in the round after that, as long
        as others answer, or with ``masking`` are enough for a sum.
    over_selection : float, optional
        How many times m clients are asked in a round, rounded up; it goes on with the first m that answer, and leaves
        out the others. Every client that is asked is accounted for. With ``public`` cohorts only.
    weights : {"equal", "declared"}, optional
        ``equal``, the default: all updates count alike. ``declared``: each by its client's number of examples, which is
        declared to be public by this.
    """

    rounds: int = Field(default=20, ge=1, le=1_000_000)
    clients_per_round: int | None = Field(default=None, ge=1, le=1_000_000)
    cohorts: Literal["public", "secret"] = "public"
    timeout: PositiveFloat | None = None
    patience: Annotated[PositiveFloat | None, NEWER] = None
    late: Annotated[Literal["awaited", "skipped"] | None, NEWER] = None
    over_selection: Annotated[float | None, Field(ge=1, le=1000), NEWER] = None
    weights: Annotated[Literal["equal", "declared", "examples"] | None, NEWER] = None

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


def public_cohorts(settings: RoundSettings, seed: int, names: tuple[str, ...]) -> Draw:
    """The clients of each round by public coins: everyone can follow the draws, which depend on no data."""
    coins, asked = Stream(seed, settings.name, "cohorts"), settings.asked

    def draw(round: int) -> tuple[str, ...]:
        if asked == len(names):
            return names
        found = coins.at(round).choice(len(names), asked, replace=False, shuffle=False)
        return tuple(names[number] for number in sorted(found.tolist()))

    return draw


def participation_in_rounds(problem: Problem[S]) -> Participation:
    """Return the rounds that clients are asked in, known before the run, or all rounds where that is secret."""
    settings, names = problem.settings, problem.names
    if settings.secret:
        return Participation(dict.fromkeys(names, settings.rounds), settings.rounds, settings.sampling, len(names))
    draw = public_cohorts(settings, problem.seed, names)
    rounds = Counter(name for round in range(settings.rounds) for name in draw(round))
    most = {name: rounds[name] for name in names}
    return participation_in_updates(problem, most, settings.rounds, settings.drawn)
