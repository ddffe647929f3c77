"""Input recovery from the gradient of a linear first layer, and how close the recovered input is.

The outputs of a first layer are ``z_c = w_c x + b_c``, so one example's gradient has ``grad w_c = (dl/dz_c) x`` and
``grad b_c = dl/dz_c``: each row of the weight's gradient, divided by the bias's, is the input [1]. A factor common to
both, such as that of clipping or of a mean, cancels. A batch gives ``sum_i a_ci x_i / sum_i a_ci``, a mixture.

References
----------
[1] Phong, Aono, Hayashi, Wang and Moriai, "Privacy-preserving deep learning via additively homomorphic encryption",
    IEEE TIFS 2018, section III.
[2] Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural similarity",
    IEEE TIP 2004, section III-B and equation (13).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.ndimage import gaussian_filter

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, ModelError
from gossamer.vectors import Part, unpack

_WINDOW, _SIGMA = 11, 1.5  # pixels, [2]
_K1, _K2 = 0.01, 0.03


def is_linear(parts: Sequence[Part], features: int) -> bool:
    """Whether the first trainable layer is linear with a bias and takes ``features`` numbers."""
    if len(parts) < 2:
        return False
    weight, bias = parts[:2]
    prefix = weight.name.removesuffix("weight")
    return (
        weight.name == f"{prefix}weight"
        and len(weight.shape) == 2
        and weight.shape[1] == features
        and bias.name == f"{prefix}bias"
        and bias.shape == weight.shape[:1]
    )


def recover_input(gradient: FloatArray, parts: Sequence[Part], features: int) -> FloatArray:
    """The input of a linear first layer, read off a gradient: the x that minimises ``sum_c |grad w_c - grad b_c x|^2``.

    It is ``sum_c grad b_c grad w_c / sum_c (grad b_c)^2``, which averages noise on the rows.

    Parameters
    ----------
    gradient : ndarray [size]
        Gradient of the loss alone: take the regulariser's gradient off first.
    parts : sequence of Part
        The arrays that the gradient consists of; the first two must be the layer's weight and bias.
    features : int
        Numbers in one example.

    Returns
    -------
    ndarray [features] of float64
        Zeros where the bias's gradient is zero: such a gradient says nothing.

    Raises
    ------
    ModelError
        If the first trainable layer is not linear with a bias.
    """
    if not is_linear(parts, features):
        raise ModelError(
            f"expected a linear first layer with a bias and {features} inputs, found first parts "
            f"{', '.join(f'{part.name} {list(part.shape)}' for part in parts[:2])}; use gradient matching instead"
        )
    arrays = unpack(np.asarray(gradient, np.float64), parts)
    weight, bias = arrays[parts[0].name], arrays[parts[1].name]
    scale = float(np.square(bias).sum())
    return bias @ weight / scale if scale > 0 else np.zeros(features)


def structural_similarity(a: FloatArray, b: FloatArray, data_range: float) -> float:
    """The mean structural similarity (SSIM) of two pictures, at most 1.

    Local means, variances and covariances are weighted by a Gaussian window of 11 x 11 pixels and sd 1.5 with weights
    that sum to 1; K1 = 0.01 and K2 = 0.03; the mean is over all places where the window lies inside the picture, and
    over channels [2]. In a picture with fewer than 11 pixels a side, such as the bundled digits, the window is cut to
    the largest odd number of pixels that fits.

    Parameters
    ----------
    a, b : ndarray [height, width] or [channels, height, width]
        Pictures of one shape, in the units of ``data_range``.
    data_range : float
        L, the largest possible difference of two pixels.

    Raises
    ------
    DataError
        If the shapes differ or are no pictures', or the range is not positive.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or a.ndim not in (2, 3) or min(a.shape[-2:]) < 1 or not data_range > 0:
        found = f"{list(a.shape)}, {list(b.shape)} and {data_range!r}"
        raise DataError(f"expected two pictures of one shape and a data range above 0, found {found}")
    if a.ndim == 3:
        return float(np.mean([structural_similarity(x, y, data_range) for x, y in zip(a, b)]))
    radius = (min(_WINDOW, *a.shape) - 1) // 2
    mean_a, mean_b = _smoothed(a, radius), _smoothed(b, radius)
    variance_a, variance_b = _smoothed(a * a, radius) - mean_a**2, _smoothed(b * b, radius) - mean_b**2
    covariance = _smoothed(a * b, radius) - mean_a * mean_b
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    similarity = (
        (2 * mean_a * mean_b + c1)
        * (2 * covariance + c2)
        / ((mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2))
    )
    return float(similarity.mean())


def _smoothed(picture: FloatArray, radius: int) -> FloatArray:
    """Means under the window, at the places where it lies inside the picture."""
    means: FloatArray = gaussian_filter(picture, _SIGMA, radius=radius, mode="constant")
    height, width = picture.shape
    return means[radius : height - radius, radius : width - radius]


def clipped_similarity(original: FloatArray, recovered: FloatArray, low: float, high: float) -> float:
    """SSIM of a recovered picture at the data's own scale: values outside [low, high] are clipped to it, not rescaled.

    Parameters
    ----------
    original, recovered : ndarray [height, width] or [channels, height, width]
        The recovered picture may have any finite values.
    low, high : float
        The range of the data, known to everybody.
    """
    return structural_similarity(original, np.clip(recovered, low, high), high - low)


def cosine_similarity(a: FloatArray, b: FloatArray) -> float:
    """The cosine of the angle between two arrays of one size, in [-1, 1]; 0 where one of them is zero."""
    x, y = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms > 0 else 0.0
