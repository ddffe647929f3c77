"""Imported first by whatever needs torch, for one clear line where it is missing."""

from gossamer.errors import CallerError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise CallerError(
        'PyTorch modules need the optional package torch, which is not installed: pip install "gossamer[torch]"'
    ) from None
