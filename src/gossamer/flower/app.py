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
import tomllib
from collections.abc import Iterator, Sequence
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
        A project's folder, whose ``pyproject.toml`` names its apps, or ``FILE.py:NAME`` of a ``ClientApp``, a
        ``client_fn``, a ``NumPyClient`` or a ``Client``.
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
    SpecError
        If there is no such app.
    ModelError
        If it cannot be imported, or says no model to start from.
    """

    l2 = 0.0

    def __init__(self, reference: str, partitions: int, python: str, seed: int, timeout: float) -> None:
        self._reference, self._python, self._seed, self._timeout = reference, python, seed, timeout
        self._partitions, self._late, self._tested = partitions, False, lru_cache(4)(self._test)
        asked = {**_components(reference), "do": "open", "partitions": partitions}
        own = {name: text for name, text in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        try:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env={"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", **own},
                start_new_session=True,  # whoever interrupts a run interrupts it, and not an answer
            )
        except OSError as error:
            self._said.close()
            raise SpecError(f"--python: {python} cannot be started: {error.strerror}; give an interpreter") from None
        told, vector = self._call(asked, b"", _LARGEST)
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
        guard = Timer(self._timeout, self._give_up)
        guard.start()
        try:
            self._process.stdin.write(json.dumps({**asked, "bytes": len(vector)}).encode() + b"\n" + vector)  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
            told = json.loads(self._process.stdout.readline(_LONGEST_LINE))  # type: ignore[union-attr]
            found = self._process.stdout.read(min(told["bytes"], most))  # type: ignore[union-attr]
        except (OSError, ValueError, TypeError, LookupError):
            self._fail(self._end())
        finally:
            guard.cancel()
        if "error" in told:
            self._fail(str(told["error"]))
        return told, found

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def _end(self) -> str:
        """Words on what became of a process that gives no answer."""
        if self._late:
            return f"its process gave no answer in {self._timeout:g} s; see what it waits for, or raise --timeout"
        status = self._process.wait(self._timeout)
        self._said.seek(0)
        last = (self._said.read().decode(errors="replace").split("\n") or [""])[-2:][0].strip()
        if "No module named 'flwr'" in last:
            return f"{self._python} has no flwr; give --python the interpreter of the app's environment"
        return f"its process ended with {status}: {last or 'nothing said'}"

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
        updates, not_finite = np.zeros((len(models), self.size), self.dtype), np.zeros(len(models), np.int64)
        for place, (model, training) in enumerate(zip(self.rows(models, len(trainings)), trainings, strict=True)):
            partition = int(data.targets[training.batches.examples[0]])
            asked = {"do": "train", "partition": partition, "seed": self._seed}
            vector = self._call(asked, model.tobytes(), model.nbytes)[1]
            with np.errstate(all="ignore"):
                updates[place] = np.frombuffer(vector, self.dtype) - model
            not_finite[place] = not np.isfinite(updates[place]).all()
        updates[not_finite > 0] = 0
        return LocalUpdates(updates, not_finite)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Means over partitions, by their numbers of examples where clients say these."""
        partitions = tuple(split.targets.tolist())
        found = [self._tested(model.tobytes(), partitions) for model in self.rows(models, len(models))]
        return Evaluation(*np.array(found).reshape(-1, 2).T)

    def _test(self, model: bytes, partitions: tuple[int, ...]) -> FloatArray:
        told = [self._call({"do": "evaluate", "partition": number}, model, 0)[0] for number in partitions]
        scores = np.array([[one["loss"], one["accuracy"], one["examples"]] for one in told], np.float64)
        mean: FloatArray = np.average(scores[:, :2], axis=0, weights=np.nan_to_num(scores[:, 2], nan=1.0))
        return mean


def _components(reference: str) -> dict[str, Any]:
    """Folder, names and configuration of an app."""
    file, _, name = reference.rpartition(":")
    if name and Path(file).is_file():
        return {"folder": str(Path(file).parent), "client": f"{Path(file).stem}:{name}", "server": None, "config": {}}
    try:
        told = tomllib.loads(Path(reference, "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]
        client, server = told["components"]["clientapp"], told["components"].get("serverapp")
        return {"folder": reference, "client": client, "server": server, "config": dict(_flat(told.get("config", {})))}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{reference}: expected the folder of a Flower project, whose pyproject.toml has tool.flwr.app.components."
            f"clientapp, or FILE.py:NAME, found neither ({type(error).__name__}: {error}); correct it"
        ) from None


def _flat(config: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of a nested configuration with dots, as Flower has them."""
    for key, value in config.items():
        yield from _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(before + key, value)]


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
