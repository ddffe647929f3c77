"""Sealed channels between two parties: handshake, session keys, frames."""
