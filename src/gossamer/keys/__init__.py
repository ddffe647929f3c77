"""Keys, identities and members, and files for their owner alone."""
