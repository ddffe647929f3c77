"""Noise that is drawn exactly: discrete laws, grids, secret bits."""
