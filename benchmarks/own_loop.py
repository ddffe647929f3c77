"""What the ledger of a loop costs a step: a private step of a small CNN in plain PyTorch, with and without its charge.

    python benchmarks/own_loop.py [--json] [--steps 100] [--batch 64] [--ahead 0 1 100] [--folder FOLDER]

A step is `cnn_mapa` on images like MNIST's: gradients by example (`vmap(grad(...))`), clipped, added, noised, taken.
A charge waits for the disk that FOLDER is on (by default that of temporary files); of charges ahead, each step has its
share, and 0 is as many ahead as by default: of so long a plan, 20. Of a step it is the median; of a charge the mean
over whole lots, since a lot is what waits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import gossamer as gs
from gossamer.objectives.models import build_model

NOISE, RATE, CLIP, MOST = 4.0, 0.01, 1.0, 0.03


def steps_of(batch: int, steps: int) -> float:
    """The median seconds of a private step."""
    net = build_model("cnn_mapa", (1, 28, 28), 10)
    weights = {name: each.detach() for name, each in net.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((batch, 1, 28, 28), generator=generator)
    y = torch.randint(10, (batch,), generator=generator)

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(net, weights, (row[None],)), target[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    taken = []
    for _ in range(steps):
        start = time.perf_counter()
        each = gradients(weights, x, y)
        lengths = torch.cat([g.flatten(1) for g in each.values()], dim=1).norm(dim=1)
        factors = (CLIP / lengths).clamp(max=1.0)
        for name, g in each.items():
            clipped = torch.tensordot(factors, g, dims=1)
            weights[name] -= 0.1 * (clipped + NOISE * CLIP * torch.randn_like(clipped)) / batch
        taken.append(time.perf_counter() - start)
    return median(taken)


def charges_of(folder: Path, ahead: int, steps: int) -> float:
    """The mean seconds of a charge."""
    number = ahead * max(5, -(-steps // ahead)) if ahead else 20 * max(20, steps // 20)
    (folder / "rows.csv").write_text("".join(f"{row},{row % 7}\n" for row in range(1000)))
    (folder / "policy.yaml").write_text("data: {rows: {path: rows.csv, epsilon: 8, delta: 1.0e-5}}\n")
    plan = gs.Releases(number, noise_multiplier=NOISE, sampling_rate=RATE)
    with gs.LoopLedger(folder / "policy.yaml", f"ahead {ahead}", plan, ahead=ahead or None) as ledger:
        start = time.perf_counter()
        for _ in range(number):
            ledger.charge(NOISE, RATE)
        return (time.perf_counter() - start) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--ahead", type=int, nargs="+", default=[0, 1, 100])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", gs.RunWarning)  # of a ledger that is new
    torch.set_num_threads(1)
    step = steps_of(options.batch, options.steps)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = {ahead: charges_of(Path(folder), ahead, options.steps) for ahead in options.ahead}
    rows = [{"ahead": n, "step_ms": 1e3 * step, "charge_ms": 1e3 * s, "share": s / step} for n, s in found.items()]
    if options.json:
        print(json.dumps({"batch": options.batch, "required": MOST, "rows": rows}, indent=2))
        return
    print(f"a private step of batch {options.batch}: {1e3 * step:.2f} ms; required: {100 * MOST:g} % of it")
    for row in rows:
        how = row["ahead"] or "as usual"
        print(f"charged {how:>8} ahead: {row['charge_ms']:.3f} ms a step, {100 * row['share']:.2f} %")


if __name__ == "__main__":
    main()
