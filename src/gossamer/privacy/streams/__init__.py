"""Streams of correlated noise: factorisations, bounds of what one change moves, records."""
