"""Algorithms, a package each; `table` lists them."""
