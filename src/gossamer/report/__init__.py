"""Pictures and figures of results."""
