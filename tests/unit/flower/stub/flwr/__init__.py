"""A few of Flower's names, for tests of what is around an app: the real ones are tested in `tests/end_to_end`."""
