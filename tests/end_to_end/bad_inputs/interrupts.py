"""Ctrl-C at moments at which it is easily lost, and the code that it has to end with: 130."""

from __future__ import annotations

from dataclasses import dataclass

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 100000}
budget: {epsilon: 8, delta: 1.0e-4}
"""

OWN = """
import os, signal, time
import torch

def press():
    os.kill(os.getpid(), signal.SIGINT)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        {made}

    def forward(self, x):
        {used}
        return self.layer(x)
"""
"""A user's model, in whose code the key is pressed."""


@dataclass(frozen=True)
class Pressed:
    """A moment of Ctrl-C.

    Attributes
    ----------
    id : str
        Its name.
    command : str
        Of ``gossamer``.
    module : str
        While this is imported the key is pressed; empty for a user's model that does it.
    made, used : str
        What that model does when it is made, and when it is used.
    """

    id: str
    command: str
    module: str = ""
    made: str = "pass"
    used: str = "pass"


RUN = "run spec.yaml --out out"
OWN_RUN = f"{RUN} --set objective.module=own:Model"
WAIT = "[time.sleep(0.01) for _ in range(6000)]"
"""A minute, in which a signal is heard at any time."""

PRESSED: tuple[Pressed, ...] = (
    *(
        Pressed(f"{RUN}: import of {module}", RUN, module)
        for module in (
            "gossamer.cli.runs.run",
            "argparse",
            "pydantic",
            "yaml",
            "numpy",
            "numpy.random",
            "scipy.sparse",
            "safetensors.numpy",
            "numba",
            "gossamer.experiment.specs.spec_file",
            "gossamer.experiment.runs.running",
        )
    ),
    Pressed("check: import of numpy", "check spec.yaml", "numpy"),
    Pressed(
        "account: import of scipy", "account --noise-multiplier 1 --sampling-rate 0.1 --steps 9 --delta 1e-5", "scipy"
    ),
    Pressed("attack: import of numpy", "attack membership out", "numpy"),
    Pressed("data: import of yaml", "data show policy.yaml", "yaml"),
    Pressed("up: import of multiprocessing", "up spec.yaml --out out", "multiprocessing"),
    Pressed("a model's making", OWN_RUN, made="press(); " + WAIT),
    Pressed("a model's use", OWN_RUN, used="press(); " + WAIT),
    Pressed(
        "caught by everything", OWN_RUN, made=f"exec('try:\\n press(); {WAIT}\\nexcept BaseException: pass'); {WAIT}"
    ),
    Pressed(
        "made another error",
        OWN_RUN,
        made=f"exec('try:\\n press(); {WAIT}\\nexcept BaseException: raise ValueError()')",
    ),
    Pressed(
        "in a destructor",
        OWN_RUN,
        made=f"type('Gone', (), dict(__del__=lambda self: press()))(); {WAIT}",
    ),
)
