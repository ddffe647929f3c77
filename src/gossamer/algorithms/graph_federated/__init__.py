"""Servers on a graph whose noise cancels (graph federated learning): `box` is the algorithm, on one page."""
