"""The version, in one place that everything may import."""

__version__ = "0.1.0.dev0"
