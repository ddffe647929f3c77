"""A Flower app as an objective: local training is a call of its client, in a process of its own.

So an algorithm of whole updates runs it as any other, and what leaves a client is charged, clipped and noised by its
data side. A partition of the app is one row of the data, and one node.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Timer
from typing import Any, NoReturn

import numpy as np

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.data.memory import Data
from gossamer.data.partition import Natural
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import ModelError, SpecError
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.objective import Clip, Evaluation, Gradients, IndexArray, LocalUpdates, Objective, Training
from gossamer.vectors import Part

_LONGEST_LINE, _LARGEST = 1 << 20, 1 << 32
_OWN = ("local_steps", "local_epochs", "local_learning_rate", "local_momentum", "proximal", "batch_size", "weights")
"""Settings of a client's local training, which an app has itself."""
_BROUGHT = ("dataset", "partition", "objective", "personalisation")


class FlowerApp(Objective):
    """The clients of a Flower app, of which nothing is known but what they return.

    Parameters
    ----------
    reference : str
        A project's folder, whose ``pyproject.toml`` names its apps, or ``FILE.py:NAME`` of a ``ClientApp`` or a
        ``client_fn``.
    partitions : int
        Number of partitions.
    python : str
        Interpreter of the environment that has ``flwr`` and what the app imports.
    seed : int
        Seed of the global generators that the app may draw from, set anew before each training.
    timeout : float
        Most seconds for an answer.

    Raises
    ------
    ModelError
        If there is no such app, it cannot be imported, or says no model to start from.
    """

    l2 = 0.0

    def __init__(self, reference: str, partitions: int, python: str, seed: int, timeout: float) -> None:
        self._reference, self._partitions, self._seed, self._timeout = reference, partitions, seed, timeout
        self._python, self._tested = python, lru_cache(4)(self._test)
        own = {name: text for name, text in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", **own},
            start_new_session=True,  # whoever interrupts a run interrupts it, and not an answer
        )
        told, vector = self._call({"reference": reference, "partitions": partitions}, b"", _LARGEST)
        self.dtype, self.foreign = np.dtype(told["dtype"]), str(told["code"]).encode()
        self.parts = tuple(Part(name, tuple(shape)) for name, shape in told["parts"])
        self.size = sum(math.prod(part.shape) for part in self.parts)
        self._start = np.frombuffer(vector, self.dtype)
        if not self.size or not np.isfinite(self._start).all():
            self._fail("the model that its clients start from has no numbers, or some that are not finite")
        self.assumptions = (
            f"code of the Flower app {reference} is not Gossamer's: an update of it is clipped as a whole, so what is "
            "protected is a whole client and no example of it; what a client returns besides, such as metrics and its "
            "number of examples, is dropped; a client computes on its own partition alone, and what all start from is "
            "of none; its process holds no key of a ledger, and is trusted to send nothing itself",
        )

    def _call(self, asked: dict[str, Any], vector: bytes, most: int) -> tuple[dict[str, Any], bytes]:
        """Answer of the process, and the bytes after it: ``most`` at most."""
        sent, came = self._process.stdin, self._process.stdout
        assert sent is not None
        assert came is not None
        guard = Timer(self._timeout, self._process.kill)
        guard.start()
        try:
            sent.write(json.dumps({**asked, "bytes": len(vector)}).encode() + b"\n" + vector)
            sent.flush()
            told = json.loads(came.readline(_LONGEST_LINE))
            found = came.read(max(0, min(told["bytes"], most)))
        except (OSError, ValueError, TypeError, LookupError):
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").rstrip().rpartition("\n")[2]
            self._fail(
                f"its process ended, or gave no answer in {self._timeout:g} s, after {last!r}; see that {self._python} "
                "has flwr and what the app imports (--python), and enough time (--timeout)"
            )
        finally:
            guard.cancel()
        if "error" in told:
            self._fail(str(told["error"]))
        return told, found

    def _fail(self, line: str) -> NoReturn:
        self.close()
        raise ModelError(f"{self._reference}: {line}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def data(self) -> Data:
        """A row for each partition, to train on, and to test on."""
        names = np.arange(self._partitions)
        rows = names[:, None]
        return Data(rows, names, owners=names, x_test=rows, y_test=names, labels=names.tolist())

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return self._start.copy()

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        raise ModelError(f"{self._reference}: a Flower app has no gradients of examples, and only whole updates")

    def local_training(self, models: FloatArray, data: Split, trainings: Sequence[Training]) -> LocalUpdates:
        """Models as clients return them, less those that they were sent; 0, and counted, what is not finite."""
        updates = np.zeros((len(models), self.size), self.dtype)
        for update, model, training in zip(updates, self.rows(models, len(trainings)), trainings, strict=True):
            number = int(data.targets[training.batches.examples[0]])
            vector = self._asked("train", number, model.tobytes(), model.nbytes)[1]
            with np.errstate(all="ignore"):
                update[:] = np.frombuffer(vector, self.dtype) - model
        not_finite = np.array([not np.isfinite(update).all() for update in updates], np.int64)
        return LocalUpdates(np.where(not_finite[:, None], 0, updates), not_finite)

    def _asked(self, kind: str, number: int, model: bytes, most: int) -> tuple[dict[str, Any], bytes]:
        return self._call({"kind": kind, "number": number, "seed": self._seed}, model, most)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Means over partitions, by their numbers of examples where clients say these."""
        partitions = tuple(split.targets.tolist())
        found = [self._tested(model.tobytes(), partitions) for model in self.rows(models, len(models))]
        return Evaluation(*np.array(found).reshape(-1, 2).T)

    def _test(self, model: bytes, partitions: tuple[int, ...]) -> FloatArray:
        told = [self._asked("evaluate", number, model, 0)[0] for number in partitions]
        scores = np.array([[one["loss"], one["accuracy"], one["examples"]] for one in told], np.float64)
        mean: FloatArray = np.average(scores[:, :2], axis=0, weights=np.nan_to_num(scores[:, 2], nan=1.0))
        return mean


def settled(spec: Experiment) -> Experiment:
    """The spec of a run of an app.

    Raises
    ------
    SpecError
        If it is for an algorithm of other things than whole updates, or says what the app brings.
    """
    settings = spec.algorithm
    if not isinstance(settings, ClientSettings) or settings.stepwise:
        found = f"{settings.name}{' with privacy_unit: example' if isinstance(settings, ClientSettings) else ''}"
        raise SpecError(
            "algorithm: of a Flower app only whole updates can be clipped, so it runs by fedavg, fedasync or fedbuff "
            f"and protects whole clients, found {found}; choose one of these, without privacy_unit: example"
        )
    said = [f"algorithm.{name}" for name in _OWN if name in settings.model_fields_set]
    said += [name for name in _BROUGHT if getattr(spec, name) != Experiment.model_fields[name].default]
    if said:
        raise SpecError(f"{said[0]}: the app brings its own data, model and training; leave it out")
    return spec.model_copy(update={"dataset": DatasetSettings(name=IN_MEMORY), "partition": Natural()})
