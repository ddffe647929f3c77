"""Histograms behind masks on which parties agree by their identities alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.keys.identity import Identity
from gossamer.sides.held_out import masked_part
from gossamer.sides.masked_side import Signing

NAMES, SIZE, STEP = ("a", "b", "c", "d"), 200, 2.0**-10
IDENTITIES = {name: Identity.of_seed(bytes([place]) * 32) for place, name in enumerate(NAMES)}
STEPS = np.random.default_rng(2).integers(0, 2**20, (len(NAMES), SIZE))
"""Small integers, whose upper bits are 0."""


def parts(values: npt.NDArray[np.int64] = STEPS, context: bytes = b"run") -> dict[str, npt.NDArray[np.unsignedinteger]]:
    keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
    return {
        name: masked_part(own * STEP, STEP, name, Signing(IDENTITIES[name], keys), context)
        for name, own in zip(NAMES, values, strict=True)
    }


def is_uniform(values: npt.NDArray[np.unsignedinteger]) -> bool:
    """Whether each of the 64 bits is set in half of the values but for 5.5 deviations: false once in 400,000 times."""
    bits = (values[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return bool(np.abs(bits.sum(axis=0).astype(float) - SIZE / 2).max() < 5.5 * np.sqrt(SIZE) / 2)


def total(found: Iterable[npt.NDArray[np.unsignedinteger]]) -> npt.NDArray[np.int64]:
    return np.sum([*found], axis=0, dtype=np.uint64).view(np.int64)


def test_the_sum_of_all_is_exact_and_less_than_all_say_nothing() -> None:
    found = parts()
    np.testing.assert_array_equal(total(found.values()), STEPS.sum(axis=0))
    for name in NAMES:
        assert is_uniform(found[name])
        assert is_uniform(total(found[other] for other in NAMES if other != name).view(np.uint64))
    assert not is_uniform(total(found.values()).view(np.uint64))


def masks_of(colluders: Iterable[str]) -> npt.NDArray[np.unsignedinteger]:
    """What parties can take off of the others: the masks that they have with them."""
    nothing = parts(np.zeros_like(STEPS))
    return total(nothing[name] for name in colluders).view(np.uint64)


@pytest.mark.parametrize(("colluders", "hidden"), [("d", True), ("cd", True), ("bcd", False)])
def test_parties_that_work_together_see_the_sum_of_the_others_alone(colluders: str, hidden: bool) -> None:
    """What they know of all masks is what those with them sum up to, which are minus those of the others with them."""
    found = parts()
    others = [name for name in NAMES if name not in colluders]
    stripped = total(found[name] for name in others).view(np.uint64) + masks_of(colluders)
    known = STEPS[[NAMES.index(name) for name in others]].sum(axis=0)
    np.testing.assert_array_equal(stripped.view(np.int64), known)
    assert is_uniform(found["a"] + masks_of(colluders)) == hidden


def test_another_run_and_other_members_have_other_masks() -> None:
    """The same part of two runs with one mask would tell the difference of its noise."""
    first, second = parts()["a"], parts(context=b"another run")["a"]
    assert is_uniform(first - second)
    keys = {name: identity.public_key for name, identity in IDENTITIES.items() if name != "d"}
    fewer = masked_part(STEPS[0] * STEP, STEP, "a", Signing(IDENTITIES["a"], keys), b"run")
    assert is_uniform(first - fewer)
    assert is_uniform(total([*[*parts().values()][:3], parts(context=b"x")["d"]]).view(np.uint64))
