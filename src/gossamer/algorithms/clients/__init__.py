"""Clients and a server, and the privacy of a client with all that it has: common to several algorithms."""
