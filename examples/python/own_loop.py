"""A training loop of one's own, in NumPy, that charges the owner's ledger: it is stopped halfway, and goes on.

python examples/python/own_loop.py
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from pathlib import Path

import numpy as np

import gossamer as gs

WARDS = Path(__file__).resolve().parents[1] / "wards.csv"
POLICY = f"data: {{wards: {{path: {WARDS}, epsilon: 4, delta: 1.0e-5}}}}\n"
STEPS, NOISE, RATE, CLIP = 200, 4.0, 0.05, 1.0
COLUMNS = {"age": 100.0, "heart_rate": 200.0, "medicines": 20.0}
"""Columns, and constants to scale them by that are known without the data."""


def rows() -> tuple[gs.FloatArray, gs.FloatArray]:
    """Features [n, 4] and targets [n], each 0 or 1."""
    with WARDS.open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    features = [[*(float(row[name]) / most for name, most in COLUMNS.items()), 1.0] for row in table]
    return np.array(features), np.array([float(row["readmitted"] == "yes") for row in table])


def train(policy: Path, weights: gs.FloatArray, stop: int) -> int:
    """Train until ``stop`` steps were charged, those of earlier processes among them; how many were."""
    features, targets = rows()
    rng = np.random.default_rng()
    plan = gs.Releases(STEPS, noise_multiplier=NOISE, sampling_rate=RATE)
    with gs.LoopLedger(policy, "readmissions", plan, clip=CLIP) as ledger:
        for _ in range(ledger.releases, stop):
            ledger.charge(noise_multiplier=NOISE, sampling_rate=RATE)  # on disk when it returns, then noise is drawn
            batch = rng.random(len(targets)) < RATE
            errors = 1 / (1 + np.exp(-features[batch] @ weights)) - targets[batch]
            gradients = errors[:, None] * features[batch]
            lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients / np.maximum(lengths / CLIP, 1.0)
            noisy = clipped.sum(axis=0) + rng.normal(0.0, NOISE * CLIP, weights.shape)
            weights -= 2.0 * noisy / (RATE * len(targets))
        ledger.write(policy.parent / "results")
        print(f"{ledger.releases} of {STEPS} charged, epsilon {ledger.guarantee.epsilon:.4g} of the whole plan")
        return ledger.releases


def main() -> int:
    """Train halfway and then to the end, as after a restart; how many steps were charged."""
    warnings.simplefilter("ignore", gs.RunWarning)  # of a ledger that is new
    with tempfile.TemporaryDirectory() as folder:
        policy, weights = Path(folder) / "policy.yaml", np.zeros(4)
        policy.write_text(POLICY, encoding="utf-8")
        train(policy, weights, STEPS // 2)
        charged = train(policy, weights, STEPS)
    assert charged == STEPS
    return charged


if __name__ == "__main__":
    main()
