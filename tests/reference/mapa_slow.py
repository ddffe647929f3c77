"""MAPA's stages in exact arithmetic: every float is taken as the rational number it is."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt


def stage(
    s: float, L: float, gap: float, tau: int, b: int, rho: float, clip: Fraction, moment: Fraction
) -> tuple[Fraction, Fraction, Fraction, int]:
    """(2 G/b, P, eta, T_s) of a stage with clip G and E||n||^2 of the noise on the mean."""
    delta_b = Fraction(s) ** 2 / b + moment
    ratio = 2 * delta_b / ((tau + 1) * Fraction(rho) ** 2 * clip**2)
    penalty = ratio if ratio > 1 else Fraction(1)
    eta = 1 / (2 * Fraction(L) * penalty * (tau + 1))
    updates = 4 * penalty**2 * Fraction(L) * Fraction(gap) * (tau + 1) ** 2 / delta_b
    return 2 * clip / b, penalty, eta, -(-updates.numerator // updates.denominator)


def square_root(number: Fraction, digits: int = 60) -> Fraction:
    """The square root, rounded down, to so many digits after the point."""
    scale = 10**digits
    return Fraction(isqrt(number.numerator * scale**2 // number.denominator), scale)


def first_clip(s: float, b: int, kappa: float) -> Fraction:
    """G = b dS/2 with dS = 2 s / (b sqrt(1 - sqrt(1 - kappa))), word for word."""
    sensitivity = 2 * Fraction(s) / (b * square_root(1 - square_root(1 - Fraction(kappa))))
    return b * sensitivity / 2
