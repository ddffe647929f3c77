"""Functions of torch that treat every example by itself, given which axis counts the examples.

A rule says of a function's result which of its axes counts the examples, or raises `Mixed`: for functions without a
rule, for arguments it does not know, and wherever a result may take more than one example. Numbers that follow from
how many examples there are may set shapes only: what is computed from one example must not tell how many there are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F


class Mixed(Exception):
    """A function that may mix examples, or is not known not to."""


@dataclass(frozen=True)
class Rows:
    """An array with an example at every place of one axis."""

    axis: int


@dataclass(frozen=True)
class Free:
    """Whatever does not depend on examples, nor on how many there are."""


@dataclass(frozen=True)
class Count:
    """A number that depends on how many examples there are, and on nothing else of them."""


State = Rows | Free | Count | list[Any]


class Call(NamedTuple):
    """A function's arguments, with the state and the value of each, and its result."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    states: Sequence[Any]
    named: Mapping[str, Any]
    result: Any

    @property
    def axis(self) -> int:
        """Of the first argument."""
        if not isinstance(self.states[0], Rows):
            raise Mixed("a first argument without examples")
        return self.states[0].axis

    @property
    def ndim(self) -> int:
        """Of the first argument."""
        return int(self.args[0].ndim)

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """The argument at ``place``, or called ``name``."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def others_are_free(self, *but: int) -> None:
        """Raise Mixed if an argument beside the first, and those at ``but``, depends on examples or their number."""
        rest = [state for place, state in enumerate(self.states) if place not in (0, *but)]
        if not all(map(_is_free, (*rest, *self.named.values()))):
            raise Mixed("an argument that depends on examples")


def _is_free(state: Any) -> bool:
    if isinstance(state, (list, tuple)):
        return all(map(_is_free, state))
    if isinstance(state, slice):
        return all(map(_is_free, (state.start, state.stop, state.step)))
    return not isinstance(state, (Rows, Count))


Rule = Callable[[Call], State]


def states_of(target: Any, states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of the result of a function, or of a method by its name.

    Raises
    ------
    Mixed
        If it may mix examples.
    """
    name = target if isinstance(target, str) else _NAMES.get(target, "")
    call = Call(values[0], values[1], states[0], states[1], result)
    if name == "getattr" and isinstance(call.states[0], Rows):
        return _attribute(call)
    if name == "getitem" and isinstance(call.states[0], list):
        return _member(call)
    if name not in RULES or "out" in call.kwargs:
        raise Mixed(f"{target}: no rule")
    if RULES[name] is not _in_place and all(map(_is_free, (*call.states, *call.named.values()))):
        return Free()
    return RULES[name](call)


def after_layer(states: tuple[Any, Any], values: tuple[Any, Any], result: Any) -> State:
    """State of what a layer of torch returns, which takes examples along the first axis."""
    call = Call(values[0], values[1], states[0], states[1], result)
    if call.axis != 0 or len(call.args) != 1 or call.kwargs or not isinstance(result, Tensor):
        raise Mixed("a layer that takes no batch alone")
    return Rows(0)


def _attribute(call: Call) -> State:
    if call.args[1] == "shape":
        return _shape(call)
    if call.args[1] in ("dtype", "device", "ndim"):
        return Free()
    if call.args[1] == "mT":
        return _before_the_last(2)(call)
    return _refuse(call)


def _shape(call: Call) -> State:
    axis = call.axis
    return [Count() if place == axis else Free() for place in range(call.ndim)]


def _size(call: Call) -> State:
    if (dim := call.given(1, "dim")) is None:
        return _shape(call)
    return Count() if dim % call.ndim == call.axis else Free()


def _member(call: Call) -> State:
    place = call.args[1]
    found: State = call.states[0][place] if _is_free(call.states[1]) else _refuse(call)
    return found


def _refuse(call: Call) -> NoReturn:
    raise Mixed("no rule for these arguments")


def _elementwise(call: Call) -> State:
    """Entry by entry, arrays without examples being repeated for each of them."""
    axes = {state.axis for state in call.states if isinstance(state, Rows)}
    if len(axes) != 1 or not isinstance(call.result, Tensor) or not all(map(_is_free, call.named.values())):
        raise Mixed("arrays whose examples lie on different axes")
    (axis,) = axes
    from_behind = call.result.ndim - axis
    for state, value in zip(call.states, call.args):
        if isinstance(state, Rows):
            fits = value.ndim == call.result.ndim
        elif isinstance(value, Tensor):
            fits = value.ndim < from_behind or (value.ndim == call.result.ndim and value.shape[axis] == 1)
        else:
            fits = _is_free(state)
        if not fits:
            raise Mixed("arrays that do not lie on each other example by example")
    return Rows(axis)


