"""Gossamer beside other libraries, in one run."""
