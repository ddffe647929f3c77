"""Synchronous gossip: D-PSGD and Muffliato, in rounds of a gradient step and averaging with all neighbours."""
