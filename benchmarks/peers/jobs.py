"""What is measured: jobs as data, and by whom each of them is done.

A job is done in *ways*, each in the environment of its library. Every way is measured against the job's *base*, a plain
loop, in the same process and in turn with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SEED = 16
CLIP, NOISE_MULTIPLIER, RATE = 1.0, 1.0, 0.1
CLIENTS, COHORT, SHARD, CLIENT_BATCH = 50, 10, 200, 20
"""Federated jobs: clients, those in a round, examples of each, and those in a step; one epoch."""
NODES = 16
"""Asynchronous workers."""
WARM_ROUNDS = 2
"""Rounds of a federated run that are not counted: workers start in them."""

PLAIN, VMAP_LOOP, BARE = "plain PyTorch loop, not private", "sequential loop of vmap(grad)", "bare numba loop"


@dataclass(frozen=True)
class Job:
    """One task.

    Attributes
    ----------
    kind : str
        ``step``: private steps of one model. ``clients``: client updates with client-level noise. ``workers``: private
        steps of 16 models. ``rounds``: sequential steps of single examples.
    model : str
        A row of `networks.NETWORKS`, or ``logistic``.
    batch : int
        Examples a step.
    threads : int
        Threads, or processes where a library has no threads.
    steps : int
        Steps (rounds of clients) in a block, which is timed as a whole.
    base : str
        What ratios are to.
    data : str
        ``mnist`` or ``a9a``.
    """

    kind: str
    model: str
    batch: int
    threads: int
    steps: int
    base: str = PLAIN
    data: str = "mnist"

    @property
    def name(self) -> str:
        """Short and unique."""
        cores = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"{self.kind} {self.model} {self.batch}, {cores}"


JOBS = (
    *(Job("step", "cnn", batch, threads, 20) for batch in (32, 256) for threads in (1, 2)),
    *(Job("step", model, 64, threads, 20) for model in ("lenet5 relu", "lenet5 tanh", "mlp") for threads in (1, 2)),
    *(Job("step", "softmax", batch, threads, 200) for batch in (32, 64) for threads in (1, 2)),
    *(Job("step", model, 64, threads, 20) for model in ("residual", "attention", "branching") for threads in (1, 2)),
    *(Job("clients", "cnn", CLIENT_BATCH, threads, 10) for threads in (1, 2)),
    *(Job("workers", "cnn", 32, threads, 2, VMAP_LOOP) for threads in (1, 2)),
    Job("rounds", "logistic", 1, 1, 200, BARE, "a9a"),
    Job("rounds", "lenet5 relu", 1, 1, 2),
)

GOSSAMER = "gossamer"
WAYS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "step": (
            (GOSSAMER, "Gossamer"),
            (GOSSAMER, "vmap(grad)"),
            ("opacus", "Opacus hooks"),
            ("opacus", "Opacus ew"),
            ("opacus", "Opacus ghost"),
        ),
        "clients": ((GOSSAMER, "Gossamer"), ("pfl", "pfl-research"), ("flower", "Flower")),
        "workers": ((GOSSAMER, "Gossamer"), (GOSSAMER, "Gossamer gossip")),
        "rounds": ((GOSSAMER, "Gossamer"),),
    }
)
"""By kind of job: (environment, way)."""

NOTES: Mapping[str, str] = MappingProxyType(
    {
        "Gossamer": "`TorchModule` of the same `nn.Sequential` (`LinearModel` for softmax and logistic); federated: a "
        "whole run of `fedavg` in the simulator, with noise of a trusted server",
        "Gossamer gossip": "a whole run of 16 gossip nodes in the simulator, with sampling, accounting and messages",
        "vmap(grad)": "written by hand: `vmap(grad(loss))`, norms, clip, noise, step",
        "Opacus hooks": "`PrivacyEngine.make_private(..., poisson_sampling=False)`, the default mode",
        "Opacus ew": '`grad_sample_mode="ew"`, expanded weights',
        "Opacus ghost": '`grad_sample_mode="ghost"`, norms by ghost clipping and a second backward pass',
        "pfl-research": "`SimulatedBackend` with `PyTorchTensorDataset` and a central `GaussianMechanism`; with 2, "
        "`torchrun` with 2 processes, as its documentation advises",
        "Flower": "`run_simulation` on Ray, a core a client, `FedAvg` in "
        "`DifferentialPrivacyServerSideFixedClipping`, no client-side evaluation",
    }
)
"""The configuration of each way, for speed as its library's documentation advises."""
