"""Attacks and audits of runs."""
