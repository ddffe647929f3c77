"""Modules in code of one's own as graphs of functions of torch, where these provably keep examples apart.

The code of a module can mix the examples of a batch whenever it likes: only in long batches, only where values are
large. So it may see no batch. But where ``torch.fx`` can write it down, as a graph of layers and functions without any
choice that depends on numbers, the graph is all there is to know. It is walked from node to node: which axis of each
array counts the examples, and does this function treat them one by one (`networks.rules`)? If every function does, the
graph may see batches in the module's place, and what runs is what was looked at.

References
----------
Reed et al., "torch.fx: practical program capture and transformation for deep learning in Python", MLSys 2022.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from gossamer.objectives.networks import rules as rules
from gossamer.objectives.networks.rules import ExampleAxis, Free, FunctionCall, Mixed, State, is_free

# A rule says of a function's result which of its axes counts the examples, or raises `Mixed`: for functions without a
# rule, for arguments it does not know, and wherever a result may take more than one example. Numbers that follow from
# how many examples there are may set shapes only: what is computed from one example must not tell how many there are.


def states_of(target: Any, states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of the result of a function, or of a method by its name.

    Raises
    ------
    Mixed
        If it may mix examples.
    """
    name = target if isinstance(target, str) else _NAMES.get(target, "")
    call = FunctionCall(values[0], values[1], states[0], states[1], result)
    if name == "getattr" and isinstance(call.states[0], ExampleAxis):
        return rules.attribute(call)
    if name == "getitem" and isinstance(call.states[0], list):
        return rules.member(call)
    if name not in RULES or "out" in call.kwargs:
        raise Mixed(f"{target}: no rule")
    if RULES[name] is not rules.in_place and all(map(is_free, (*call.states, *call.named.values()))):
        return Free()
    return RULES[name](call)


def after_layer(states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of what a layer of torch returns, which takes examples along the first axis."""
    call = FunctionCall(values[0], values[1], states[0], states[1], result)
    if call.axis != 0 or len(call.args) != 1 or call.kwargs or not isinstance(result, Tensor):
        raise Mixed("a layer that takes no batch alone")
    return ExampleAxis(0)


def _named(names: str, rule: rules.Rule) -> dict[str, rules.Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, rules.Rule] = {
    **_named("add sub mul div truediv pow neg abs square exp log log1p sqrt rsqrt sin cos erf", rules.elementwise),
    **_named("maximum minimum clamp relu relu6 gelu silu elu selu celu leaky_relu softplus", rules.elementwise),
    **_named("softsign mish hardtanh hardswish hardsigmoid logsigmoid tanh sigmoid", rules.elementwise),
    **_named("contiguous clone floordiv mod", rules.elementwise),
    **_named("iadd isub imul itruediv add_ sub_ mul_ div_ relu_ tanh_ sigmoid_ neg_ exp_", rules.in_place),
    **_named("softmax log_softmax cumsum glu", rules.along),
    **_named("mean sum amax amin logsumexp var std", rules.reduced),
    **_named("view reshape", rules.reshaped),
    **_named("flatten unflatten", rules.regrouped),
    **_named("max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d", rules.pooled(1)),
    **_named("max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d", rules.pooled(2)),
    **_named("chunk split", rules.pieces),
    **_named("cat concat concatenate", rules.joined),
    **_named("matmul bmm", rules.product),
    "transpose": rules.moved(rules.swapped),
    "permute": rules.moved(rules.permuted),
    "unsqueeze": rules.inserted,
    "squeeze": rules.squeezed,
    "select": rules.selected,
    "unbind": rules.unbound,
    "getitem": rules.indexed,
    "stack": rules.stacked,
    "pad": rules.padded,
    "layer_norm": rules.layer_norm,
    "scaled_dot_product_attention": rules.attended,
    "size": rules.size,
}
"""By the name that functions and methods of torch share, and operators."""


def _functions() -> dict[Any, str]:
    """Names of the very functions that rules are about; another of the same name is another function."""
    homes = (torch, F, operator)
    found = {function: name for home in homes for name in RULES if (function := getattr(home, name, None)) is not None}
    return {**found, operator.matmul: "matmul", getattr: "getattr"}


_NAMES = _functions()


_BATCHES = (3, 5)
"""Lengths at which shapes are looked at: what fits both by chance, a reshape to [3, -1] say, fits one of them."""


class ExampleWise(fx.GraphModule):
    """A graph that treats every example by itself."""


def example_wise(module: nn.Module, shape: tuple[int, ...], is_known: Callable[[nn.Module], bool]) -> nn.Module | None:
    """A graph that computes what ``module`` does, one example at a time; None where that cannot be shown.

    Parameters
    ----------
    module : nn.Module
        Module in evaluation mode. The graph shares its layers and parameters.
    shape : tuple of int
        Shape of one example.
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
            return ExampleAxis(0)
        if node.op == "get_attr":
            return Free()
        states: Any = fx.map_arg((node.args, node.kwargs), cast(Any, self._states.__getitem__))
        values: Any = fx.map_arg((node.args, node.kwargs), self.env.__getitem__)
        if node.op == "call_module":
            state: State = after_layer(states, values, value)
        elif node.op == "output":
            state = states[0][0]
            if state != ExampleAxis(0):
                raise Mixed("outputs without examples in front")
        else:
            state = states_of(node.target, states, values, value)
        self._check(state, value)
        return state

    def _check(self, state: State, value: Any) -> None:
        if isinstance(state, ExampleAxis) and (not isinstance(value, Tensor) or value.shape[state.axis] != self._count):
            raise Mixed("an axis of another length")
        if isinstance(state, list):
            for each, part in zip(state, value, strict=True):
                self._check(each, part)
