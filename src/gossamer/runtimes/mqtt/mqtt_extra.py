"""Imported first by whatever needs paho, for one clear line where it is missing."""

from gossamer.extras import require

require("paho", "a node needs", "mqtt")
