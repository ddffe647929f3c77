"""Apps of servers, and the nodes that they see."""

from abc import ABC


class Grid(ABC):  # noqa: B024
    pass


class ServerApp:
    _main = staticmethod(lambda grid, context: None)

    def main(self):
        def kept(function):
            self._main = function
            return function

        return kept

    def __call__(self, grid, context):
        self._main(grid, context)
