"""Everything that is to be measured on a graphics card, in one go, with a table of what came out.

    python benchmarks/gpu.py [--out runs/gpu] [--device cuda] [--memory-mib 16384]
    python benchmarks/gpu.py --small --device cpu        half a minute on the processor: does it work?
    python benchmarks/gpu.py --table-1                   also Table 1 of A(DP)2SGD, `experiments/run.py --full`: days

*Runs*: private gossip in the simulator on data made here, from the tenth part of all updates to the last, by the wall
clock: `cnn_mapa` on 1,000 nodes in batches of 32.
*Device alone*: the same sums and noise, asked for without nodes, messages and charges: what is left is the simulator's
own. *Step*: private steps of ResNet-18 on images of CIFAR-10's shape, beside Opacus where it is installed, in turn,
both with the same products (TF32 off) and the median of blocks. *Alike*: the same call twice, to the byte, and against
the processor.

Writes ``gpu.json`` and ``gpu.md`` into the folder. Exits with 1 if bytes differ between two calls.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from simulator import Clock, _spec

import gossamer as gs
from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.device.device import Device, device_of
from gossamer.objectives.device.network import DeviceNetwork
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import Normals

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]

RUNS = {"cnn_mapa": (("cnn_mapa", 1_000, 32, 100, 20, 5_000),)}
"""(model, nodes, batch, examples a node, updates a node, updates a second that are wanted)."""
SMALL_RUNS = {"cnn_mapa": (("cnn_mapa", 6, 8, 16, 3, None),)}
CLIP, RATIO = 1.0, 0.9


class Wall(Clock):
    """The wall clock in the place of the processor's."""

    def updated(self, updates: int) -> None:
        self.last = (time.perf_counter(), updates)
        if updates <= self.tenth:
            self.first = self.last


def simulated(model: str, nodes: int, batch: int, rows: int, updates: int, wanted: int | None, device: Device) -> Row:
    """A whole run in the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        content = _spec(Path(folder), nodes, updates, model, rows)
        content["algorithm"]["batch_size"] = batch
        content["compute"] = {"device": device.name, "memory_mib": device.memory // 2**20}
        clock = Wall()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gs.RunWarning)  # of labels that nobody declares
            result = gs.run(parse_spec(content), progress=clock)
    return {
        "what": f"run: {model}, {nodes:,} nodes, batch {batch}",
        "updates": result.summary["updates"],
        "updates_per_second": round(1 / clock.seconds),
        "mean_width": result.timing["mean_width"],
        "wanted": wanted,
    }


def alone(model: str, nodes: int, batch: int, rows: int, device: Device, rounds: int) -> Row:
    """Calls of as many nodes as a run gathers, without anything else of a run."""
    width = min(nodes, 1024)
    objective, data = DeviceNetwork(device, _module(model)), _data(width * rows)
    given = _asked(objective, data, width, batch)
    keys = np.random.default_rng(2).integers(0, 2**64, (width, 2), dtype=np.uint64)
    noise = Normals(keys, np.ones(width))
    taken = timed(lambda: objective.noisy_gradients(*given, noise), rounds)
    return {
        "what": f"device alone: {model}, {width:,} nodes at once, batch {batch}",
        "updates_per_second": round(width / taken),
        "examples_per_second": round(width * batch / taken),
    }


def alike(model: str, device: Device) -> Row:
    """Whether a call is the same to the byte, and how far from the processor's in the usual way."""
    objective, data = DeviceNetwork(device, _module(model)), _data(200)
    given = _asked(objective, data, 16, 12)
    usual = TorchModule(_module(model), strategy="layers")
    first, second = (objective.clipped_gradients(*given).sums for _ in range(2))
    return {
        "what": f"alike: {model}",
        "same_bytes": first.tobytes() == second.tobytes(),
        "most_difference": float(np.abs(first - usual.clipped_gradients(*given).sums).max()),
    }


def steps(batch: int, device: Device, rounds: int) -> list[Row]:
    """Private steps of ResNet-18, by this library and by Opacus, in turn."""
    shape, count = (3, 32, 32), 4 * batch
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((count, *shape), dtype=np.float32), generator.integers(0, 10, count))
    ways: dict[str, Callable[[], object]] = {}
    for precision in (None, "bfloat16"):
        module = build_model("resnet18", shape, 10)
        objective = DeviceNetwork(Device(device.name, device.memory, precision), module)
        ways[f"Gossamer {precision or 'float32'}"] = _step(objective, data, batch)
    with suppress(ImportError):  # no dependency: measured where it is installed
        ways |= {f"Opacus {mode}": _opacus(mode, data, batch, device) for mode in ("hooks", "ghost")}
    times: Mapping[str, list[float]] = {name: [] for name in ways}
    full: dict[str, str] = {}
    for _ in range(rounds):
        for name in [name for name in ways if name not in full]:
            try:
                times[name].append(timed(ways[name], 1))
            except ModelError as error:  # what a device without room for it says
                full[name] = str(error)
    speeds = {name: batch / median(taken) for name, taken in times.items() if name not in full}
    best = max((speed for name, speed in speeds.items() if name.startswith("Opacus")), default=None)
    rows: list[Row] = [{"what": f"step: resnet18, batch {batch}, {name}", "note": note} for name, note in full.items()]
    for name, speed in speeds.items():
        row: Row = {"what": f"step: resnet18, batch {batch}, {name}", "examples_per_second": round(speed, 1)}
        if name == "Gossamer float32" and best is not None:
            row |= {"over_best_opacus": round(speed / best, 3), "wanted": RATIO}
        rows.append(row)
    if best is None:
        rows.append({"what": "step: Opacus", "note": "not installed: pip install opacus"})
    return rows


