"""Imported first by whatever needs keys, for one clear line where cryptography is missing."""

from gossamer.extras import require

require("cryptography", "a federation needs", "secure")
