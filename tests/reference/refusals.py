"""Refusals of specs."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.errors import CallerError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec


def refusal(content: dict[str, Any], **options: Any) -> str:
    """The one line by which a spec is refused, at the latest when it is prepared."""
    with pytest.raises(CallerError) as caught:
        prepare(parse_spec(content, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)
