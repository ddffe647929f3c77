"""Loops whose text depends on the size of a kernel or a window, which the compiler would not unroll by itself."""

from __future__ import annotations


def row(width: int) -> str:
    """Return the loop z += w * x over a row of a kernel."""
    taps = range(width)
    weights = "; ".join(f"w{k} = w[wo + U({k})]" for k in taps)
    terms = " + ".join(f"w{k} * x[q + U({k})]" for k in taps)
    return f"""
@in_order
def row_{width}(z, zo, x, xo, w, wo, n):
    {weights}
    for p in range(n):
        q = xo + p
        z[zo + p] += {terms}
"""


def back(width: int) -> str:
    """Return the same with the kernel turned round."""
    taps = range(width)
    weights = "; ".join(f"w{k} = w[wo + U({width - 1 - k})]" for k in taps)
    terms = " + ".join(f"w{k} * d[q + U({k})]" for k in taps)
    return f"""
@in_order
def back_{width}(z, zo, d, do, w, wo, n):
    {weights}
    for p in range(n):
        q = do + p
        z[zo + p] += {terms}
"""


def dots(width: int) -> str:
    """Return the loop that finds the gradient by a row of a kernel."""
    taps = range(width)
    start = "; ".join(f"s{k} = d.dtype.type(0)" for k in taps)
    terms = "\n        ".join(f"s{k} += e * x[q + U({k})]" for k in taps)
    end = "; ".join(f"g[go + U({k})] += s{k}" for k in taps)
    return f"""
@reassociated
def dots_{width}(g, go, d, do, x, xo, n):
    {start}
    for p in range(n):
        e = d[do + p]
        q = xo + p
        {terms}
    {end}
"""


def window(size: int) -> str:
    """Return the loop that takes maxima over windows; of equal ones the first, and NaN wherever there is one."""
    tries = "\n            ".join(
        f"t = z[q + U({a}) * stride + U({b})]; wins = (t > v) | (t != t)\n            "
        f"v = t if wins else v; w = U({a}) * stride + U({b}) if wins else w"
        for a in range(size)
        for b in range(size)
        if a or b
    )
    return f"""
@in_order
def window_{size}(m, mo, k, ko, z, zo, first, stride, rows, columns, step):
    for i in range(rows):
        for j in range(columns):
            at = i * step * stride + j * step
            q = zo + at
            v = z[q]
            w = U(0)
            {tries}
            m[mo + i * columns + j] = v
            k[ko + i * columns + j] = np.int32(first + at + w)
"""


LOOPS = {"row": row, "back": back, "dots": dots, "window": window}
