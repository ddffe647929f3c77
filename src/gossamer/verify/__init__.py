"""A second implementation of guarantees, from receipts alone: `gossamer_verify` is published as a single file."""
