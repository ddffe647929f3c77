"""The seed of sampling and noise: secret, and another one for every two runs that could be compared.

Two runs that share their noise give it away: the difference of what they release is the difference of their clipped
gradients, without any noise. So the seed depends on all that decides a gradient: the settings, the noise, the examples
themselves and who holds which, what files the settings name, the source of one's own module, name, version and source
of a distribution whose algorithm is run, the version of the library where there is a secret; and on what the run is
for, since an audit puts other examples in places of some. Two runs share their noise only if they are the same run.

All of that can be known to others, so the seed also depends on the run's `NoiseSecret`, which nobody else can. Only
noise that the spec wants reproducible follows from the spec's seed in its place, and such a run has no guarantee.

A seed that depends on examples tells nothing about them: it is never released, and noise from it is as good as from any
other.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from gossamer.algorithms.table import registered_as
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError, failing_as
from gossamer.experiment.preparation.prepare import NoiseSecret as NoiseSecret
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.specs.spec import Experiment, of_others
from gossamer.files import MOST_RECORDS, read_file
from gossamer.keys.private_files import IdentityError, read_private, write_private
from gossamer.randomness import derive, digest_of
from gossamer.version import __version__

REPRODUCIBLE = "0.1.0.dev0"
"""Stands in the version's place where nothing is secret: records of studies outlive a release that draws as before."""

# Every run with something to hide draws its own noise secret. Where results are written it is kept beside them, in a
# file that its owner alone may read, and nowhere else: not in the spec, the summary, the metrics, a trace or a message.
# It is needed to repeat the run's bytes, and for nothing else; whoever deletes it loses no more than that.

FILE = "noise_secret.json"
"""Its name in a results folder."""
_KNOWN = "count the run as one without a guarantee"  # a new secret would not be this run's


class KeptSecret(BaseModel, extra="forbid", strict=True, frozen=True):
    """A run's noise secret as its results folder keeps it.

    Attributes
    ----------
    noise_secret : str
        Secret of the run, in hexadecimal digits.
    run : str
        Mark of what it was drawn for, as `mark` has it: whether settings, examples and code are still the same shows in
        it.
    made_by : str
        ``run``, or what else made it, such as an ``audit``, whose examples are not only those of the spec.
    gossamer : str
        Version.
    tested : str
        Mark of the test examples; empty until it is known.
    name : str
        Name of the run, as its guarantee has it, which no other run of the same spec has; empty until it is known.
    """

    noise_secret: str = Field(pattern="^[0-9a-f]{32}$", repr=False)
    run: str = Field(pattern="^[0-9a-f]{32}$")
    made_by: str
    gossamer: str
    tested: str = Field("", pattern="^([0-9a-f]{32})?$")
    name: str = Field("", pattern="^([0-9a-f]{64})?$")

    @classmethod
    def of(cls, secret: NoiseSecret, run: str, made_by: str = "run", **more: str) -> KeptSecret:
        """The secret of a run that this version makes."""
        return cls(noise_secret=secret.value.hex(), run=run, made_by=made_by, gossamer=__version__, **more)

    @property
    def secret(self) -> NoiseSecret:
        """Secret of the run."""
        return NoiseSecret(bytes.fromhex(self.noise_secret))

    def write(self, folder: Path) -> None:
        """Write it to ``folder``, readable by nobody but this user (mode 0600) from its first moment on.

        Raises
        ------
        DataError
            If it cannot be written, or a secret is there already.
        """
        with failing_as(DataError, "", of=IdentityError):
            write_private(folder / FILE, (self.model_dump_json(indent=2) + "\n").encode(), what="noise secret")

    @classmethod
    def read(cls, folder: Path) -> KeptSecret:
        """The one in ``folder``.

        Raises
        ------
        DataError
            If there is none, others may use it, or it is malformed. No message has any of its content.
        """
        path = folder / FILE
        with failing_as(DataError, "", of=IdentityError):
            content = read_private(path, what="noise secret", known=_KNOWN)
        try:
            return cls.model_validate_json(content)
        except ValidationError:
            raise DataError(
                f"{path}: expected a noise secret as a run wrote it, found something else; nothing repeats it"
            ) from None


def mark(seed: int) -> str:
    """A text that tells a run's seed of noise from another's, and nothing of the seed itself."""
    return f"{derive(seed, 'mark of the run'):032x}"


def check_mark(folder: Path, found: str, expected: str) -> None:
    """Raise unless a run has the mark of the one in ``folder``.

    Raises
    ------
    DataError
        If it would be a release of its own.
    """
    if found != expected:
        raise DataError(
            f"{folder}: the spec, its data, or the files or the code that it names are not what they were, so this "
            "would be another run; bring them back, or run the spec as a new run"
        )