def _in_place(call: Call) -> State:
    call.axis  # noqa: B018  (an array without examples would keep something of them)
    return _elementwise(call)


def _along(call: Call) -> State:
    """Functions along some axes, that keep all axes."""
    call.others_are_free()
    _axes(call, call.given(1, "dim"))
    return Rows(call.axis)


def _reduced(call: Call) -> State:
    """Functions of all that lies along some axes."""
    call.others_are_free()
    dims = _axes(call, call.given(1, "dim"))
    kept = call.result.ndim == call.ndim
    return Rows(call.axis if kept else call.axis - sum(dim < call.axis for dim in dims))


def _axes(call: Call, dims: Any) -> set[int]:
    """Dimensions that a function works along, counted from the front; never the examples'."""
    several = dims if isinstance(dims, (list, tuple)) else [dims]
    if not several or not all(type(dim) is int for dim in several):
        raise Mixed("all axes at once")
    found = {dim % call.ndim for dim in several}
    if call.axis in found:
        raise Mixed("along the examples")
    return found


def _before_the_last(count: int) -> Rule:
    """Functions of the last ``count`` axes, for which all before are alike."""

    def rule(call: Call) -> State:
        call.others_are_free()
        if call.axis >= call.ndim - count:
            raise Mixed("along the examples")
        return Rows(call.axis)

    return rule


def _pooled(places: int) -> Rule:
    def rule(call: Call) -> State:
        call.others_are_free()
        if call.axis != 0 or call.ndim != places + 2 or not isinstance(call.result, Tensor):
            raise Mixed("no batch of images")
        return Rows(0)

    return rule


