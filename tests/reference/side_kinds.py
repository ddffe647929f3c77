"""Every kind of data side in every world: what contracts are checked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gossamer.data.examples import Split
from gossamer.faults.checks import Laboratory
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.masking import MaskingServer
from gossamer.privacy.masking.messages import REPLIES, MaskedVector, packed, unpacked
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, NeighboringRelation, NoNoise, Poisson, ReleaseKind
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, StreamRecord, Temporal
from gossamer.privacy.tasks import (
    MASK,
    REFUSED,
    CuratedSum,
    Gradient,
    LocalQuery,
    LocalUpdate,
    MaskingStep,
    Query,
    Round,
    StepSizes,
    Swap,
    TrainingQuery,
    UpdateQuery,
)
from gossamer.protocol.effects import Release
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.sides.deployed import Deployed
from gossamer.sides.home import Home, Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.plan import (
    WHOLE,
    ClientUpdate,
    Curator,
    MaskedMember,
    Nothing,
    Samples,
    SidePlan,
    StreamPlan,
    Trust,
)
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.sides.secure_unit import RoundTerms, SecureUnit, secure_unit
from gossamer.vectors import LARGEST_VALUE, Confined, Masked, Public, Released

SIZE, MOST, BOUND = 3, 3, 0.5
CLIENTS, SERVER = ("a", "b", "c"), "server"
ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
EVERYTHING = admits_all(ADD_OR_REMOVE)
OF_CLIENTS = admits_all(NeighboringRelation.REPLACE_ONE)
LAW, UPDATE_LAW = Gaussian(1.0, 2.0), Gaussian(BOUND, 2.0)
POISSON = Poisson(0.5)
LOCAL = LocalQuery(2, 4, 0.5)
TRAINING = TrainingQuery(6, 4, 0.3, 0.9, 0.1)
SCOPE = frozenset((SERVER, *CLIENTS))
OBJECTIVE = LinearModel("squared", SIZE, None, intercept=False, l2=0.1, dtype=np.dtype(np.float64))
DATA = Split(
    np.random.default_rng(0).standard_normal((30, SIZE)).astype(np.float32),
    np.random.default_rng(1).standard_normal(30).astype(np.float32),
)
SHARDS = {name: ShardRows(np.arange(10 * at, 10 * at + 10)) for at, name in enumerate(CLIENTS)}


def model(value: float = 0.0) -> Public:
    return Public(np.full(SIZE, value))


@dataclass
class Kept:
    """What a party keeps over restarts: a mark, and records."""

    round: int = -1
    records: list[StreamRecord] = field(default_factory=list)

    def reached(self, round: int) -> None:
        self.round = max(self.round, round)

    def kept(self) -> list[StreamRecord]:
        return list(self.records)

    def keep(self, record: StreamRecord, most: int) -> None:
        self.records = [*self.records, record][-most:]


class Disk:
    """What outlives the processes of a world.

    Parameters
    ----------
    world : str
        ``simulation``, ``deployment`` or ``laboratory``.
    """

    def __init__(self, world: str) -> None:
        self.world, self.kept = world, Kept()
        self.file = LedgerFile(":memory:")
        self.noted: list[str] = []
        self.lives = 0
        self.killed_at = ""

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        budget = OF_CLIENTS if isinstance(plan, ClientUpdate | Curator) else EVERYTHING
        return Noted(stored_ledger(self.file, name, name, "run", budget, plan, Trust.SCOPE), self.noted)

    def crashpoint(self, what: str) -> None:
        self.noted.append(what)
        if what == self.killed_at:
            raise KilledThere(what)

    def home(self) -> Home:
        """The home of one more process."""
        self.lives += 1
        if self.world == "simulation":
            return _Simulated(self)
        if self.world == "deployment":
            return Deployed(self.ledger, self.kept)
        found = Laboratory(self.ledger, self.crashpoint)
        for _ in range(self.lives - 1):
            for name in (SERVER, *CLIENTS):
                found.restarted(name)
        return found


class KilledThere(BaseException):
    """The process ends here."""


class _Simulated(Simulated):
    """Simulated, and noted."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(5)
        self._disk = disk

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        return Noted(super().ledger(name, plan), self._disk.noted)