def secret_seed(
    prepared: Prepared, noise: Iterable[Mapping[str, Any]], purpose: str = "run", secret: NoiseSecret | None = None
) -> int:
    """The seed [128 bits] of a run's sampling and noise, which does not follow from the public one.

    Where files lie, how results are computed, who looks at them, how nodes are deployed and what they make for
    themselves after the run decide nothing.

    Parameters
    ----------
    prepared : Prepared
        Run, as it was prepared and planned.
    noise : iterable of mapping
        All that decides what noise is drawn, as plain data: `Plan.noise`.
    purpose : str
        Purpose that decides a gradient besides, such as the canaries of an audit.
    secret : NoiseSecret, optional
        Secret of the run. Without one the seed can be computed by whoever knows the rest: for noise that is to be
        reproducible, and for runs that have nothing to hide.
    """
    experiment = prepared.experiment
    content = experiment.model_dump(mode="json", exclude=_UNDECIDING)
    del content["privacy"]["noise_secret"]  # it says where the seed comes from, and decides no gradient
    content["algorithm"] |= experiment.algorithm.formerly  # settings that are gone change no run either
    settings = json.dumps([_deciding(content), list(noise)], sort_keys=True)
    parts = digest_of(_parts(prepared)).hex()
    if secret is None:
        return derive(experiment.seed, "secret", settings, parts, REPRODUCIBLE, purpose)
    return secret.derive(settings, parts, __version__, purpose)


def samples_seed(experiment: Experiment, purpose: str) -> int | None:
    """The seed of batches that runs which differ in their noise draw alike; None where each run draws its own.

    It follows from the spec's seed, so whoever knows the spec knows the batches. A run with something to hide never has
    such ones: that others do not know who was sampled is what amplification rests on.

    Parameters
    ----------
    experiment : Experiment
        The spec.
    purpose : str
        Purpose as for `secret_seed`: each of an audit's runs has batches of its own.
    """
    if experiment.secretive or not experiment.privacy.shared_samples:
        return None
    return derive(experiment.seed, "shared samples", purpose)


def chosen_secret(experiment: Experiment, given: NoiseSecret | None = None) -> NoiseSecret | None:
    """The secret of a run: a fresh one unless one is ``given``; None where there is nothing to hide.

    Raises
    ------
    SpecError
        If one is given and the run has no use for it.
    """
    if experiment.secretive:
        return NoiseSecret.fresh() if given is None else given
    if given is not None:
        raise SpecError(
            "a noise secret is for runs with noise that is not reproducible, found one for another; leave it out: the "
            "same spec gives the same bytes"
        )
    return None


_UNDECIDING = {"compute", "evaluation", "deployment", "personalisation", "about"}
"""Sections that decide no gradient."""


def _deciding(content: Any) -> Any:
    """Without paths, and without what is not set: so a setting that is new to the library changes no run without it."""
    if isinstance(content, dict):
        return {
            key: _deciding(value) for key, value in content.items() if value is not None and not key.endswith("path")
        }
    return content


def test_mark(prepared: Prepared, secret: NoiseSecret) -> str:
    """A text that tells a run's test examples, and what is released of them, from others.

    Without the secret nobody can tell whose it is.
    """
    parts = digest_of([*_split(prepared.dataset.test), *_released(prepared)])
    return mark(secret.derive("test examples", parts.hex()))


def _released(prepared: Prepared) -> Iterator[bytes]:
    """Grounds of a release of test examples beside them, if there is one: its settings, and whose they are."""
    data, settings = prepared.dataset, prepared.experiment.evaluation
    if settings.release is not None:
        yield json.dumps([settings.epsilon, settings.group]).encode()
        for whose in (data.test_owners, data.test_persons):
            yield b"" if whose is None else json.dumps(np.asarray(whose).tolist()).encode()


def _parts(prepared: Prepared) -> Iterator[bytes | memoryview]:
    """The examples, where they are, the files that settings name, and the code of others that decides gradients."""
    yield from _split(prepared.dataset.train)
    for shard in prepared.shards:
        yield np.ascontiguousarray(shard).tobytes()
    for section in ("speeds", "algorithm"):  # the examples' own files have been read: what counts is what was in them
        for path in _paths(getattr(prepared.experiment, section)):
            yield read_file(path, MOST_RECORDS) if path.is_file() else b""
    yield prepared.code or _source(prepared.experiment.objective.module)
    if frozen := getattr(prepared.objective, "frozen", None):  # of a network, whose code may read them from anywhere
        yield frozen.encode()
    if (found := registered_as(prepared.experiment.algorithm.name)) is not None:
        yield found.code.encode()
    for _, one in of_others(prepared.experiment):
        yield one.code.encode()


def _split(split: Split) -> Iterator[bytes | memoryview]:
    for array in split.arrays:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _paths(settings: BaseModel) -> Iterator[Path]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Path):
            yield value
        elif isinstance(value, BaseModel):
            yield from _paths(value)


def _source(module: str | None) -> bytes:
    if module is None:
        return b""
    try:
        return inspect.getsource(importlib.import_module(module.partition(":")[0])).encode()
    except (OSError, TypeError):  # no source, such as a compiled module
        return b""
