"""Graphs of who may exchange with whom, their bipartite split, and mixing matrices."""
