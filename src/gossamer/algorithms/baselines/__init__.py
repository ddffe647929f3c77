"""Baselines that nobody takes part in but a node with its own examples: each alone, or all examples in one place."""