def timed(does: Callable[[], object], rounds: int) -> float:
    """Median seconds of a call, after one that prepares."""
    does()
    taken = []
    for _ in range(rounds):
        _wait()
        start = time.perf_counter()
        does()
        _wait()
        taken.append(time.perf_counter() - start)
    return median(taken)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _module(model: str) -> torch.nn.Module:
    return build_model(model, (1, 28, 28), 10)


def _data(count: int) -> Split:
    generator = np.random.default_rng(0)
    return Split(generator.random((count, 1, 28, 28), dtype=np.float32), generator.integers(0, 10, count))


def _asked(objective: Any, data: Split, width: int, batch: int) -> tuple[Any, ...]:
    generator = np.random.default_rng(1)
    models = np.stack([objective.initial(np.random.default_rng(node)) for node in range(width)])
    batches = [generator.choice(len(data), batch, replace=False) for _ in range(width)]
    return models, data, batches, np.full(width, CLIP)


def _step(objective: DeviceNetwork, data: Split, batch: int) -> Callable[[], object]:
    model = objective.initial(np.random.default_rng(0))
    rows, noise = np.arange(batch), Normals(np.array([[1, 2]], np.uint64), np.ones(1))

    def step() -> None:
        found = objective.noisy_gradients(model[None], data, [rows], np.full(1, CLIP), noise)
        model[:] -= 0.1 / batch * found.sums[0]

    return step


def _opacus(mode: str, data: Split, batch: int, device: Device) -> Callable[[], object]:
    from opacus import PrivacyEngine

    module = build_model("resnet18", (3, 32, 32), 10).train().to(device.place)
    x = torch.from_numpy(np.asarray(data.features[:batch])).to(device.place)
    y = torch.from_numpy(data.targets[:batch]).to(device.place)
    criterion = torch.nn.CrossEntropyLoss()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4 * batch, 1)), batch_size=batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its generator is not for production
        made = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=CLIP,
            poisson_sampling=False,
            grad_sample_mode=mode,
            **({"criterion": criterion} if mode == "ghost" else {}),
        )
    private, optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else criterion

    def step() -> None:
        with device.computing():
            optimizer.zero_grad()
            loss(private(x), y).backward()
            optimizer.step()

    return step


def facts(device: Device) -> dict[str, Any]:
    """What the figures are of."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "device": device.title,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gossamer": gs.__version__,
        "commit": commit.stdout.strip()[:12],
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "memory_mib": device.memory // 2**20,
        "date": time.strftime("%Y-%m-%d"),
    }


def page(found: dict[str, Any]) -> str:
    """A table of all rows, with what they are of."""
    columns = list(dict.fromkeys(key for row in found["rows"] for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column)) for column in columns) + " |" for row in found["rows"]]
    told = ", ".join(f"{name} {value}" for name, value in found["facts"].items())
    return "\n".join([told, "", *lines, ""])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) and value is not True else str(value)


def measured(device: Device, small: bool) -> list[Row]:
    """All rows."""
    rounds, rows = (1 if small else 10), []
    for model, runs in (SMALL_RUNS if small else RUNS).items():
        rows.append(alike(model, device))
        for name, nodes, batch, examples, updates, wanted in runs:
            rows.append(alone(name, nodes, batch, examples, device, rounds))
            rows.append(simulated(name, nodes, batch, examples, updates, wanted, device))
    return rows + steps(2 if small else 256, device, rounds)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder for gpu.json and gpu.md")
    parser.add_argument("--device", default="cuda", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--memory-mib", type=int, default=16_384, help="compute.memory_mib")
    parser.add_argument("--small", action="store_true", help="half a minute: does it work?")
    parser.add_argument("--table-1", action="store_true", help="then run experiments/run.py adp2sgd/table-1 --full")
    options = parser.parse_args(given)
    try:
        device = device_of(options.device, options.memory_mib)
    except gs.GossamerError as error:
        print(f"gpu.py: error: {error}", file=sys.stderr)
        return 2
    found = {"benchmark": "gpu", "facts": facts(device), "rows": measured(device, options.small)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    (options.out / "gpu.md").write_text(page(found), "utf-8")
    print(page(found))
    if options.table_1:
        study = [sys.executable, str(ROOT / "experiments" / "run.py"), "adp2sgd/table-1", "--full"]
        subprocess.run([*study, "--out", str(options.out / "table-1")], check=True)
    return 0 if all(row.get("same_bytes", True) for row in found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
