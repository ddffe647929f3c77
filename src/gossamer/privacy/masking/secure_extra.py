"""Imported first by whatever needs cryptography, for one clear line where it is missing."""

from gossamer.errors import CallerError

try:
    import cryptography  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "cryptography":
        raise
    raise CallerError(
        "secure aggregation needs the optional package cryptography, which is not installed: "
        'pip install "gossamer[secure]"'
    ) from None
