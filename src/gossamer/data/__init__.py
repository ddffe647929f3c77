"""Data: readers of files, data sets known by name, and partitions over nodes."""
