"""Gossip SGD with differential privacy (A(DP)2SGD): `box` is the algorithm, on one page."""
