"""Asynchronous rounds of growing size: `box` is the algorithm, on one page."""
