"""Results of a run: records, its folder, and its summary."""
