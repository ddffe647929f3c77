"""A compiled loop: sums of products of complex numbers, each in the order of its terms.

It is imported where it is used, since `numba` is slow to import.
"""

from __future__ import annotations

from numba import njit

_STRIP = 32  # terms at a time, which stay in the cache while all rows pass over them


# Nothing is reassociated or contracted, so that bits are those of one addition after another, as by `numpy.einsum`.
@njit(cache=True, nogil=True, error_model="numpy")
def add_products(rows, real, imaginary, into_real, into_imaginary):
    """Add ``sum_j rows[a, j] columns[j, b]`` to ``into``, where columns [terms, columns] and into [rows, columns].

    Parts of complex numbers are arrays of their own, so that several columns are computed at once.
    """
    for first in range(0, rows.shape[1], _STRIP):
        last = min(first + _STRIP, rows.shape[1])
        for a in range(rows.shape[0]):
            for j in range(first, last):
                x = rows[a, j].real
                y = rows[a, j].imag
                for b in range(real.shape[1]):
                    into_real[a, b] += x * real[j, b] - y * imaginary[j, b]
                    into_imaginary[a, b] += x * imaginary[j, b] + y * real[j, b]
