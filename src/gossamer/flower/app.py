"""A Flower app as an objective: local training is a call of its client, in a process of its own.

So an algorithm of whole updates runs it as any other, and what leaves a client is charged, clipped and noised by its
data side. A partition of the app is one row of the data, and one node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing import Pipe
from pathlib import Path
from threading import Timer
from typing import Any, NoReturn

import numpy as np
from safetensors.numpy import save

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.data.memory import Data
from gossamer.data.partition import Natural
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import ModelError, SpecError
from gossamer.experiment.specs.spec import Experiment
from gossamer.files import refusals, words_beside
from gossamer.objectives.objective import Evaluation, Foreign, LocalUpdates, Objective, Training
from gossamer.vectors import Part, unpack

_LONGEST_LINE, _LARGEST = 1 << 20, 1 << 32
_OWN = ("local_steps", "local_epochs", "local_learning_rate", "local_momentum", "proximal", "batch_size", "weights")
"""Settings of a client's local training, which an app has itself."""
_BROUGHT = ("dataset", "partition", "objective", "personalisation")


class FlowerApp(Foreign):
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
    own : int, optional
        The partition that is trained on, of a party that has no other; by default that of the row it is asked for.

    Raises
    ------
    ModelError
        If there is no such app, it cannot be imported, or says no model to start from.
    """

    def __init__(
        self, reference: str, partitions: int, python: str, seed: int, timeout: float, own: int | None = None
    ) -> None:
        self._reference, self._partitions, self._own = reference, partitions, own
        self._python, self._timeout = python, timeout
        self._tested = lru_cache(4)(self._test)  # many clients have the server's model
        its_own = {name: text for name, text in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._pipe, its = Pipe()
        with its:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("worker.py")), str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[its.fileno()],
                env={"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", **its_own},
                start_new_session=True,  # whoever interrupts a run interrupts it, and not an answer
            )
        told, vector = self._call({"reference": reference, "partitions": partitions, "seed": seed})
        super().__init__(tuple(Part(name, tuple(shape)) for name, shape in told["parts"]), np.dtype(told["dtype"]))
        self.foreign = str(told["code"]).encode()
        self._start = np.frombuffer(vector, self.dtype)
        if not self.size or not np.isfinite(self._start).all():
            self._fail("the model that its clients start from has no floating-point numbers, or some are not finite")
        self.whose = f"the Flower app {Path(reference).resolve().name}"

    def _call(self, asked: dict[str, Any], vector: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Answer of the process, and the bytes after it: no more than those of the model that it was sent."""
        guard = Timer(self._timeout, self._kill)
        guard.start()
        try:
            self._pipe.send_bytes(json.dumps(asked).encode())
            self._pipe.send_bytes(vector)
            told = json.loads(self._pipe.recv_bytes(_LONGEST_LINE))
            found = self._pipe.recv_bytes(len(vector) or _LARGEST)
        except (OSError, EOFError, ValueError):
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").rstrip().rpartition("\n")[2]
            words = words_beside(__file__)["ended"]
            self._fail(words.format(seconds=self._timeout, last=last, python=self._python))
        except BaseException:  # such as Ctrl-C, after which nobody hears the answer
            self.close()
            raise
        finally:
            guard.cancel()
        if "error" in told:
            self._fail(told["error"])
        return told, found

    def _fail(self, line: str) -> NoReturn:
        self.close()
        raise ModelError(f"{self._reference}: {line}")

    def close(self) -> None:
        """End the process, and those that it started."""
        self._kill()
        self._process.wait()
        self._said.close()

    def _kill(self) -> None:
        if self._process.returncode is None:  # nobody has waited for it, so its number is still its own
            os.killpg(self._process.pid, signal.SIGKILL)

    @classmethod
    def of_party(
        cls, reference: str, python: str, timeout: float, agreed: Objective, number: int, parties: int
    ) -> FlowerApp:
        """The app of the party ``number`` of a federation, whose model is the one that all have ``agreed`` on.

        Raises
        ------
        ModelError
            If it is another one.
        """
        app = cls(reference, parties, python, 0, timeout, number)
        wanted, found = ([agreed.parts, agreed.dtype.name], [app.parts, app.dtype.name])
        if wanted != found:
            app._fail(f"expected the model that all start from, {wanted}, found {found}; take the app of this run")
        return app

    def data(self) -> Data:
        """A row for each partition, to train on, and to test on."""
        names = np.arange(self._partitions)
        rows = names[:, None]
        return Data(rows, names, owners=names, x_test=rows, y_test=names, labels=names.tolist())

    @property
    def start(self) -> bytes:
        """Arrays that all start from, as a safetensors file."""
        return save(unpack(self._start, self.parts))

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return self._start.copy()

    def local_training(self, models: FloatArray, data: Split, trainings: Sequence[Training]) -> LocalUpdates:
        """Models as clients return them, less those that they were sent; 0, and counted, what is not finite."""
        updates = np.zeros((len(models), self.size), self.dtype)
        for update, model, training in zip(updates, self.rows(models, len(trainings)), trainings, strict=True):
            number = int(data.targets[training.batches.examples[0]]) if self._own is None else self._own
            _, vector = self._call({"kind": "train", "number": number}, model.tobytes())
            with np.errstate(all="ignore"):
                update[:] = np.frombuffer(vector, self.dtype) - model
        not_finite = np.array([not np.isfinite(update).all() for update in updates], np.int64)
        updates[not_finite > 0] = 0
        return LocalUpdates(updates, not_finite)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Means over partitions, by their numbers of examples where clients say these."""
        partitions = tuple(split.targets.tolist())
        found = [self._tested(model.tobytes(), partitions) for model in self.rows(models, len(models))]
        return Evaluation(*np.array(found).reshape(-1, 2).T)

    def _test(self, model: bytes, partitions: tuple[int, ...]) -> FloatArray:
        told = [self._call({"kind": "evaluate", "number": number}, model)[0] for number in partitions]
        scores = np.array([one["scores"] for one in told])
        scores = scores[scores[:, 2] > 0]  # a client without examples has none
        return np.average(scores[:, :2], axis=0, weights=scores[:, 2]) if len(scores) else np.full(2, np.nan)


def settled(spec: Experiment) -> Experiment:
    """The spec of a run of an app.

    Raises
    ------
    SpecError
        If it is for an algorithm of other things than whole updates, or says what the app brings.
    """
    settings = spec.algorithm
    brought = [f"algorithm.{name}" for name in _OWN if name in settings.model_fields_set]
    brought += [name for name in _BROUGHT if getattr(spec, name) != Experiment.model_fields[name].default]
    rules = {
        "no whole updates": not isinstance(settings, ClientSettings),
        "examples": isinstance(settings, ClientSettings) and settings.stepwise,
        "brought": brought,
        "accuracy": spec.stop.accuracy is not None,
        "release": spec.evaluation.release is not None,
    }
    for line in refusals(__file__, rules, name=settings.name, brought=brought):
        raise SpecError(line)
    return spec.model_copy(update={"dataset": DatasetSettings(name=IN_MEMORY), "partition": Natural()})
