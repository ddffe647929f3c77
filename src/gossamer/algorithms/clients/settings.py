"""Settings that algorithms with clients and a server share, and what follows from them alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gossamer.algorithms.aggregation import Aggregation
from gossamer.algorithms.compression import Compression
from gossamer.algorithms.context import Batches, Workload
from gossamer.algorithms.optimizer import OneRate, Optimizer
from gossamer.algorithms.plan import EXAMPLE, SecureSums
from gossamer.files import refusals
from gossamer.privacy.tasks import TrainingQuery
from gossamer.section import Composite, bare


class Masking(SecureSums):
    """Settings of masks among the clients of a round.

    Attributes
    ----------
    name : {"none", "secure"}
        ``secure``: a server that hands on its clients' keys learns exact sums of updates made at one model, with the
        noise that all clients in them have added.
    bits : {32, 64}
        Bits of the integers that updates are added as, with ``secure``.
    threshold : int, optional
        Clients that have to answer with ``secure`` for a sum to be unmasked, more than half of those of a round. By
        default two thirds of them, rounded up.
    minimum : int, optional
        Fewest updates in a sum with ``secure``, at least the threshold. By default the threshold.
    fraction_bits : int, optional
        Binary digits after the point with ``secure``. By default as many as the clip, the clients and the bits allow.
    honest : float, optional
        Share, with ``secure``, of the clients of every round that is trusted to add its noise and to tell nobody.
        Left out, nobody is: of a sum's noise what each client added itself counts for it, and no more.
    """

    honest: float | None = Field(default=None, gt=0, le=1)

    def colluders(self, clients: int) -> int:
        """c: how many of so many clients of a round are not trusted, at most."""
        # 0.9 of 10 is 9, whatever the last bits of the product are.
        return clients - 1 if self.honest is None else clients - math.ceil(round(self.honest * clients, 9))

    def counted(self, clients: int) -> int:
        """h: how many honest clients' noise every sum has for certain, as `wrong` allows it; 1 is each client's own."""
        if self.honest is None:
            return 1
        return max(self.minimum or 0, self._threshold(clients)) - self.colluders(clients)

    def remarks(self, clients: int) -> list[str]:
        """Remarks on a guarantee that counts the noise of honest clients, a line each."""
        if self.honest is None or self.honest == 1 or self.colluders(clients):
            return []
        return [
            f"masking.honest {self.honest:g} of the {clients} clients of a round, rounded up, is all {clients}: where "
            "one of them works together with the server, no more is proved than by a client's own noise; take more "
            "clients in a round, or say a lower share"
        ]

    def wrong(self, clients: int) -> Iterator[str]:
        """Shares of honest clients that masks among so many do not hold for; other numbers are for `unit` to refuse."""
        colluders, held = self.colluders(clients), 2 * self._threshold(clients) - clients
        rules = {"too few honest": self.honest is not None and colluders >= held}
        facts = {"clients": clients, "colluders": colluders, "threshold": self._threshold(clients), "most": held - 1}
        return refusals(__file__, rules, s=self, **facts)

    def _threshold(self, clients: int) -> int:
        return self.threshold or -(-2 * clients // 3)


Masks = Annotated[Masking | None, bare("name"), AfterValidator(lambda one: one if one and one.name != "none" else None)]
"""A name, or a mapping with a ``name``; None is ``none``."""


STEPS = 5
"""Local steps where neither these nor epochs are said."""

PATIENCE = 30.0
"""Seconds after which a server that has no timeout asks those it waits for whether they are there."""

CLIENT = "client"
"""The unit of privacy where a client's whole update is protected; the other is `EXAMPLE`."""

PrivacyUnit = Annotated[
    Literal["client", "example"] | None,
    AfterValidator(lambda unit: None if unit == CLIENT else unit),  # nothing said is the same run
]


