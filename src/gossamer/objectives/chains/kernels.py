"""Loops that the generated kernels of `compiled` are made of; sizes and offsets are constants there.

Images are channels one behind the other, each a run of rows of one length, flattened. A convolution goes over a whole
channel as one long row: where a kernel would leave a row on the right, columns come out that nobody reads. Gradients
by these columns, and by a border of padding, are zero.

Every loop does the same for one example whatever its numbers, by selects instead of branches, so that it takes as
long; and none looks at another example. Only sums of one example's own products may be reassociated, so that they
vectorise.

**Blocks.** Wide linear layers take several examples at a time, so that a row of weights is loaded once for all of them.
What comes out for an example is made by the same operations in the same order whichever examples are beside it.
Examples come in fours; `rows` is their number, rounded up. The wider layers are left to BLAS, which for one shape of
matrices computes each row alike: there, `rows` is always the same, and a library that does otherwise is not used
(`networks.checks.kernel_problem`).
"""

from __future__ import annotations

import math

import numpy as np

from gossamer.machine_code import compiled

U = np.uint64
"""Unsigned indices need no check for negative ones."""
in_order = compiled(boundscheck=False, fastmath={"contract", "nsz"}, forceinline=True)
reassociated = compiled(boundscheck=False, fastmath={"contract", "nsz", "reassoc"}, forceinline=True)


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