def _padded(call: Call) -> State:
    return _before_the_last(len(call.given(1, "pad")) // 2)(call)


def _layer_norm(call: Call) -> State:
    return _before_the_last(len(call.given(1, "normalized_shape")))(call)


def _reshaped(call: Call) -> State:
    """Axes up to the examples' stay; so what is behind it is one example's, in the same order.

    How many there are may be said in its place only, not computed with: else one example's shape could depend on it.
    """
    listed = len(call.states) == 2 and isinstance(call.states[1], (list, tuple))
    sizes = call.states[1] if listed else call.states[1:]
    others = [state for place, state in enumerate(sizes) if not (place == call.axis and isinstance(state, Count))]
    if not all(map(_is_free, (*others, *call.named.values()))):
        raise Mixed("a shape that depends on examples")
    front = call.axis + 1
    if call.result.shape[:front] != call.args[0].shape[:front]:
        raise Mixed("examples joined or cut")
    return Rows(call.axis)


def _moved(order: Callable[[Call], Sequence[int]]) -> Rule:
    def rule(call: Call) -> State:
        call.others_are_free()
        return Rows([dim % call.ndim for dim in order(call)].index(call.axis))

    return rule


def _swapped(call: Call) -> list[int]:
    first, second = (call.given(place, name) % call.ndim for place, name in ((1, "dim0"), (2, "dim1")))
    order = list(range(call.ndim))
    order[first], order[second] = order[second], order[first]
    return order


def _permuted(call: Call) -> Sequence[int]:
    dims = call.given(1, "dims")
    found: Sequence[int] = dims if isinstance(dims, (list, tuple)) else call.args[1:]
    return found


def _inserted(call: Call) -> State:
    call.others_are_free()
    place = call.given(1, "dim") % (call.ndim + 1)
    return Rows(call.axis + (place <= call.axis))


def _squeezed(call: Call) -> State:
    call.others_are_free()
    dims = _axes(call, call.given(1, "dim"))
    return Rows(call.axis - sum(dim < call.axis for dim in dims if call.args[0].shape[dim] == 1))


def _selected(call: Call) -> State:
    call.others_are_free()
    (dim,) = _axes(call, call.given(1, "dim"))
    return Rows(call.axis - (dim < call.axis))


def _pieces(call: Call) -> State:
    call.others_are_free()
    _axes(call, call.given(2, "dim", 0))
    return [Rows(call.axis) for _ in call.result]


def _unbound(call: Call) -> State:
    call.others_are_free()
    (dim,) = _axes(call, call.given(1, "dim", 0))
    return [Rows(call.axis - (dim < call.axis)) for _ in call.result]


def _indexed(call: Call) -> State:
    """Whole numbers, slices, new axes and an ellipsis; all examples are taken."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    call.others_are_free()
    if not all(each is None or each is Ellipsis or type(each) in (int, slice) for each in index):
        raise Mixed("an index that is an array")
    used = sum(type(each) in (int, slice) for each in index)
    rest = [slice(None)] * (call.ndim - used)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *rest, *index[at + 1 :])
    else:
        index = (*index, *rest)
    old = new = 0
    for each in index:
        if each is not None and old == call.axis:
            return Rows(new) if each == slice(None) else _refuse(call)
        old += each is not None
        new += type(each) is not int
    return _refuse(call)


def _joined(call: Call) -> State:
    axis = _common(call)
    if call.given(1, "dim", 0) % call.args[0][0].ndim == axis:
        raise Mixed("along the examples")
    return Rows(axis)


def _stacked(call: Call) -> State:
    axis = _common(call)
    place = call.given(1, "dim", 0) % (call.args[0][0].ndim + 1)
    return Rows(axis + (place <= axis))


def _common(call: Call) -> int:
    """The examples' axis of all arrays in a list."""
    call.others_are_free()
    states = list(call.states[0]) if isinstance(call.states[0], (list, tuple)) else []
    if not states or not isinstance(states[0], Rows) or any(state != states[0] for state in states):
        raise Mixed("arrays whose examples lie on different axes")
    axis: int = states[0].axis
    return axis


def _product(call: Call) -> State:
    """Matrix products: examples count matrices on both sides, or rows on the left of a matrix without examples."""
    call.others_are_free(1)
    left, right = call.states[:2]
    if isinstance(right, Rows):
        if left != right or call.args[0].ndim != call.args[1].ndim or call.axis >= call.ndim - 2:
            raise Mixed("examples multiplied with each other")
    elif not isinstance(call.args[1], Tensor) or call.args[1].ndim != 2 or call.axis >= call.ndim - 1:
        raise Mixed("along the examples")
    return Rows(call.axis)


def _attended(call: Call) -> State:
    if not isinstance(call.states[0], Rows) or any(state != call.states[0] for state in call.states[1:3]):
        raise Mixed("queries, keys and values whose examples lie on different axes")
    call.others_are_free(1, 2)
    alike = len({each.ndim for each in call.args[:3]}) == 1
    if len(call.args) < 3 or not alike or call.axis >= call.ndim - 2 or call.given(4, "dropout_p", 0.0) != 0.0:
        raise Mixed("along the examples")
    return Rows(call.axis)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = {
    **_named("add sub mul div truediv pow neg abs square exp log log1p sqrt rsqrt sin cos erf", _elementwise),
    **_named("maximum minimum clamp relu relu6 gelu silu elu selu celu leaky_relu softplus softsign", _elementwise),
    **_named("mish hardtanh hardswish hardsigmoid logsigmoid tanh sigmoid contiguous clone", _elementwise),
    **_named("floordiv mod", _elementwise),
    **_named("iadd isub imul itruediv add_ sub_ mul_ div_ relu_ tanh_ sigmoid_ neg_ exp_", _in_place),
    **_named("softmax log_softmax cumsum glu", _along),
    **_named("mean sum amax amin logsumexp var std", _reduced),
    **_named("flatten view reshape unflatten", _reshaped),
    **_named("max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d", _pooled(1)),
    **_named("max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d", _pooled(2)),
    **_named("chunk split", _pieces),
    **_named("cat concat concatenate", _joined),
    **_named("matmul bmm", _product),
    "transpose": _moved(_swapped),
    "permute": _moved(_permuted),
    "unsqueeze": _inserted,
    "squeeze": _squeezed,
    "select": _selected,
    "unbind": _unbound,
    "getitem": _indexed,
    "stack": _stacked,
    "pad": _padded,
    "layer_norm": _layer_norm,
    "scaled_dot_product_attention": _attended,
    "size": _size,
}
"""By the name that functions and methods of torch share, and operators."""


def _functions() -> dict[Any, str]:
    """Names of the very functions that rules are about; another of the same name is another function."""
    homes = (torch, F, operator)
    found = {function: name for home in homes for name in RULES if (function := getattr(home, name, None)) is not None}
    return {**found, operator.matmul: "matmul", getattr: "getattr"}


_NAMES = _functions()
