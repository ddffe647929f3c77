"""FedAsync: a server that mixes each client's model into its own as it comes, with noise of each client's own.

Client c, for ever:                                     Server, with the model x:

1. fetch the newest x, of version v                     1. take the next model x_new, trained from version v
2. w = x; H times: w = w - eta_l (grad f(w; batch)      2. alpha_t = alpha s(t - v)
                              + mu (w - x))             3. x = (1 - alpha_t) x + alpha_t x_new, t = t + 1
3. u = w - x, clipped as a whole to C; u = u + noise    4. answer with the newest x, of version t
4. push (x_new = x + u, v), which fetches again

(2 and 3 of a client happen at its data side, which shuffles the client's examples and takes them in turn; steps may
have momentum.) Nobody waits: a client that comes by gets what is there. Clipping and noise are not the paper's. As x is
no secret, x + u tells what u does, and a server that is pushed models keeps no old ones. What nodes share with `fedavg`
and `fedbuff` is in `algorithms.clients`.

| symbol | here |
|---|---|
| alpha | `Settings.mixing` |
| s | `Settings.staleness_weight`: constant, hinge or polynomial |
| H, eta_l | `Settings.local_steps`, or those of `Settings.local_epochs`; `Settings.local_learning_rate` |
| mu (the paper's rho) | `Settings.proximal` |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

t - v counts the steps that the server made while the client trained, so a model that nobody came before has s(0) = 1.
(The paper says the same of s, and numbers the step itself too: its t is one more.)

Every noised update is a Gaussian release of all that its client has (`gossamer.sides.plan`); its ledger covers
the updates of its quota.

References
----------
C. Xie, S. Koyejo and I. Gupta, "Asynchronous federated optimization", arXiv 1903.03934, 2019: Algorithm 1, section 5.2
for s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.nodes import SERVER, AtOnceServer, ServerState
from gossamer.algorithms.clients.planning import participation_by_quota, plan_clients
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Figures, SmallRuns
from gossamer.algorithms.plan import Plan, Problem
from gossamer.files import refusals
from gossamer.protocol.node import Node
from gossamer.section import Section, bare


class Constant(Section):
    """s = 1, however old a model is."""

    name: Literal["constant"] = "constant"

    def of(self, stale: int) -> float:
        return 1.0


class Hinge(Section):
    """s = 1 up to b steps of the server, and 1/(a (tau - b) + 1) for a model of tau > b.

    Attributes
    ----------
    a : float
        Steepness; 0 is `constant`.
    b : int
        Steps that cost a model nothing.
    """

    name: Literal["hinge"] = "hinge"
    a: float = Field(default=10.0, ge=0, le=1e6)
    b: int = Field(default=4, ge=0, le=10_000_000)

    def of(self, stale: int) -> float:
        return 1 / (self.a * max(stale - self.b, 0) + 1)


class Polynomial(Section):
    """s = (1 + tau)^-a for a model that is tau steps of the server old.

    Attributes
    ----------
    a : float
        The exponent; 0 is `constant`.
    """

    name: Literal["polynomial"] = "polynomial"
    a: float = Field(default=0.5, ge=0, le=10)

    def of(self, stale: int) -> float:
        return float((1 + stale) ** -self.a)


Weight = Annotated[Constant | Hinge | Polynomial, Field(discriminator="name"), bare("name")]
"""s of the paper's section 5.2, a name or a mapping with a ``name``: in (0, 1], and 1 for a model that is not stale."""


class Settings(ClientSettings):
    """Settings of `fedasync`, beside those of clients.

    Attributes
    ----------
    noise_by : {"client", "server"}
        Always ``client``: a server that takes every model alone has no sum to add noise to.
    trusted : {"server"}, optional
        Nobody is.
    masking : str or mapping, optional
        Nothing: there is no sum to hide a model in.
    learning_rate : float
        Always 1; ``mixing`` is in its place.
    server_optimizer : str or mapping, optional
        Nothing: a server that mixes models makes no steps along updates.
    mixing : float
        alpha: how far the server goes from its model to one that is not stale.
    staleness_weight : str or mapping
        s: ``mixing`` is multiplied with it, for a model that was trained from one tau steps of the server old.
    """

    name: Literal["fedasync"] = "fedasync"
    mixing: float = Field(default=0.6, gt=0, le=1)
    staleness_weight: Weight = Polynomial()

    @property
    def or_trust(self) -> str:
        return ""

    def wrong(self) -> Iterator[str]:
        rules = {
            "no sum to noise": self.curated,
            "no sum to hide in": self.masking is not None,
            "mixing": self.learning_rate != 1,
            "no steps": self.server_optimizer is not None,
        }
        if not self.curated:
            yield from super().wrong()
        yield from refusals(__file__, rules, s=self)


def whole_model(given: Any, update: Any) -> Any:
    """Line 4 of a client: the model which its training ended with, so that the server keeps no old ones.

    Everybody may know the model that it was given, so that the sum is post-processing of the noised update.
    """
    return given + update


class MixingServer(AtOnceServer):
    """The server: the model alone; what is pushed is a model too, and a step."""

    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(ServerState(x=context.initial), context, settings)

    def take(self, client: str, update: Any, stale: int) -> None:
        """Lines 2 and 3."""
        s, mixed = self.state, self.settings.mixing * self.settings.staleness_weight.of(stale)
        s.x, s.t = ((1 - mixed) * s.x + mixed * update).within(), s.t + 1


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    return {**parts.clients(settings, context, whole_model), SERVER: MixingServer(context, settings)}


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients that go on until their quota, or the end of the run."""
    return plan_clients(problem, participation_by_quota(problem))


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server, each with one model, and how stale models were."""
    state = nodes[SERVER].state
    return {"steps": state.t, **state.staleness(state.t)}


# That the server's model is a mixture of what came is tested against a reference.
ALGORITHM = parts.algorithm(
    Settings,
    build,
    plan=plan,
    figures=Figures(count=parts.count, staleness=parts.staleness, report=report, advice=parts.advice),
    grows=True,
    small_runs=lambda settings: SmallRuns(parts.SMALL, fitting=parts.fitting(settings)),
)
