"""Settings by which the agents of a unit hide their updates from their own server."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from gossamer.algorithms.masking_settings import SecureSums


class Masking(SecureSums):
    """Settings of masks inside a unit.

    Attributes
    ----------
    name : {"none", "secure", "pairwise_noise", "independent_noise"}
        ``secure``: a server that hands on its agents' keys learns exact sums of updates made at one model, and what
        these sums tell. ``pairwise_noise``: the paper's noise that cancels, for its figures; it hides nothing that can
        be stated. ``independent_noise``: the noise of its equation 7, Laplace and of each agent's own, which does not
        cancel; nothing is proved of it either.
    bits : {32, 64}
        Of ``secure``: updates are added as integers of so many bits.
    threshold : int, optional
        Of ``secure``: how many agents have to answer for a sum to be unmasked, more than half of those sampled. By
        default two thirds of them, rounded up.
    minimum : int, optional
        Of ``secure``: fewest updates in a sum, at least the threshold. By default the threshold.
    fraction_bits : int, optional
        Of ``secure``: binary digits after the point. By default as many as the clip, the agents and the bits allow.
    radius : float, optional
        Of ``secure``: most L2 norm of a model that agents make updates at. In a round with one beyond they take no
        part, so servers shorten what they ask about to it. By default what no honest run exceeds, which follows from
        the clip, the rounds and the noise.
    standard_deviation : float, optional
        Of ``pairwise_noise`` and ``independent_noise``: of each coordinate of an agent's noise. By default, of
        ``independent_noise``, that of ``privacy``.
    """

    secure: ClassVar[tuple[str, ...]] = (*SecureSums.secure, "radius")

    name: Literal["none", "secure", "pairwise_noise", "independent_noise"] = "none"
    radius: float | None = Field(default=None, gt=0)
    standard_deviation: float | None = Field(default=None, gt=0)

    @property
    def noisy(self) -> bool:
        """Whether agents add noise of the paper's figures, so that single updates are longer than planned."""
        return self.name in ("pairwise_noise", "independent_noise")

    @model_validator(mode="after")
    def _a_deviation_is_of_noise(self) -> Self:
        given = self.standard_deviation is not None
        if (given and not self.noisy) or (not given and self.name == "pairwise_noise"):
            raise ValueError(
                "masking: standard_deviation belongs to pairwise_noise, which needs one, and to independent_noise; "
                f"found {self.name}"
            )
        return self
