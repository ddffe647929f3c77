"""One party of a federation: its agreement, data side, node and results."""
