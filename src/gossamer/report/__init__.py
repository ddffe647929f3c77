"""Reports: reading results folders, and figures of what they hold."""
