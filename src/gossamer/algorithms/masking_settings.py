"""Settings of masked sums that algorithms share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gossamer.section import Section


class SecureSums(Section):
    """Base of settings whose kind ``secure`` hides updates in exact sums.

    Attributes
    ----------
    name : str
        The kind.
    bits, threshold, minimum, fraction_bits
        Of ``secure``; each algorithm says what they are of its own nodes.
    """

    secure: ClassVar[tuple[str, ...]] = ("bits", "threshold", "minimum", "fraction_bits")
    """Settings that belong to ``secure`` alone."""

    name: str = "none"
    bits: Literal[32, 64] = 32
    threshold: int | None = Field(default=None, ge=2)
    minimum: int | None = Field(default=None, ge=2)
    fraction_bits: int | None = None

    @model_validator(mode="after")
    def _belongs_to_secure(self) -> Self:
        foreign = [name for name in self.secure if getattr(self, name) != type(self).model_fields[name].default]
        if foreign and self.name != "secure":
            raise ValueError(
                f"masking: {' and '.join(foreign)} {'belong' if foreign[1:] else 'belongs'} to secure, found "
                f"{self.name}"
            )
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """Arguments of `secure_unit` for ``secure``."""
        return {
            "bits": self.bits,
            "threshold": self.threshold or 0,
            "minimum": self.minimum or 0,
            "fraction_bits": self.fraction_bits,
        }
