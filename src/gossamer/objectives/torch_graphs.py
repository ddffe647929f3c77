"""Modules in code of one's own as graphs of functions of torch, where these provably keep examples apart.

The code of a module can mix the examples of a batch whenever it likes: only in long batches, only where values are
large. So it may see no batch. But where ``torch.fx`` can write it down, as a graph of layers and functions without any
choice that depends on numbers, the graph is all there is to know. It is walked from node to node: which axis of each
array counts the examples, and does this function treat them one by one (`torch_apart`)? If every function does, the
graph may see batches in the module's place, and what runs is what was looked at.

References
----------
Reed et al., "torch.fx: practical program capture and transformation for deep learning in Python", MLSys 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from gossamer.objectives.torch_apart import after_layer, states_of
from gossamer.objectives.torch_states import Free, Mixed, Rows, State

_BATCHES = (3, 5)
"""Lengths at which shapes are looked at: what fits both by chance, a reshape to [3, -1] say, fits one of them."""


class ExampleWise(fx.GraphModule):
    """A graph that treats every example by itself."""


def example_wise(module: nn.Module, shape: tuple[int, ...], is_known: Callable[[nn.Module], bool]) -> nn.Module | None:
    """A graph that computes what ``module`` does, one example at a time; None where that cannot be shown.

    Parameters
    ----------
    module : nn.Module
        In evaluation mode. The graph shares its layers and parameters.
    shape : tuple of int
        Of one example.
    is_known : callable
        Whether a layer is one of torch, as torch wrote it: those are left whole.
    """
    try:
        graph = _Tracer(is_known).trace(module)
        found = ExampleWise(module, graph)
        for count in _BATCHES:
            _Walk(found, count).run(torch.zeros((count, *shape), dtype=next(module.parameters()).dtype))
    except Exception:  # user's code, met with stand-ins for arrays: anything may happen, and it is computed otherwise
        return None
    own = [name for name, _ in module.named_parameters()]
    return found if sorted(own) == sorted(name for name, _ in found.named_parameters()) else None


class _Tracer(fx.Tracer):
    def __init__(self, is_known: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self._is_known = is_known

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a layer stays whole; code of one's own, and what is called with hooks, is gone into."""
        return self._is_known(m) and not list(m.children())


class _Walk(fx.Interpreter):
    """Runs the graph on ``count`` made-up examples, and keeps for every node what it has of them.

    Raises
    ------
    Mixed
        Where a function may take more than one example for one of its results.
    """

    def __init__(self, module: fx.GraphModule, count: int) -> None:
        super().__init__(module)
        self._count = count
        self._states: dict[fx.Node, State] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and find its state from those of its arguments."""
        with torch.no_grad():
            value = super().run_node(n)
        self._states[n] = self._state(n, value)
        return value

    def _state(self, node: fx.Node, value: Any) -> State:
        if node.op == "placeholder":
            if self._states:
                raise Mixed("more than one argument")
            return Rows(0)
        if node.op == "get_attr":
            return Free()
        states: Any = fx.map_arg((node.args, node.kwargs), cast(Any, self._states.__getitem__))
        values: Any = fx.map_arg((node.args, node.kwargs), self.env.__getitem__)
        if node.op == "call_module":
            state: State = after_layer(states, values, value)
        elif node.op == "output":
            state = states[0][0]
            if state != Rows(0):
                raise Mixed("outputs without examples in front")
        else:
            state = states_of(node.target, states, values, value)
        self._check(state, value)
        return state

    def _check(self, state: State, value: Any) -> None:
        if isinstance(state, Rows) and (not isinstance(value, Tensor) or value.shape[state.axis] != self._count):
            raise Mixed("an axis of another length")
        if isinstance(state, list):
            for each, part in zip(state, value, strict=True):
                self._check(each, part)