class ClientSettings(Composite):
    """Settings of a client's local training, of the server's steps, and of who adds the noise.

    Attributes
    ----------
    nodes : int
        Clients; the server is one more.
    privacy_unit : {"client", "example"}, optional
        Unit that is protected. ``client``, by default: all that a client has, by noise on its whole updates.
        ``example``: each example of a client, by noise on each of its local steps.
    noise_by : {"client", "server"}
        Party that adds the noise to clients' updates: each client itself, so that nobody is trusted, or the server,
        which then sees the updates themselves and has to be named as ``trusted``.
    trusted : {"server"}, optional
        Party that clients trust with their updates.
    masking : str or mapping, optional
        Masks that hide clients' updates from their server, and by which they share the noise of a sum: ``none`` or
        ``secure``.
    learning_rate : float
        Learning rate of the server, for the mean update.
    server_optimizer : str or mapping, optional
        Optimizer of the server, for the mean update; ``sgd`` takes it as it is.
    local_steps : int, optional
        Mini-batch steps of a client from the model that it was given; 5 where ``local_epochs`` is not said either.
    local_epochs : int, optional
        Whole passes over a client's examples, in the place of ``local_steps``.
    local_learning_rate : float
        Learning rate of each step.
    local_momentum : float
        Momentum of local steps, as in PyTorch; 0 is plain SGD.
    proximal : float
        mu of FedProx: mu/2 |w - x|^2 is added to what a client minimises, to hold it near the model that it was given.
    batch_size : int
        Examples of a local step: a client shuffles its own, and takes them in turn. With ``privacy_unit: example`` the
        expected number; each step samples each of n examples with probability ``batch_size``/n.
    updates_per_node : int, optional
        Quota of updates of each client.
    aggregation : str or mapping, optional
        Robust rule for the updates that are taken together, in the place of their mean: ``median``, ``trimmed_mean`` or
        ``centred_clipping``. Updates have to be released one by one.
    compression : int or mapping, optional
        Bits of a number in models and updates, and the ``share`` of the numbers of an update that are sent. What an
        update lacks is added to the next. Updates have to be released one by one.
    """

    name: str
    nodes: int = Field(default=10, ge=1, le=1_000_000)
    privacy_unit: PrivacyUnit = None
    noise_by: Literal["client", "server"] = "client"
    trusted: Literal["server"] | None = None
    masking: Masks = None
    learning_rate: OneRate = Field(default=1.0, gt=0, le=1e6)
    server_optimizer: Optimizer = None
    local_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    local_epochs: int | None = Field(default=None, ge=1, le=10_000)
    local_learning_rate: OneRate = Field(default=0.1, gt=0, le=1e6)
    local_momentum: float = Field(default=0.0, ge=0, lt=1)
    proximal: float = Field(default=0.0, ge=0, le=1e6)
    batch_size: int = Field(default=16, ge=1, le=1_000_000)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)
    aggregation: Aggregation = None
    compression: Compression = None

    def _problems(self) -> Iterator[str]:
        if self.local_steps is not None and self.local_epochs is not None:
            yield (
                f"a client makes local_steps or local_epochs, found {self.local_steps} and {self.local_epochs}; leave "
                "one out"
            )

    @property
    def stepwise(self) -> bool:
        """Whether each local step is a release of its own, which protects examples."""
        return self.privacy_unit == EXAMPLE

    @property
    def curated(self) -> bool:
        """Whether the server is a curator: it sees updates as they are, and adds the noise."""
        return self.noise_by == "server"

    @property
    def taken(self) -> int:
        """Updates that the server takes together."""
        return 0

    @property
    def unseen(self) -> str:
        """The setting by which whom the server talks to is a secret, if it is one."""
        return ""

    @property
    def or_trust(self) -> str:
        """The end of a line on what clients that add noise themselves cannot have: what else a spec may say."""
        return "" if self.masking is not None else ", or take noise_by: server"

    def wrong(self) -> Iterator[str]:
        """Combinations that no run is made of, a line each."""
        post = self.aggregation is not None or self.compression is not None
        rules = {
            "nobody is trusted": self.curated and self.trusted is None,
            "nothing to trust with": not self.curated and self.trusted is not None,
            "masked and shown": self.curated and self.masking is not None,
            "sums alone": post and (self.curated or self.masking is not None),
            "packed models": self.compression is not None and not self.taken,
            "too few": self.aggregation is not None and self.taken < self.aggregation.least,
        }
        return refusals(__file__, rules, s=self)

    def query(self, examples: int) -> TrainingQuery:
        """The question for every update of a client with so many examples."""
        batch, rate, steps = self.batch_size, self.local_learning_rate, self.local_steps or STEPS
        if self.local_epochs is not None:
            steps = self.local_epochs * math.ceil(examples / batch)
        return TrainingQuery(steps, batch, rate, self.local_momentum, self.proximal)

    def asks(self, examples: int) -> int:
        """Questions of a client with so many examples to its data side for an update: one, or one for each step."""
        return self.query(examples).steps if self.stepwise else 1


def workload(settings: Any, shard_sizes: Mapping[str, int], seed: int) -> Workload:
    """Examples of each client's updates: of each noisy step, or all that its steps take, each as often as they do."""
    quota = settings.updates_per_node
    if settings.stepwise:
        steps = {name: settings.asks(size) for name, size in shard_sizes.items()}
        return Batches(settings.batch_size, shard_sizes, quota, steps)
    examples = {name: settings.query(size).examples(size) for name, size in shard_sizes.items()}
    return Batches(examples, shard_sizes, quota, passes=True)
