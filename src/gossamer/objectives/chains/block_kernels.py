"""Loops of wide linear layers: several examples at a time, so that a row of weights is loaded once for all of them.

What comes out for an example is made by the same operations in the same order whichever examples are beside it.
Examples come in fours; `rows` is their number, rounded up. The wider layers are left to BLAS, which for one shape of
matrices computes each row alike: there, `rows` is always the same, and a library that does otherwise is not used
(`networks.checks.kernel_problem`).
"""

from __future__ import annotations

import numpy as np

from gossamer.objectives.chains.kernels import U, axpy, in_order, reassociated, square


@in_order
def gather(z, x, index, rows, count, n):
    """z [rows, n] = examples ``index`` of x; the last of them stands for those that are missing."""
    for e in range(rows):
        first = U(index[min(e, count - U(1))]) * n
        for p in range(n):
            z[e * n + p] = x[first + p]


@reassociated
def linear_block(z, x, w, wo, bo, biased, rows, outputs, inputs):
    """z [rows, outputs] = x [rows, inputs] W' + b."""
    even = outputs - outputs % U(2)
    for e in range(U(0), rows, U(4)):
        x0 = e * inputs
        x1, x2, x3 = x0 + inputs, x0 + U(2) * inputs, x0 + U(3) * inputs
        for j in range(U(0), even, U(2)):
            r0 = wo + j * inputs
            r1 = r0 + inputs
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = z.dtype.type(0)
            for p in range(inputs):
                a, b = w[r0 + p], w[r1 + p]
                y0, y1, y2, y3 = x[x0 + p], x[x1 + p], x[x2 + p], x[x3 + p]
                s00 += a * y0
                s01 += b * y0
                s10 += a * y1
                s11 += b * y1
                s20 += a * y2
                s21 += b * y2
                s30 += a * y3
                s31 += b * y3
            at = e * outputs + j
            z[at], z[at + U(1)] = s00, s01
            z[at + outputs], z[at + outputs + U(1)] = s10, s11
            z[at + U(2) * outputs], z[at + U(2) * outputs + U(1)] = s20, s21
            z[at + U(3) * outputs], z[at + U(3) * outputs + U(1)] = s30, s31
        for j in range(even, outputs):
            r0 = wo + j * inputs
            s0 = s1 = s2 = s3 = z.dtype.type(0)
            for p in range(inputs):
                a = w[r0 + p]
                s0 += a * x[x0 + p]
                s1 += a * x[x1 + p]
                s2 += a * x[x2 + p]
                s3 += a * x[x3 + p]
            at = e * outputs + j
            z[at], z[at + outputs], z[at + U(2) * outputs], z[at + U(3) * outputs] = s0, s1, s2, s3
    if biased:
        for e in range(rows):
            for j in range(outputs):
                z[e * outputs + j] += w[bo + j]


@in_order
def linear_back_block(dx, d, w, wo, rows, outputs, inputs):
    """dx [rows, inputs] = d [rows, outputs] W."""
    whole = outputs - outputs % U(4)
    for e in range(U(0), rows, U(2)):
        x0, x1 = e * inputs, e * inputs + inputs
        d0, d1 = e * outputs, e * outputs + outputs
        for p in range(U(2) * inputs):
            dx[x0 + p] = dx.dtype.type(0)
        for j in range(U(0), whole, U(4)):
            r = wo + j * inputs
            a0, a1, a2, a3 = d[d0 + j], d[d0 + j + U(1)], d[d0 + j + U(2)], d[d0 + j + U(3)]
            b0, b1, b2, b3 = d[d1 + j], d[d1 + j + U(1)], d[d1 + j + U(2)], d[d1 + j + U(3)]
            for p in range(inputs):
                w0, w1 = w[r + p], w[r + inputs + p]
                w2, w3 = w[r + U(2) * inputs + p], w[r + U(3) * inputs + p]
                dx[x0 + p] += (a0 * w0 + a1 * w1) + (a2 * w2 + a3 * w3)
                dx[x1 + p] += (b0 * w0 + b1 * w1) + (b2 * w2 + b3 * w3)
        for j in range(whole, outputs):
            r = wo + j * inputs
            a, b = d[d0 + j], d[d1 + j]
            for p in range(inputs):
                dx[x0 + p] += a * w[r + p]
                dx[x1 + p] += b * w[r + p]


