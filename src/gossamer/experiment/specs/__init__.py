"""Specs: their sections, how a file is read, and what is said of it."""
