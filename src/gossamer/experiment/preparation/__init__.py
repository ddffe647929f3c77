"""Preparation of a run: data, objective, plan, sides and secrets, before anything starts."""