class Noted:
    """A ledger that notes when it has charged."""

    def __init__(self, ledger: Ledger, noted: list[str]) -> None:
        self._ledger, self._noted = ledger, noted
        self.owner, self.lines, self.releases_of = ledger.owner, ledger.lines, ledger.releases_of

    @property
    def releases(self) -> int:
        return self._ledger.releases

    def charge(self, receipt: Any) -> int:
        number = self._ledger.charge(receipt)
        self._noted.append("charged")
        return number


WORLDS = ("simulation", "deployment", "laboratory")


@dataclass(frozen=True)
class KindOfSide:
    """One kind of data side.

    Attributes
    ----------
    node : str
        Whose it is.
    plan : SidePlan
        For `MOST` releases, if it is charged.
    task : callable
        (pool, number) -> the number-th thing that is charged, or asked for, at that pool.
    label : type
        Of its answers.
    charged : bool
        Whether anything is charged.
    noisy : bool
        Whether answers have noise, so that no two are alike.
    restarts : bool
        Whether a new process can go on where the last one ended.
    worlds : tuple of str
        Where it lives.
    """

    node: str
    plan: SidePlan
    task: Callable[[Pool, int], Any]
    label: type
    charged: bool = True
    noisy: bool = True
    restarts: bool = True
    worlds: tuple[str, ...] = WORLDS
    line: Mapping[str, Any] = field(default_factory=dict)


def pool_of(kind: KindOfSide, disk: Disk) -> Pool:
    """The data side of one kind in one more process of a world."""
    plans: dict[str, SidePlan] = {kind.node: kind.plan}
    return open_pool(plans, SHARDS, OBJECTIVE, DATA, disk.home())


def gradient(pool: Pool, number: int) -> Gradient:
    return Gradient(0, model(), Query(POISSON, LAW, 5.0))


def gradient_in_laplace_noise(pool: Pool, number: int) -> Gradient:
    return Gradient(0, model(), Query(POISSON, L2Laplace(1.0, 1.0, ADD_OR_REMOVE), 5.0))


def gradient_without_noise(pool: Pool, number: int) -> Gradient:
    return Gradient(0, model(), Query(POISSON, NoNoise(1.0), 5.0))


def a_round(pool: Pool, number: int) -> Round:
    return Round(0, (Swap(0, model()),), Query(POISSON, LAW, 1.0), 4, 4, StepSizes(0.3), "batch")


def record(pool: Pool, number: int) -> Release:
    return Release(number, Confined(np.full(SIZE, 0.25)))


def update(pool: Pool, number: int) -> LocalUpdate:
    return LocalUpdate(number, model(0.1), LOCAL)


def training(pool: Pool, number: int) -> LocalUpdate:
    return LocalUpdate(number, model(0.1), TRAINING)


def curated(pool: Pool, number: int) -> CuratedSum:
    updates = tuple((name, Confined(np.full(SIZE, 0.1))) for name in CLIENTS[:2])
    return CuratedSum(number, model(0.1), updates, Query(WHOLE, UPDATE_LAW, 2.0))


def masked_group(agent_noise: float) -> SecureUnit:
    return secure_unit(SERVER, BOUND, len(CLIENTS), SIZE, agent_noise=agent_noise, confined=True)


def masked_plan(agent_noise: float, most: int = MOST, query: UpdateQuery = LOCAL) -> MaskedMember:
    terms = RoundTerms(b"", dict.fromkeys(CLIENTS, query), 10, LARGEST_VALUE)
    return MaskedMember(masked_group(agent_noise), lambda round: CLIENTS, terms, most, scope=SCOPE)


def masked_vector(pool: Pool, number: int, query: UpdateQuery = LOCAL) -> MaskingStep:
    """The step at which a member's masked vector is due, in a sum with others that are elsewhere."""
    plan: Any = masked_plan(0.5, 100, query)
    others = {name: plan for name in CLIENTS[1:]}
    there = open_pool(others, SHARDS, OBJECTIVE, DATA, Simulated(9))
    computers = dict.fromkeys(others, there) | {CLIENTS[0]: pool}
    return Sum(computers, plan.bound, number, query=query).until(MASK)


