"""Loops that the generated kernels of `source` are made of; sizes and offsets are constants there.

Images are channels one behind the other, each a run of rows of one length, flattened. A convolution goes over a whole
channel as one long row: where a kernel would leave a row on the right, columns come out that nobody reads. Gradients
by these columns, and by a border of padding, are zero.

Every loop does the same for one example whatever its numbers, by selects instead of branches, so that it takes as
long; and none looks at another example. Only sums of one example's own products may be reassociated, so that they
vectorise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

U = np.uint64
"""Unsigned indices need no check for negative ones."""
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
in_order = njit(**OPTIONS, cache=True, fastmath={"contract", "nsz"}, forceinline=True)
reassociated = njit(**OPTIONS, cache=True, fastmath={"contract", "nsz", "reassoc"}, forceinline=True)


@in_order
def fill(z, zo, value, n):
    """z = value."""
    for p in range(n):
        z[zo + p] = value


@in_order
def axpy(z, zo, factor, x, xo, n):
    """z += factor x."""
    for p in range(n):
        z[zo + p] += factor * x[xo + p]


@reassociated
def dot(x, xo, y, yo, n):
    """Return x . y."""
    total = x[xo] * y[yo]
    for p in range(U(1), n):
        total += x[xo + p] * y[yo + p]
    return total


@reassociated
def total(x, xo, n):
    """Return the sum of x."""
    found = x[xo]
    for p in range(U(1), n):
        found += x[xo + p]
    return found


@reassociated
def square(x, xo, n):
    """Return |x|^2 in float64, which squares of float32 do not overflow."""
    found = np.float64(0.0)
    for p in range(n):
        found += np.float64(x[xo + p]) * np.float64(x[xo + p])
    return found


@in_order
def copy_rows(z, zo, z_plane, z_stride, x, xo, x_plane, x_stride, channels, height, width):
    """Copy an image to another layout."""
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                z[zo + c * z_plane + i * z_stride + j] = x[xo + c * x_plane + i * x_stride + j]


@in_order
def transpose(z, zo, x, xo, rows, columns):
    """z [columns, rows] = the transpose of x [rows, columns]."""
    for i in range(rows):
        for j in range(columns):
            z[zo + j * rows + i] = x[xo + i * columns + j]


@in_order
def transpose_add(z, zo, x, xo, rows, columns):
    """z [columns, rows] += the transpose of x [rows, columns]."""
    for i in range(rows):
        for j in range(columns):
            z[zo + j * rows + i] += x[xo + i * columns + j]


@in_order
def relu(z, zo, n):
    """Set negative entries to zero; what is no number stays so."""
    zero = z.dtype.type(0)
    for p in range(n):
        value = z[zo + p]
        z[zo + p] = zero if value < zero else value


@in_order
def relu_back(d, do, a, ao, n):
    """d = d where a > 0, and zero elsewhere."""
    zero = a.dtype.type(0)
    for p in range(n):
        d[do + p] = d[do + p] if a[ao + p] > zero else zero


@in_order
def linear(z, zo, x, xo, w, wo, bo, biased, outputs, inputs):
    """z = W x + b, for W [outputs, inputs] in w from wo on, and b from bo on."""
    for j in range(outputs):
        found = dot(w, wo + j * inputs, x, xo, inputs)
        z[zo + j] = found + w[bo + j] if biased else found


@in_order
def linear_back(dx, dxo, d, do, w, wo, outputs, inputs):
    """dx = W' d."""
    fill(dx, dxo, dx.dtype.type(0), inputs)
    whole = outputs - outputs % U(4)
    for j in range(U(0), whole, U(4)):
        d0, d1, d2, d3 = d[do + j], d[do + j + U(1)], d[do + j + U(2)], d[do + j + U(3)]
        row = wo + j * inputs
        for p in range(inputs):
            dx[dxo + p] += (d0 * w[row + p] + d1 * w[row + inputs + p]) + (
                d2 * w[row + U(2) * inputs + p] + d3 * w[row + U(3) * inputs + p]
            )
    for j in range(whole, outputs):
        axpy(dx, dxo, d[do + j], w, wo + j * inputs, inputs)


@in_order
def linear_add(g, go, bo, biased, factor, d, do, x, xo, outputs, inputs):
    """g += factor times the gradient d x' by W, from go on, and d by b, from bo on."""
    for j in range(outputs):
        scaled = factor * d[do + j]
        axpy(g, go + j * inputs, scaled, x, xo, inputs)
        if biased:
            g[bo + j] += scaled


@in_order
def convolve(row, z, zo, x, xo, x_plane, x_stride, w, wo, channels, height, width, n):
    """z += one output channel, without its bias; ``row`` is the loop over a row of the kernel."""
    for c in range(channels):
        for r in range(height):
            row(z, zo, x, xo + c * x_plane + r * x_stride, w, wo + (c * height + r) * width, n)


@in_order
def convolution(row, z, z_plane, x, xo, x_plane, x_stride, w, wo, bo, biased, outputs, channels, height, width, n):
    """z = all output channels."""
    for o in range(outputs):
        fill(z, o * z_plane, w[bo + o] if biased else z.dtype.type(0), n)
        first = wo + o * channels * height * width
        convolve(row, z, o * z_plane, x, xo, x_plane, x_stride, w, first, channels, height, width, n)


@in_order
def convolution_gradient(
    dots, g, go, bo, biased, d, do, d_plane, x, xo, x_plane, x_stride, outputs, channels, height, width, n
):
    """g += the gradient by the kernels, from go on, and by the biases, from bo on."""
    for o in range(outputs):
        for c in range(channels):
            for r in range(height):
                at = go + ((o * channels + c) * height + r) * width
                dots(g, at, d, do + o * d_plane, x, xo + c * x_plane + r * x_stride, n)
        if biased:
            g[bo + o] += total(d, do + o * d_plane, n)


