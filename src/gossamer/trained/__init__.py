"""Models that runs left behind: what they are, what they say of rows, and the same for other programs."""