class Sum:
    """An honest server's side of one masked sum, whose members are where ``computers`` says."""

    def __init__(
        self,
        computers: Mapping[str, Pool],
        unit: SecureUnit,
        round: int,
        start: float = 0.1,
        query: UpdateQuery = LOCAL,
    ) -> None:
        self.computers, self.unit, self.round = computers, unit, round
        self.server = MaskingServer(unit.group, round)
        self.asked: dict[str, Public] = dict.fromkeys(CLIENTS, REFUSED)
        for name in CLIENTS:
            self.ask(name, LocalUpdate(round, model(start), query))

    def ask(self, name: str, task: Any) -> Any:
        (found,) = self.computers[name].compute([self.computers[name].admit(name, task)])
        return found.released

    def until(self, step: int) -> MaskingStep:
        """Go through the steps before ``step``; what the first member is asked at it."""
        for now in range(step):
            self.through(now)
            requests = self.server.advance()
            self.asked = {CLIENTS[number - 1]: packed(message) for number, message in requests.items()}
        return MaskingStep(self.round, step, self.asked[CLIENTS[0]], SIZE)

    def through(self, step: int) -> None:
        for number, name in enumerate(CLIENTS, 1):
            answer = self.ask(name, MaskingStep(self.round, step, self.asked[name], SIZE))
            masked = isinstance(answer, Masked)
            self.server.receive(
                MaskedVector(self.round, number, answer) if masked else unpacked(answer, REPLIES[step], self.unit.group)
            )

    def total(self) -> Confined:
        """The sum of all members' updates."""
        self.until(4)
        self.through(4)
        return self.unit.decoded(self.server.unmask())


def stream(temporal: Temporal) -> StreamPlan:
    noise = CorrelatedNoise(Factorisation(temporal, MOST), 2.0)
    return StreamPlan(noise, MOST, SIZE, 0.5, 3, 0.5, CLIENTS, mu=1.0, scope=SCOPE)


def samples(law: Any) -> Samples:
    return Samples({ReleaseKind(law.unit(), POISSON, SIZE): MOST}, enforced=law.private)


UPDATE_KIND = ReleaseKind(UPDATE_LAW.unit(), WHOLE, SIZE)

KINDS: dict[str, KindOfSide] = {
    "gradient": KindOfSide("a", samples(LAW), gradient, Released, line={"node": "a", "noise_multiplier": 2.0}),
    "gradient, floating-point noise": KindOfSide(
        "a", samples(L2Laplace(1.0, 1.0, ADD_OR_REMOVE)), gradient_in_laplace_noise, Released, line={"node": "a"}
    ),
    "round": KindOfSide("a", samples(LAW), a_round, Released, line={"node": "a"}),
    "independent stream": KindOfSide(
        SERVER, stream(Temporal.INDEPENDENT), record, Released, line={"node": "a", "unit": SERVER}
    ),
    "random walk": KindOfSide(SERVER, stream(Temporal.RANDOM_WALK), record, Released, line={"unit": SERVER}),
    "noised update": KindOfSide(
        "a",
        ClientUpdate(LOCAL, BOUND, UPDATE_LAW, MOST, SIZE),
        update,
        Released,
        line={"node": "a", "protects": "client"},
    ),
    "noised training": KindOfSide(
        "a",
        ClientUpdate(TRAINING, BOUND, UPDATE_LAW, MOST, SIZE),
        training,
        Released,
        line={"node": "a", "protects": "client"},
    ),
    "masked training": KindOfSide(
        "a",
        masked_plan(0.5, query=TRAINING),
        partial(masked_vector, query=TRAINING),
        Masked,
        restarts=False,
        line={"to": "own server", "most": MOST},
    ),
    "clipped training": KindOfSide(
        "a", ClientUpdate(TRAINING, BOUND, scope=SCOPE), training, Confined, charged=False, noisy=False
    ),
    "masked member": KindOfSide(
        "a", masked_plan(0.5), masked_vector, Masked, restarts=False, line={"to": "own server", "most": MOST}
    ),
    "curator": KindOfSide(
        SERVER,
        Curator({UPDATE_KIND: MOST}, len(CLIENTS), CLIENTS, BOUND, SERVER),
        curated,
        Released,
        line={"node": "a", "curator": SERVER, "protects": "client"},
    ),
    "raw update": KindOfSide("a", ClientUpdate(scope=SCOPE), update, Confined, charged=False, noisy=False),
    "clipped update": KindOfSide(
        "a", ClientUpdate(LOCAL, BOUND, scope=SCOPE), update, Confined, charged=False, noisy=False
    ),
}
"""All that answer."""
FREE = KindOfSide("a", samples(NoNoise(1.0)), gradient_without_noise, Released, noisy=False)
NOTHING = KindOfSide("a", Nothing(), update, Released, charged=False)
CASES = [(name, world) for name, kind in KINDS.items() for world in kind.worlds]
