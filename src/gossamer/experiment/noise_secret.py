"""The noise secret of a run: 128 random bits that its noise and its samples follow from.

Every run with something to hide draws its own. Where results are written it is kept beside them, in a file that its
owner alone may read, and nowhere else: not in the spec, the summary, the metrics, a trace or a message. It is needed to
repeat the run's bytes, and for nothing else; whoever deletes it loses no more than that.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import Any

from gossamer.errors import DataError, SpecError
from gossamer.keys.errors import IdentityError
from gossamer.keys.private_files import read_private, write_private
from gossamer.randomness import derive
from gossamer.version import __version__

FILE = "noise_secret.json"
"""Its name in a results folder."""
SECRET_BYTES = 16
_HEXADECIMAL = ("noise_secret", "run", "tested")
_KNOWN = "count the run as one without a guarantee"  # a new secret would not be this run's


@dataclass(frozen=True, slots=True)
class NoiseSecret:
    """128 bits that nobody else may know; they are not shown when printed.

    Attributes
    ----------
    value : bytes [16]
        The bits.

    Raises
    ------
    SpecError
        If they are not 16 bytes.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes) or len(self.value) != SECRET_BYTES:
            raise SpecError(
                f"a noise secret has {SECRET_BYTES} bytes, found something else; NoiseSecret.fresh() draws one"
            )

    @classmethod
    def fresh(cls) -> NoiseSecret:
        """A new one, from the operating system's randomness."""
        return cls(token_bytes(SECRET_BYTES))

    def derive(self, *labels: str) -> int:
        """A seed of 128 bits for one purpose: keyed BLAKE2b, so nobody without the secret can tell it from random bits.

        References
        ----------
        RFC 7693, section 2.9, keyed hashing.
        """
        message = json.dumps(labels).encode()  # keeps ("a", "b") and ("ab",) apart
        digest = hashlib.blake2b(message, key=self.value, digest_size=SECRET_BYTES, person=b"gossamer noise").digest()
        return int.from_bytes(digest, "little")


@dataclass(frozen=True)
class KeptSecret:
    """A run's noise secret as its results folder keeps it.

    Attributes
    ----------
    secret : NoiseSecret
        Of the run.
    run : str
        What it was drawn for, as `mark` has it: whether settings, examples and code are still the same shows in it.
    made_by : str
        ``run``, or what else made it, such as an ``audit``, whose examples are not only those of the spec.
    gossamer : str
        Version.
    tested : str
        Mark of the test examples; empty until it is known.
    """

    secret: NoiseSecret
    run: str
    made_by: str = "run"
    gossamer: str = __version__
    tested: str = ""

    def write(self, folder: Path) -> None:
        """Write it to ``folder``, readable by nobody but this user (mode 0600) from its first moment on.

        Raises
        ------
        DataError
            If it cannot be written, or a secret is there already.
        """
        content = {
            "noise_secret": self.secret.value.hex(),
            "run": self.run,
            "made_by": self.made_by,
            "gossamer": self.gossamer,
            "tested": self.tested,
        }
        try:
            write_private(folder / FILE, (json.dumps(content, indent=2) + "\n").encode(), what="noise secret")
        except IdentityError as error:
            raise DataError(str(error)) from None

    @classmethod
    def read(cls, folder: Path) -> KeptSecret:
        """The one in ``folder``.

        Raises
        ------
        DataError
            If there is none, others may use it, or it is malformed. No message has any of its content.
        """
        path = folder / FILE
        try:
            content: Any = json.loads(read_private(path, what="noise secret", known=_KNOWN))
        except IdentityError as error:
            raise DataError(str(error)) from None
        except (ValueError, RecursionError):  # no JSON, or no text, or nested without end
            content = None
        if not _sound(content):
            raise DataError(
                f"{path}: expected a noise secret as a run wrote it, found something else; nothing repeats it"
            )
        secret = NoiseSecret(bytes.fromhex(content["noise_secret"]))
        return cls(secret, content["run"], content["made_by"], content["gossamer"], content["tested"])


def _sound(content: Any) -> bool:
    if not isinstance(content, dict) or set(content) != {"noise_secret", "run", "made_by", "gossamer", "tested"}:
        return False
    if not all(isinstance(value, str) for value in content.values()):
        return False
    return all(
        re.fullmatch("[0-9a-f]{32}" if key != "tested" else "([0-9a-f]{32})?", value)
        for key, value in content.items()
        if key in _HEXADECIMAL
    )


def mark(seed: int) -> str:
    """A text that tells a run's seed of noise from another's, and nothing of the seed itself."""
    return f"{derive(seed, 'mark of the run'):032x}"
