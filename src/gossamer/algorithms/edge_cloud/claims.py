"""Privacy claims of MAPA: Remark 4 and the composition that follows it.

| symbol | here |
|---|---|
| epsilon | ``epsilon_per_release``: sensitivity over the scale of the noise's norm, on a batch |
| T | ``releases`` |

**What holds.** One iteration is epsilon-DP if every *per-example* gradient is clipped, if the noise's norm is drawn
from Gamma(d), and if epsilon is relative to the sensitivity of the relation that is meant: 2 G/b under replace-one.
Then both figures are true, and loose:

- An example is at one edge server, which makes some of the T releases; T epsilon charges it for all of them.
- Batches are samples, which amplifies; the paper does not use it.
- A per-release epsilon is a poor description of the noise in d dimensions: its own privacy loss is close to that of
  Gaussian noise with mu = epsilon/sqrt(d) (`gossamer.privacy.l2_laplace`).

**What does not hold.**

- The paper writes that noise "with the norm's density" exp(-epsilon |n|/S) is drawn. An *exponential* norm is not
  epsilon-DP for d > 1: it is the vector's density that has this form, and its norm is Gamma(d, S/epsilon).
- Its experiments noise the gradient of the first convolution only and call the rest post-processing. The other layers'
  gradients come from the same data, so nothing at all is guaranteed then.
- Clipping the batch's *mean* to G, with one example moving it by 2 G/b, is no bound: a clipped mean moves by up to 2 G.
- Moments accounting of Gaussian noise, which the paper names next to advanced composition, is about another mechanism.

References
----------
"Asynchronous Federated Learning with Differential Privacy for Edge Intelligence" (MAPA), Section 4, Remark 4 and the
paragraph after it. Advanced composition: Dwork and Roth, "The algorithmic foundations of differential privacy", 2014,
Theorem 3.20, which the paper cites.
"""

from __future__ import annotations

from gossamer.numbers import require_fraction, require_positive
from gossamer.privacy.accounting.pure_composition import advanced, simple
from gossamer.privacy.guarantees import Claim

REMARK4 = "MAPA, Remark 4"
SIMPLE = "MAPA, Remark 4, simple composition"
ADVANCED = "MAPA, Remark 4, advanced composition"


def mapa_claims(
    epsilon_per_release: float, releases: int, delta: float, *, conditions_hold: bool = True
) -> list[Claim]:
    """Claims of the paper for ``releases`` iterations, each with noise for ``epsilon_per_release``.

    Parameters
    ----------
    epsilon_per_release : float
        Epsilon of the noise on one batch.
    releases : int
        The number T of iterations; nothing is claimed of none.
    delta : float
        Delta at which advanced composition is stated. The other two have delta 0.
    conditions_hold : bool
        Whether the noise is what the statement is about: of a Gamma norm, on all coordinates.

    Returns
    -------
    list of Claim
        Each iteration; all of them by simple composition; all of them by advanced composition.

    Raises
    ------
    SpecError
        epsilon_per_release is not positive, or delta is not in (0, 1).
    """
    require_positive(epsilon_per_release=epsilon_per_release)
    require_fraction(delta=delta)
    if releases == 0:
        return []
    single = epsilon_per_release
    total, sublinear = simple(single, releases), advanced(single, releases, delta)
    conditions = "each per-example gradient is clipped and the noise's norm is Gamma(d)"
    order = "below" if sublinear < total else "not below"
    failing, otherwise = ("", "") if conditions_hold else (", which it is not here", ", if one were private")
    return [
        Claim(REMARK4, single, 0.0, conditions_hold, f"of one iteration, if {conditions}{failing}"),
        Claim(
            SIMPLE, total, 0.0, conditions_hold, f"{releases} iterations add up{failing and ', if one were private'}"
        ),
        Claim(
            ADVANCED,
            sublinear,
            delta,
            conditions_hold,
            f"{order} the sum of {releases} iterations, {total:.4g}{otherwise}",
        ),
    ]
