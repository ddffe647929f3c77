"""Modules in code of one's own as graphs of functions of torch, where these provably keep examples apart.

The code of a module can mix the examples of a batch whenever it likes: only in long batches, only where values are
large. So it may see no batch. But where ``torch.fx`` can write it down, as a graph of layers and functions without any
choice that depends on numbers, the graph is all there is to know. It is walked from node to node: which axis of each
array counts the examples, and does this function treat them one by one? If every function does, the
graph may see batches in the module's place, and what runs is what was looked at.

References
----------
Reed et al., "torch.fx: practical program capture and transformation for deep learning in Python", MLSys 2022.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

# A rule says of a function's result which of its axes counts the examples, or raises `Mixed`: for functions without a
# rule, for arguments it does not know, and wherever a result may take more than one example. Numbers that follow from
# how many examples there are may set shapes only: what is computed from one example must not tell how many there are.


class Mixed(Exception):
    """A function that may mix examples, or is not known not to."""


@dataclass(frozen=True)
class ExampleAxis:
    """An array with an example at every place of one axis."""

    axis: int


@dataclass(frozen=True)
class Count:
    """A number that depends on how many examples there are, and on nothing else of them."""


State = ExampleAxis | Count | list[Any] | None
"""None of whatever does not depend on examples, nor on how many there are."""


class FunctionCall(NamedTuple):
    """A function, or a method's name, its arguments with the state and the value of each, and its result."""

    function: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    states: Sequence[Any]
    named: Mapping[str, Any]
    result: Any

    @property
    def axis(self) -> int:
        """Axis of the first argument that counts the examples."""
        if not isinstance(self.states[0], ExampleAxis):
            raise Mixed("a first argument without examples")
        return self.states[0].axis

    @property
    def ndim(self) -> int:
        """Number of axes of the first argument."""
        return int(self.args[0].ndim)

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """The argument at ``place``, or called ``name``."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def others_are_free(self, *but: int) -> None:
        """Raise Mixed if an argument beside the first, and those at ``but``, depends on examples or their number."""
        rest = [state for place, state in enumerate(self.states) if place not in (0, *but)]
        if not all(map(is_free, (*rest, *self.named.values()))):
            raise Mixed("an argument that depends on examples")

    def along(self, dims: Any) -> set[int]:
        """Dimensions that a function works along, counted from the front; never the examples'."""
        several = dims if isinstance(dims, (list, tuple)) else [dims]
        if not several or not all(type(dim) is int for dim in several):
            raise Mixed("all axes at once")
        found = {dim % self.ndim for dim in several}
        if self.axis in found:
            raise Mixed("along the examples")
        return found

    def common(self) -> int:
        """The examples' axis of all arrays in a list, which is the first argument."""
        self.others_are_free()
        states = list(self.states[0]) if isinstance(self.states[0], (list, tuple)) else []
        if not states or not isinstance(states[0], ExampleAxis) or any(state != states[0] for state in states):
            raise Mixed("arrays whose examples lie on different axes")
        return int(states[0].axis)


def is_free(state: Any) -> bool:
    """Whether an argument depends neither on examples nor on how many there are."""
    if isinstance(state, (list, tuple)):
        return all(map(is_free, state))
    if isinstance(state, slice):
        return all(map(is_free, (state.start, state.stop, state.step)))
    return not isinstance(state, (ExampleAxis, Count))


Rule = Callable[[FunctionCall], State]


def attribute(call: FunctionCall) -> State:
    """Attributes of arrays: shapes and types, and the transpose of matrices."""
    if call.args[1] in ("dtype", "device", "ndim"):
        return None
    if call.args[1] not in ("shape", "mT"):
        raise Mixed("no rule for this attribute")
    return shape(call) if call.args[1] == "shape" else viewed(call)


def shape(call: FunctionCall) -> State:
    """Lengths of all axes."""
    axis = call.axis
    return [Count() if place == axis else None for place in range(call.ndim)]


def size(call: FunctionCall) -> State:
    """Length of an axis, or of all."""
    dim = call.given(1, "dim")
    return shape(call) if dim is None else Count() if dim % call.ndim == call.axis else None


def elementwise(call: FunctionCall) -> State:
    """Entry by entry, arrays without examples being repeated for each of them."""
    axes = {state.axis for state in call.states if isinstance(state, ExampleAxis)}
    if len(axes) != 1 or not isinstance(call.result, Tensor) or not all(map(is_free, call.named.values())):
        raise Mixed("arrays whose examples lie on different axes")
    (axis,) = axes
    from_behind = call.result.ndim - axis
    for state, value in zip(call.states, call.args):
        if isinstance(state, ExampleAxis):
            fits = value.ndim == call.result.ndim
        elif isinstance(value, Tensor):
            fits = value.ndim < from_behind or (value.ndim == call.result.ndim and value.shape[axis] == 1)
        else:
            fits = is_free(state)
        if not fits:
            raise Mixed("arrays that do not lie on each other example by example")
    return ExampleAxis(axis)


