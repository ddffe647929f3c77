"""What a guarantee says: epsilon at many deltas, mu, and how often somebody who guesses is right.

python examples/python/read_a_guarantee.py
"""

from __future__ import annotations

import numpy as np

import gossamer as gs


def main() -> gs.Guarantee:
    """Run for a moment, and print the guarantee and what follows from its profile."""
    experiment = gs.Experiment(
        dataset="digits",
        algorithm=gs.Gossip(nodes=4, batch_size=60, updates_per_node=50),
        budget=gs.Budget(epsilon=2, delta=1e-5),
        evaluation="off",
    )
    guarantee = gs.run(experiment).guarantee
    print(f"({guarantee.epsilon:.4g}, {guarantee.delta:g}) for {guarantee.unit}, against {guarantee.observer}")

    profile = guarantee.profile
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        print(f"epsilon {epsilon:g}: delta at most {profile.delta(epsilon):.3g}")
    print(f"a guess whether somebody was there is right at most {100 * profile.accuracy:.1f} times in 100")
    (missed,) = profile.miss_rate(np.array([0.05]))
    print(f"a test with 5 false alarms in 100 misses at least {100 * missed:.1f} times in 100")
    print(f"mu {guarantee.mu:.3g}; of two such runs together {np.hypot(guarantee.mu, guarantee.mu):.3g}")
    print("This assumes:", *guarantee.assumptions, sep="\n  - ")
    return guarantee


if __name__ == "__main__":
    main()
