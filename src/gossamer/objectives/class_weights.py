"""Weights of classes, as a spec says them: public numbers, never counted in private rows.

A weight multiplies the loss of the examples of its class before they are clipped, so that no guarantee changes. A model
that is fitted so alone would say too large a risk of a class of large weight: by Bayes' rule its odds are those of the
population times the weights' ratio. So it is fitted on its scores plus the logarithms of the weights, and its own
scores are right without them: log w is the correction of the intercept that a sample of other shares needs.

References
----------
King and Zeng, "Logistic regression in rare events data", Political Analysis 9 (2001), section 4.1 (prior correction).
Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, section 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag

from gossamer.arrays import Floats
from gossamer.data.columns import texts_as_keys
from gossamer.errors import SpecError

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ClassWeight = Annotated[
    Annotated[Literal["balanced"], Tag("[name]")]
    | Annotated[dict[str, Weight], BeforeValidator(texts_as_keys), Tag("[weights]")],
    Discriminator(lambda given: "[weights]" if isinstance(given, Mapping) else "[name]"),
]
"""Weight of each class by its label, 1 where it says none; or the one that the prevalence asks for."""


def shares_of(prevalence: float | None) -> Floats | None:
    """Shares [2] of two classes, of the second of which the prevalence is known; None where it is not."""
    return None if prevalence is None else np.array([1 - prevalence, prevalence])


def weights_of(
    given: Literal["balanced"] | Mapping[str, float] | None, shares: Floats | None, labels: tuple[str, ...] | None
) -> Floats | None:
    """Weight of each class [classes]; None where nothing is given.

    ``balanced`` are weights in inverse proportion to the ``shares`` [2] of two classes, the largest being 1, so that a
    clip undoes none of them.

    Raises
    ------
    SpecError
        If there are no classes, or one is unknown.
    """
    if given is None:
        return None
    if labels is None:
        raise SpecError("objective.class_weight is about classes, and the targets are numbers; leave it out")
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in labels]:
            raise SpecError(
                f"objective.class_weight: {unknown[0]} is none of the classes {', '.join(labels[:20])}; correct it, or "
                "add it to dataset.labels"
            )
        return np.array([given.get(name, 1.0) for name in labels])
    if shares is None:
        raise SpecError(
            "objective.class_weight: balanced needs how common the second of two classes is, from public knowledge and "
            "not from private rows; give dataset.prevalence, such as 0.08"
        )
    return np.asarray(shares.min() / shares, np.float64)
