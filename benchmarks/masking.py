"""Secure aggregation: seconds of whole masked sums in one process, and what plain sums take.

Twenty agents with a million numbers each, six of which vanish before their vectors arrive; 100 agents with few numbers.

    python benchmarks/masking.py [--json]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from gossamer.privacy.masking import FixedPoint, Group, MaskingAgent, MaskingServer, Phase, aggregate

# agents, numbers in each vector, bits, agents that vanish
SUMS = [(20, 1_000_000, 32, 0), (20, 1_000_000, 32, 6), (20, 1_000_000, 64, 6), (100, 1_000, 32, 0), (11, 100, 32, 0)]


def measure(size: int, length: int, bits: int, vanished: int) -> dict[str, float]:
    group, fixed = Group(size, length, bits), FixedPoint(1.0, size, bits)
    generator = np.random.default_rng(0)
    vectors = {i: fixed.encode(generator.uniform(-1, 1, length)) for i in range(1, size + 1)}
    agents = {i: MaskingAgent(group, i, 0) for i in vectors}
    start = time.perf_counter()
    found = aggregate(MaskingServer(group, 0), agents, vectors, dict.fromkeys(range(1, vanished + 1), Phase.MASK))
    masked = time.perf_counter() - start
    start = time.perf_counter()
    total = np.sum([vectors[i] for i in found.agents], axis=0, dtype=group.dtype)
    plain = time.perf_counter() - start
    assert (found.values == total).all()
    return {
        "agents": size,
        "numbers": length,
        "bits": bits,
        "vanished": vanished,
        "masked_s": round(masked, 3),
        "plain_s": round(plain, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    rows = [measure(*each) for each in SUMS]
    if arguments.json:
        print(json.dumps({"benchmark": "masking", "rows": rows}))
        return
    print("".join(f"{name:>12}" for name in rows[0]))
    for each in rows:
        print("".join(f"{value:>12}" for value in each.values()))


if __name__ == "__main__":
    main()
