"""Sums of gradients and noise on a GPU."""
