"""Imports shared by the parties of a federation on one machine: made once, by the process theirs are forked off."""

import gc

import gossamer.cli.federation.node
import gossamer.cli.main
import gossamer.deployment.party.party  # noqa: F401

# The collector of a forked process would write to all objects that there are, and so make copies of them.
gc.collect()
gc.freeze()
