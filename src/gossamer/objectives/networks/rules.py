"""Rules of single functions: which axis of the result counts the examples, given that of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from torch import Tensor


class Mixed(Exception):
    """A function that may mix examples, or is not known not to."""


@dataclass(frozen=True)
class ExampleAxis:
    """An array with an example at every place of one axis."""

    axis: int


@dataclass(frozen=True)
class Free:
    """Whatever does not depend on examples, nor on how many there are."""


@dataclass(frozen=True)
class Count:
    """A number that depends on how many examples there are, and on nothing else of them."""


State = ExampleAxis | Free | Count | list[Any]


class FunctionCall(NamedTuple):
    """A function's arguments, with the state and the value of each, and its result."""

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
        axis: int = states[0].axis
        return axis

    def refuse(self) -> NoReturn:
        """Raise Mixed."""
        raise Mixed("no rule for these arguments")


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
    if call.args[1] == "shape":
        return shape(call)
    if call.args[1] in ("dtype", "device", "ndim"):
        return Free()
    if call.args[1] == "mT":
        return before_the_last(2)(call)
    return call.refuse()


def shape(call: FunctionCall) -> State:
    """Lengths of all axes."""
    axis = call.axis
    return [Count() if place == axis else Free() for place in range(call.ndim)]


def size(call: FunctionCall) -> State:
    """Length of an axis, or of all."""
    if (dim := call.given(1, "dim")) is None:
        return shape(call)
    return Count() if dim % call.ndim == call.axis else Free()


def member(call: FunctionCall) -> State:
    """One of the results of a function that has several."""
    place = call.args[1]
    found: State = call.states[0][place] if is_free(call.states[1]) else call.refuse()
    return found


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


def before_the_last(count: int) -> Rule:
    """Functions of the last ``count`` axes, for which all before are alike."""

    def rule(call: FunctionCall) -> State:
        call.others_are_free()
        if call.axis >= call.ndim - count:
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


def padded(call: FunctionCall) -> State:
    """Entries added at the ends of the last axes."""
    return before_the_last(len(call.given(1, "pad")) // 2)(call)


def layer_norm(call: FunctionCall) -> State:
    """Normalisation over the last axes."""
    return before_the_last(len(call.given(1, "normalized_shape")))(call)


def reshaped(call: FunctionCall) -> State:
    """Axes up to the examples' stay; so what is behind it is one example's, in the same order.

    How many there are may be said in its place only, not computed with: else one example's shape could depend on it.
    """
    listed = len(call.states) == 2 and isinstance(call.states[1], (list, tuple))
    sizes = call.states[1] if listed else call.states[1:]
    others = [state for place, state in enumerate(sizes) if not (place == call.axis and isinstance(state, Count))]
    if not all(map(is_free, (*others, *call.named.values()))):
        raise Mixed("a shape that depends on examples")
    front = call.axis + 1
    if call.result.shape[:front] != call.args[0].shape[:front]:
        raise Mixed("examples joined or cut")
    return ExampleAxis(call.axis)


def regrouped(call: FunctionCall) -> State:
    """Like `reshaped`, but what is said is which axes: none that follow from how many examples there are."""
    call.others_are_free()
    return reshaped(call)


def moved(order: Callable[[FunctionCall], Sequence[int]]) -> Rule:
    """Axes in another ``order``, as the call says."""

    def rule(call: FunctionCall) -> State:
        call.others_are_free()
        return ExampleAxis([dim % call.ndim for dim in order(call)].index(call.axis))

    return rule


def swapped(call: FunctionCall) -> list[int]:
    """Order of axes for ``transpose``."""
    first, second = (call.given(place, name) % call.ndim for place, name in ((1, "dim0"), (2, "dim1")))
    order = list(range(call.ndim))
    order[first], order[second] = order[second], order[first]
    return order


def permuted(call: FunctionCall) -> Sequence[int]:
    """Order of axes for ``permute``."""
    dims = call.given(1, "dims")
    found: Sequence[int] = dims if isinstance(dims, (list, tuple)) else call.args[1:]
    return found


def inserted(call: FunctionCall) -> State:
    """An axis of length 1 added."""
    call.others_are_free()
    place = call.given(1, "dim") % (call.ndim + 1)
    return ExampleAxis(call.axis + (place <= call.axis))


def squeezed(call: FunctionCall) -> State:
    """Axes of length 1 taken away."""
    call.others_are_free()
    dims = call.along(call.given(1, "dim"))
    return ExampleAxis(call.axis - sum(dim < call.axis for dim in dims if call.args[0].shape[dim] == 1))


def selected(call: FunctionCall) -> State:
    """One place of an axis."""
    call.others_are_free()
    (dim,) = call.along(call.given(1, "dim"))
    return ExampleAxis(call.axis - (dim < call.axis))


def pieces(call: FunctionCall) -> State:
    """Arrays cut along an axis."""
    call.others_are_free()
    call.along(call.given(2, "dim", 0))
    return [ExampleAxis(call.axis) for _ in call.result]


def unbound(call: FunctionCall) -> State:
    """All places of an axis, one by one."""
    call.others_are_free()
    (dim,) = call.along(call.given(1, "dim", 0))
    return [ExampleAxis(call.axis - (dim < call.axis)) for _ in call.result]


def indexed(call: FunctionCall) -> State:
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
            return ExampleAxis(new) if each == slice(None) else call.refuse()
        old += each is not None
        new += type(each) is not int
    return call.refuse()


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
