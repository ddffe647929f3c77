"""Synchronous SGD on a ring that averages without a server: `box` is the algorithm, on one page."""
