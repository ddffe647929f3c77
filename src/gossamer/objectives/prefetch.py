"""A hint to the processor, for compiled loops over rows in no order: to fetch what a later step reads."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_READ, _KEEP, _DATA = 0, 3, 1


def _prefetch(_typing: Any, array: Any, _place: Any) -> Any:
    """Type and code of `fetch`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = make_array(array)(context, builder, arguments[0])  # type: ignore[no-untyped-call]
        address = builder.gep(given.data, [arguments[1]])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0"
        )
        builder.call(function, [builder.bitcast(address, byte), number(_READ), number(_KEEP), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


fetch: Any = intrinsic(_prefetch)
"""(array, place) in compiled code: ask for the memory around ``array.flat[place]`` of a contiguous array."""
