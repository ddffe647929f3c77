"""What a run leaves: records, its folder, and its summary."""
