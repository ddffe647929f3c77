"""Imported first by whatever needs torch, for one clear line where it is missing."""

from gossamer.extras import require

require("torch", "PyTorch modules need", "torch")
