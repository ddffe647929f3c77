"""Experiments: the spec, and what turns it into results."""