@in_order
def convolution_back(back, dx, dxo, x_plane, x_stride, d, do, d_plane, w, wo, outputs, channels, height, width, n):
    """dx += the gradient by the input; ``back`` is the loop over a row of the kernel, turned round.

    There are ``width - 1`` zeros, or columns that nobody reads, before and behind each channel of d.
    """
    for o in range(outputs):
        for c in range(channels):
            for r in range(height):
                at = wo + ((o * channels + c) * height + r) * width
                start = do + o * d_plane + U(1) - width
                back(dx, dxo + c * x_plane + r * x_stride, d, start, w, at, n + width - U(1))


@in_order
def sparse_gradient(
    g, go, bo, biased, d, do, count, winners, ko, channels, x, xo, x_row, w, wo, dx, wanted, outputs, height, length
):
    """Go back through a convolution from those of its outputs that a pool chose, ``count`` of each channel.

    Channels come last here: g, from go on, and w, from wo on, are [outputs, height, length], where ``length`` is that
    of a kernel's row with all its ``channels``; x and dx have rows of ``x_row`` numbers. ``winners`` are the pixels
    where patches begin.
    """
    for o in range(outputs):
        biases = d.dtype.type(0)
        for e in range(count):
            at = do + o * count + e
            derivative = d[at]
            biases += derivative
            q = U(winners[ko + o * count + e]) * channels
            for r in range(height):
                place = (o * height + r) * length
                axpy(g, go + place, derivative, x, xo + q + r * x_row, length)
                if wanted:
                    axpy(dx, q + r * x_row, derivative, w, wo + place, length)
        if biased:
            g[bo + o] += biases


@in_order
def average(z, zo, z_plane, z_stride, x, xo, x_plane, x_stride, channels, rows, columns, size, stride):
    """z = means over windows of ``size`` by ``size``."""
    part = x.dtype.type(1.0 / (size * size))
    for c in range(channels):
        for i in range(rows):
            for j in range(columns):
                found = x.dtype.type(0)
                for a in range(size):
                    for b in range(size):
                        found += x[xo + c * x_plane + (i * stride + a) * x_stride + j * stride + b]
                z[zo + c * z_plane + i * z_stride + j] = found * part


@in_order
def average_back(dx, dxo, x_plane, x_stride, d, do, z_plane, z_stride, channels, rows, columns, size, stride):
    """dx += what windows give back."""
    part = dx.dtype.type(1.0 / (size * size))
    for c in range(channels):
        for i in range(rows):
            for j in range(columns):
                share = d[do + c * z_plane + i * z_stride + j] * part
                for a in range(size):
                    for b in range(size):
                        dx[dxo + c * x_plane + (i * stride + a) * x_stride + j * stride + b] += share


@in_order
def winners_back(dx, dxo, d, do, z_plane, z_stride, winners, channels, rows, columns):
    """dx += d, where a pool took its values from."""
    for c in range(channels):
        for i in range(rows):
            for j in range(columns):
                at = U(winners[(c * rows + i) * columns + j])
                dx[dxo + at] += d[do + c * z_plane + i * z_stride + j]


@in_order
def normalise(z, hat, spread, x, w, wo, bo, affine, groups, each, plane, eps):
    """z = x normalised over groups of ``each`` channels, times w plus b; ``hat`` without these."""
    n = each * plane
    for group in range(groups):
        first = group * n
        mean = total(x, first, n) / n
        for p in range(n):
            hat[first + p] = x[first + p] - mean
        scale = 1.0 / math.sqrt(square(hat, first, n) / n + eps)
        spread[group] = scale
        factor = x.dtype.type(scale)
        for c in range(group * each, group * each + each):
            for p in range(c * plane, c * plane + plane):
                hat[p] *= factor
                z[p] = hat[p] * w[wo + c] + w[bo + c] if affine else hat[p]


@in_order
def normalise_back(dx, dxo, d, do, hat, spread, g, go, gbo, w, wo, affine, groups, each, plane):
    """Overwrite dx, and add the gradients by w and b to g, from go and gbo on."""
    n = each * plane
    for group in range(groups):
        first = group * n
        for c in range(group * each, group * each + each):
            if affine:
                g[go + c] += dot(d, do + c * plane, hat, c * plane, plane)
                g[gbo + c] += total(d, do + c * plane, plane)
            factor = w[wo + c] if affine else d.dtype.type(1)
            for p in range(c * plane, c * plane + plane):
                dx[dxo + p] = d[do + p] * factor
        mean = total(dx, dxo + first, n) / n
        along = dot(dx, dxo + first, hat, first, n) / n
        scale = dx.dtype.type(spread[group])
        for p in range(first, first + n):
            dx[dxo + p] = (dx[dxo + p] - mean - hat[p] * along) * scale


@in_order
def squared_residual(d, do, z, n, target):
    """d = the derivative of the squared error by z."""
    d[do] = z.dtype.type(2) * (z[0] - z.dtype.type(target))


@in_order
def squared_error(z, n, target):
    """Return the squared error of z."""
    return (np.float64(z[0]) - np.float64(target)) ** 2


@in_order
def clip_weight(squared, clip, smallest):
    """Return what shortens a gradient with that squared norm to ``clip``, 0 if it is not finite."""
    norm = math.sqrt(squared)
    weight = 1.0 if norm <= clip else clip / norm
    # A subnormal weight may have been rounded up by any factor; such a gradient vanishes instead.
    return weight if weight >= smallest and squared < np.inf else 0.0
