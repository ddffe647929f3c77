"""Several runs of one spec beside each other: sweeps over settings, and the price of privacy."""
