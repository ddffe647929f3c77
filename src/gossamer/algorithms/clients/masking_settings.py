"""Settings by which clients hide their updates from their server, and share the noise of a sum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from gossamer.algorithms.masking_settings import SecureSums
from gossamer.section import NEWER, bare


class Masking(SecureSums):
    """Settings of masks among the clients of a round.

    Attributes
    ----------
    name : {"none", "secure"}
        ``secure``: a server that hands on its clients' keys learns exact sums of updates made at one model, with the
        noise that all clients in them have added.
    bits : {32, 64}
        Of ``secure``: updates are added as integers of so many bits.
    threshold : int, optional
        Of ``secure``: how many clients have to answer for a sum to be unmasked, more than half of those of a round. By
        default two thirds of them, rounded up.
    minimum : int, optional
        Of ``secure``: fewest updates in a sum, at least the threshold. By default the threshold.
    fraction_bits : int, optional
        Of ``secure``: binary digits after the point. By default as many as the clip, the clients and the bits allow.
    honest : float, optional
        Of ``secure``: the share of the clients of every round that is trusted to add its noise and to tell nobody.
        Left out, nobody is: of a sum's noise what each client added itself counts for it, and no more.
    """

    secure: ClassVar[tuple[str, ...]] = (*SecureSums.secure, "honest")

    name: Literal["none", "secure"] = "none"
    honest: float | None = Field(default=None, gt=0, le=1)

    def colluders(self, clients: int) -> int:
        """c: how many of so many clients of a round are not trusted, at most."""
        # 0.9 of 10 is 9, whatever the last bits of the product are.
        return clients - 1 if self.honest is None else clients - math.ceil(round(self.honest * clients, 9))

    def counted(self, clients: int) -> int:
        """h: how many honest clients' noise every sum has for certain, as `wrong` allows it; 1 is each client's own."""
        return 1 if self.honest is None else self._minimum(clients) - self.colluders(clients)

    def remarks(self, clients: int) -> list[str]:
        """Remarks on a guarantee that counts the noise of honest clients, a line each."""
        if self.honest is None or self.honest == 1 or self.colluders(clients):
            return []
        return [
            f"masking.honest {self.honest:g} of the {clients} clients of a round, rounded up, is all {clients}: where "
            "one of them works together with the server, no more is proved than by a client's own noise; take more "
            "clients in a round, or say a lower share"
        ]

    def wrong(self, clients: int) -> Iterator[str]:
        """Numbers that do not fit rounds of so many clients, a line each."""
        threshold = self._threshold(clients)
        if clients < 2:
            yield f"algorithm.masking: masks need 2 clients or more in a round to hide among, found {clients}"
        elif not clients < 2 * threshold <= 2 * clients:
            yield (
                f"algorithm.masking.threshold: expected more than half of the {clients} clients of a round, and no "
                f"more than all, found {threshold}"
            )
        elif not threshold <= self._minimum(clients) <= clients:
            yield (
                f"algorithm.masking.minimum: expected the threshold {threshold} to the {clients} clients of a round, "
                f"found {self._minimum(clients)}"
            )
        elif self.honest is not None and self.colluders(clients) >= 2 * threshold - clients:
            yield (
                f"algorithm.masking.honest: with {self.honest:g} of {clients} clients honest {self.colluders(clients)} "
                f"may work together with the server, and masks with a threshold of {threshold} hold against "
                f"{2 * threshold - clients - 1} at most; raise honest or the threshold, or leave honest out"
            )

    def _threshold(self, clients: int) -> int:
        return self.threshold or -(-2 * clients // 3)

    def _minimum(self, clients: int) -> int:
        return self.minimum or self._threshold(clients)


def _none_is_unset(masking: Masking | None) -> Masking | None:
    return None if masking is None or masking.name == "none" else masking


Masks = Annotated[Masking | None, bare("name"), AfterValidator(_none_is_unset), NEWER]
"""A name, or a mapping with a ``name``; None is ``none``."""