def in_place(call: FunctionCall) -> State:
    """Entry by entry, written over the first argument."""
    call.axis  # noqa: B018  (an array without examples would keep something of them)
    return elementwise(call)


def along(call: FunctionCall) -> State:
    """Functions along some axes, that keep all axes."""
    call.others_are_free()
    call.along(call.given(1, "dim"))
    return ExampleAxis(call.axis)


def reduced(call: FunctionCall) -> State:
    """Functions of all that lies along some axes."""
    call.others_are_free()
    dims = call.along(call.given(1, "dim"))
    kept = call.result.ndim == call.ndim
    return ExampleAxis(call.axis if kept else call.axis - sum(dim < call.axis for dim in dims))


def before_the_last(count: Callable[[FunctionCall], int]) -> Rule:
    """Functions of the last axes, so many as ``count`` finds, for which all before are alike."""

    def rule(call: FunctionCall) -> State:
        call.others_are_free()
        if call.axis >= call.ndim - count(call):
            raise Mixed("along the examples")
        return ExampleAxis(call.axis)

    return rule


def pooled(places: int) -> Rule:
    """Pools of images that are arrays of ``places`` axes."""

    def rule(call: FunctionCall) -> State:
        call.others_are_free()
        if call.axis != 0 or call.ndim != places + 2 or not isinstance(call.result, Tensor):
            raise Mixed("no batch of images")
        return ExampleAxis(0)

    return rule


_MANY = 1009
"""Number of examples of which is seen where functions put them."""
_MOST = 2**40
"""More examples than any batch has."""


def viewed(call: FunctionCall) -> State:
    """Functions that give the same entries in another order, seen by where in memory they are."""
    call.others_are_free()
    return _seen(call, call.args[1:])


def indexed(call: FunctionCall) -> State:
    """Places of axes; all examples are taken, however many there are."""
    state, lengths = viewed(call), list(call.args[0].shape)
    lengths[call.axis] = _MOST
    found = torch.empty(()).expand(lengths)[call.args[1]]
    if not isinstance(state, ExampleAxis) or found.shape[state.axis] != _MOST:
        raise Mixed("examples cut off")
    return state


def pieces(call: FunctionCall) -> State:
    """Arrays cut along an axis, never the examples'."""
    call.along(call.given(2, "dim", 0))
    return viewed(call)


def squeezed(call: FunctionCall) -> State:
    """Axes of length 1 taken away; never the examples', also where there is one."""
    call.along(call.given(1, "dim"))
    return viewed(call)


def reshaped(call: FunctionCall) -> State:
    """Other shapes of the same entries.

    How many examples there are may be said in their place only, not computed with: else one example's shape could
    depend on it.
    """
    listed = len(call.states) == 2 and isinstance(call.states[1], (list, tuple))
    sizes, values = (each[1] if listed else each[1:] for each in (call.states, call.args))
    counted = [place == call.axis and isinstance(state, Count) for place, state in enumerate(sizes)]
    others = [state for state, own in zip(sizes, counted) if not own]
    if not all(map(is_free, (*others, *call.named.values()))):
        raise Mixed("a shape that depends on examples")
    return _seen(call, [_MANY if own else value for own, value in zip(counted, values)])


def _seen(call: FunctionCall, rest: Sequence[Any]) -> State:
    """State of a view by the places in memory that it is of, for `_MANY` examples."""
    lengths, alone = list(call.args[0].shape), [1] * call.ndim
    lengths[call.axis] = alone[call.axis] = _MANY
    marks = torch.empty(_MANY, dtype=call.args[0].dtype).view(alone).expand(lengths)
    named = isinstance(call.function, str)
    found = (getattr(type(marks), call.function) if named else call.function)(marks, *rest, **call.kwargs)
    states = [_axis_of(each, marks) for each in ([found] if isinstance(found, Tensor) else found)]
    return states[0] if isinstance(found, Tensor) else states


def _axis_of(view: Tensor, marks: Tensor) -> ExampleAxis:
    moving = [axis for axis, (length, step) in enumerate(zip(view.shape, view.stride())) if length > 1 and step]
    if len(moving) != 1 or view.shape[moving[0]] != _MANY or view.data_ptr() != marks.data_ptr():
        raise Mixed("examples joined, cut or in another order")
    return ExampleAxis(moving[0])


def joined(call: FunctionCall) -> State:
    """Arrays one behind the other, along an axis."""
    axis = call.common()
    if call.given(1, "dim", 0) % call.args[0][0].ndim == axis:
        raise Mixed("along the examples")
    return ExampleAxis(axis)


def stacked(call: FunctionCall) -> State:
    """Arrays along a new axis."""
    axis = call.common()
    place = call.given(1, "dim", 0) % (call.args[0][0].ndim + 1)
    return ExampleAxis(axis + (place <= axis))


