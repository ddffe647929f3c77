"""A second implementation of what is guaranteed, from receipts alone: `gossamer_verify` is published as a single file."""
