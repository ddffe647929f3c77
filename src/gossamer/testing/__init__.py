"""Tests of one's own: the contract of an algorithm, and runs with every kind of fault.

The contract needs pytest, so it is imported by itself: ``from gossamer.testing.contracts import AlgorithmContract``.
"""