def product(call: FunctionCall) -> State:
    """Matrix products: examples count matrices on both sides, or rows on the left of a matrix without examples."""
    call.others_are_free(1)
    left, right = call.states[:2]
    if isinstance(right, ExampleAxis):
        if left != right or call.args[0].ndim != call.args[1].ndim or call.axis >= call.ndim - 2:
            raise Mixed("examples multiplied with each other")
    elif not isinstance(call.args[1], Tensor) or call.args[1].ndim != 2 or call.axis >= call.ndim - 1:
        raise Mixed("along the examples")
    return ExampleAxis(call.axis)


def attended(call: FunctionCall) -> State:
    """Queries, keys and values of the same examples, without dropout."""
    if not isinstance(call.states[0], ExampleAxis) or any(state != call.states[0] for state in call.states[1:3]):
        raise Mixed("queries, keys and values whose examples lie on different axes")
    call.others_are_free(1, 2)
    alike = len({each.ndim for each in call.args[:3]}) == 1
    if len(call.args) < 3 or not alike or call.axis >= call.ndim - 2 or call.given(4, "dropout_p", 0.0) != 0.0:
        raise Mixed("along the examples")
    return ExampleAxis(call.axis)


def states_of(target: Any, states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of the result of a function, or of a method by its name.

    Raises
    ------
    Mixed
        If it may mix examples.
    """
    name = target if isinstance(target, str) else _NAMES.get(target, "")
    call = FunctionCall(target, *values, *states, result)
    if name == "getattr" and isinstance(call.states[0], ExampleAxis):
        return attribute(call)
    if name == "getitem" and isinstance(call.states[0], list):
        if not is_free(call.states[1]):
            raise Mixed("a result chosen by examples")
        return cast(State, call.states[0][call.args[1]])
    if name not in RULES or "out" in call.kwargs:
        raise Mixed(f"{target}: no rule")
    if RULES[name] is not in_place and all(map(is_free, (*call.states, *call.named.values()))):
        return None
    return RULES[name](call)


def after_layer(states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of what a layer of torch returns, which takes examples along the first axis."""
    call = FunctionCall(None, *values, *states, result)
    if call.axis != 0 or len(call.args) != 1 or call.kwargs or not isinstance(result, Tensor):
        raise Mixed("a layer that takes no batch alone")
    return ExampleAxis(0)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = {
    **_named("add sub mul div truediv pow neg abs square exp log log1p sqrt rsqrt sin cos erf", elementwise),
    **_named("maximum minimum clamp relu relu6 gelu silu elu selu celu leaky_relu softplus", elementwise),
    **_named("softsign mish hardtanh hardswish hardsigmoid logsigmoid tanh sigmoid", elementwise),
    **_named("contiguous clone floordiv mod", elementwise),
    **_named("iadd isub imul itruediv add_ sub_ mul_ div_ relu_ tanh_ sigmoid_ neg_ exp_", in_place),
    **_named("softmax log_softmax cumsum glu", along),
    **_named("mean sum amax amin logsumexp var std", reduced),
    **_named("view reshape", reshaped),
    **_named("transpose permute unsqueeze select unbind flatten unflatten", viewed),
    **_named("chunk split", pieces),
    **_named("max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d", pooled(1)),
    **_named("max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d", pooled(2)),
    **_named("cat concat concatenate", joined),
    **_named("matmul bmm", product),
    "getitem": indexed,
    "squeeze": squeezed,
    "stack": stacked,
    "pad": before_the_last(lambda call: len(call.given(1, "pad")) // 2),
    "layer_norm": before_the_last(lambda call: len(call.given(1, "normalized_shape"))),
    "scaled_dot_product_attention": attended,
    "size": size,
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
        for count in (_BATCHES[0], *_BATCHES):  # the first before arrays are taken apart
            walk = _Walk(found, count)
            walk.run(torch.zeros((count, *shape), dtype=next(module.parameters()).dtype))
            if not walk.changes:  # what is taken apart at once may not be written over
                _take_apart(found)
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


def _take_apart(module: fx.GraphModule) -> None:
    """Take all of an array at once where each part is chosen, as ``q, k, v = array`` is written down.

    The way back of a choice is an array as large as the whole, for each of them.
    """
    for node in [*module.graph.nodes]:
        chosen = [user.args[1] if user.target is operator.getitem else None for user in node.users]
        if len(chosen) > 1 and chosen == [*range(node.meta.get("length", 0))]:
            with module.graph.inserting_after(node):
                parts = module.graph.call_method("unbind", (node,))
            for user in [each for each in node.users if each is not parts]:
                user.replace_input_with(node, parts)
    module.recompile()


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
        self.changes = False

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and find its state from those of its arguments."""
        given = [each for node in n.all_input_nodes if isinstance(each := self.env[node], Tensor)]
        before = [each._version for each in given]
        with torch.no_grad():
            value = super().run_node(n)
        self.changes |= before != [each._version for each in given]
        self._states[n] = self._state(n, value)
        n.meta["length"] = len(value) if isinstance(value, Tensor) and value.ndim else 0
        return value

    def _state(self, node: fx.Node, value: Any) -> State:
        if node.op == "placeholder":
            if self._states:
                raise Mixed("more than one argument")
            return ExampleAxis(0)
        if node.op == "get_attr":
            return None
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
