"""Clients of older apps."""


class Client:
    pass


class NumPyClient:
    pass
