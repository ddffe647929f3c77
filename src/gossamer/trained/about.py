"""Words of people about a model: what it is for, and what it is not for, whose data it learnt from, and who agreed."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from gossamer.section import Section

Words = Annotated[str, StringConstraints(min_length=1, max_length=2000, strip_whitespace=True)]


class AboutSettings(Section):
    """Words of people about a model, for its card and the beginning of its report.

    It is public, and decides nothing of a run.

    Attributes
    ----------
    purpose : str, optional
        Purpose of the model, and who is to use it.
    limits : str, optional
        Uses and people that it is not for, and what was not tried.
    persons : str, optional
        Persons whose data it learns from, such as ``stroke patients of five hospitals, 2019 to 2024``.
    decided : str, optional
        Who decided that it may be trained, and when, such as an ethics board and the number of its vote.
    """

    purpose: Words | None = None
    limits: Words | None = None
    persons: Words | None = None
    decided: Words | None = None
