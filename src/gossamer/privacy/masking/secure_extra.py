"""Imported first by whatever needs cryptography, for one clear line where it is missing."""

from gossamer.extras import require

require("cryptography", "secure aggregation needs", "secure")
