"""Functions of torch that treat every example by itself, given which axis counts the examples.

A rule says of a function's result which of its axes counts the examples, or raises `Mixed`: for functions without a
rule, for arguments it does not know, and wherever a result may take more than one example. Numbers that follow from
how many examples there are may set shapes only: what is computed from one example must not tell how many there are.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gossamer.objectives import torch_rules as rules
from gossamer.objectives.torch_states import Call, Free, Mixed, Rows, State, is_free


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
    call = Call(values[0], values[1], states[0], states[1], result)
    if call.axis != 0 or len(call.args) != 1 or call.kwargs or not isinstance(result, Tensor):
        raise Mixed("a layer that takes no batch alone")
    return Rows(0)


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
