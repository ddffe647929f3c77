"""Epsilon and delta of plans of releases."""
