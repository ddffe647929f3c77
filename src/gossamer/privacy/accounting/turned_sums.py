"""A compiled loop: sums of products of complex numbers, each in the order of its terms.

It is imported where it is used, since `numba` is slow to import.
"""

from __future__ import annotations

from gossamer.machine_code import compiled

_STRIP = 32  # terms at a time, which stay in the cache while all rows pass over them


# Nothing is reassociated or contracted, so that bits are those of one addition after another, as by `numpy.einsum`.
@compiled()
def add_products(rows, real, imaginary, into_real, into_imaginary):
    """Add ``sum_j rows[a, j] columns[j, b]`` to ``into``, where columns [terms, columns] and into [rows, columns].

    Parts of complex numbers are arrays of their own, so that several columns are computed at once.
    """
    for first in range(0, rows.shape[1], _STRIP):
        last = min(first + _STRIP, rows.shape[1])
        fours = last - (last - first) % 4
        for a in range(rows.shape[0]):
            # Four terms at a time, one after another, so that sums are fetched and stored a quarter as often.
            for j in range(first, fours, 4):
                x, y = rows[a, j].real, rows[a, j].imag
                x1, y1 = rows[a, j + 1].real, rows[a, j + 1].imag
                x2, y2 = rows[a, j + 2].real, rows[a, j + 2].imag
                x3, y3 = rows[a, j + 3].real, rows[a, j + 3].imag
                for b in range(real.shape[1]):
                    u, v = real[j, b], imaginary[j, b]
                    u1, v1 = real[j + 1, b], imaginary[j + 1, b]
                    u2, v2 = real[j + 2, b], imaginary[j + 2, b]
                    u3, v3 = real[j + 3, b], imaginary[j + 3, b]
                    sums = into_real[a, b] + (x * u - y * v)
                    sums = sums + (x1 * u1 - y1 * v1)
                    sums = sums + (x2 * u2 - y2 * v2)
                    into_real[a, b] = sums + (x3 * u3 - y3 * v3)
                    sums = into_imaginary[a, b] + (x * v + y * u)
                    sums = sums + (x1 * v1 + y1 * u1)
                    sums = sums + (x2 * v2 + y2 * u2)
                    into_imaginary[a, b] = sums + (x3 * v3 + y3 * u3)
            for j in range(fours, last):
                x, y = rows[a, j].real, rows[a, j].imag
                for b in range(real.shape[1]):
                    into_real[a, b] += x * real[j, b] - y * imaginary[j, b]
                    into_imaginary[a, b] += x * imaginary[j, b] + y * real[j, b]