@in_order
def linear_add_block(g, go, bo, biased, factors, d, x, rows, outputs, inputs):
    """g += the sum of ``factors`` [rows] times the examples' gradients by W, from go on, and by b, from bo on."""
    even = outputs - outputs % U(4)
    for j in range(U(0), even, U(4)):
        r0 = go + j * inputs
        r1, r2, r3 = r0 + inputs, r0 + U(2) * inputs, r0 + U(3) * inputs
        for e in range(U(0), rows, U(4)):
            x0, d0 = e * inputs, e * outputs + j
            x1, x2, x3 = x0 + inputs, x0 + U(2) * inputs, x0 + U(3) * inputs
            d1, d2, d3 = d0 + outputs, d0 + U(2) * outputs, d0 + U(3) * outputs
            f0, f1, f2, f3 = factors[e], factors[e + U(1)], factors[e + U(2)], factors[e + U(3)]
            a0, a1, a2, a3 = f0 * d[d0], f1 * d[d1], f2 * d[d2], f3 * d[d3]
            b0, b1, b2, b3 = f0 * d[d0 + U(1)], f1 * d[d1 + U(1)], f2 * d[d2 + U(1)], f3 * d[d3 + U(1)]
            c0, c1, c2, c3 = f0 * d[d0 + U(2)], f1 * d[d1 + U(2)], f2 * d[d2 + U(2)], f3 * d[d3 + U(2)]
            h0, h1, h2, h3 = f0 * d[d0 + U(3)], f1 * d[d1 + U(3)], f2 * d[d2 + U(3)], f3 * d[d3 + U(3)]
            for p in range(inputs):
                y0, y1, y2, y3 = x[x0 + p], x[x1 + p], x[x2 + p], x[x3 + p]
                g[r0 + p] += (a0 * y0 + a1 * y1) + (a2 * y2 + a3 * y3)
                g[r1 + p] += (b0 * y0 + b1 * y1) + (b2 * y2 + b3 * y3)
                g[r2 + p] += (c0 * y0 + c1 * y1) + (c2 * y2 + c3 * y3)
                g[r3 + p] += (h0 * y0 + h1 * y1) + (h2 * y2 + h3 * y3)
            if biased:
                g[bo + j] += (a0 + a1) + (a2 + a3)
                g[bo + j + U(1)] += (b0 + b1) + (b2 + b3)
                g[bo + j + U(2)] += (c0 + c1) + (c2 + c3)
                g[bo + j + U(3)] += (h0 + h1) + (h2 + h3)
    for j in range(even, outputs):
        r0 = go + j * inputs
        for e in range(U(0), rows, U(4)):
            x0, d0 = e * inputs, e * outputs + j
            x1, x2, x3 = x0 + inputs, x0 + U(2) * inputs, x0 + U(3) * inputs
            a0, a1 = factors[e] * d[d0], factors[e + U(1)] * d[d0 + outputs]
            a2, a3 = factors[e + U(2)] * d[d0 + U(2) * outputs], factors[e + U(3)] * d[d0 + U(3) * outputs]
            for p in range(inputs):
                g[r0 + p] += (a0 * x[x0 + p] + a1 * x[x1 + p]) + (a2 * x[x2 + p] + a3 * x[x3 + p])
            if biased:
                g[bo + j] += (a0 + a1) + (a2 + a3)


@in_order
def matrix(x, rows, columns):
    """Return the first rows of x, of so many columns."""
    return x[: rows * columns].reshape((rows, columns))


@in_order
def linear_product(z, x, w, wo, bo, biased, rows, outputs, inputs):
    """`linear_block` by BLAS."""
    weights = matrix(w[wo:], outputs, inputs)
    np.dot(matrix(x, rows, inputs), weights.T, matrix(z, rows, outputs))
    if biased:
        for e in range(rows):
            axpy(z, e * outputs, z.dtype.type(1), w, bo, outputs)


@in_order
def linear_back_product(dx, d, w, wo, rows, outputs, inputs):
    """`linear_back_block` by BLAS."""
    weights = matrix(w[wo:], outputs, inputs)
    np.dot(matrix(d, rows, outputs), weights, matrix(dx, rows, inputs))


@in_order
def linear_add_product(g, room, first, go, bo, biased, factors, d, x, rows, outputs, inputs):
    """`linear_add_block` by BLAS, which overwrites d.

    ``first`` says that g is zero as yet; ``room`` is for outputs x inputs numbers where it is not.
    """
    for e in range(rows):
        for j in range(outputs):
            d[e * outputs + j] *= factors[e]
        if biased:
            axpy(g, bo, g.dtype.type(1), d, e * outputs, outputs)
    product = g[go : go + outputs * inputs] if first else room[: outputs * inputs]
    np.dot(matrix(d, rows, outputs).T, matrix(x, rows, inputs), product.reshape((outputs, inputs)))
    if not first:
        axpy(g, go, g.dtype.type(1), product, U(0), outputs * inputs)


@in_order
def keep(z, e, n, sound):
    """Row e of z [., n] = zeros unless it is ``sound``; it takes as long."""
    for p in range(e * n, e * n + n):
        z[p] = z[p] if sound else z.dtype.type(0)


@in_order
def row_square(z, e, n):
    """Return the squared norm of row e of z [., n]."""
    return square(z, e * n, n)
