"""For tests of one's own: faulty networks in virtual time, and the contract of an algorithm.

The contract needs pytest, so it is imported by itself: ``from gossamer.testing.contracts import AlgorithmContract``.
"""

from gossamer.testing.network import Faults, LinkedNodes, Network, Partition

__all__ = ["Faults", "LinkedNodes", "Network", "Partition"]
