"""Runs under way: started, watched, kept, taken up again, and repeated."""
