"""Servers of an edge that answer in their own time, and the cloud: audp, asgd and csgd."""
