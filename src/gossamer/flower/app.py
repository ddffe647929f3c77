"""A Flower app as an objective: local training is a call of its client, in a process of its own.

So an algorithm of whole updates runs it as any other, and what leaves a client is charged, clipped and noised by its
data side. A partition of the app is one row of the data, and one node.

One client's fault is no end of a run: its update is 0, noised and charged as others are, and counted by reason.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from multiprocessing import Pipe
from pathlib import Path
from threading import Timer
from typing import Any, NoReturn

import numpy as np
from safetensors.numpy import save

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.data.memory import Data
from gossamer.data.partition import Natural
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import ModelError, RunWarning, SpecError
from gossamer.experiment.specs.spec import Experiment, asked_of_foreign
from gossamer.files import refusals, words_beside
from gossamer.objectives.objective import Evaluation, Foreign, LocalUpdates, Objective, Training
from gossamer.vectors import Part, unpack

_LONGEST_LINE, _LARGEST = 1 << 20, 1 << 32
_BROUGHT = ("dataset", "partition", "objective", "personalisation")
_COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
_WORDS = words_beside(__file__)


class Fault(Exception):
    """Something of a client in the place of its answer: a reason, and a line on it."""


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
        self._python, self._timeout, self._seed = python, timeout, seed
        self._tested = lru_cache(4)(self._test)  # many clients have the server's model
        self._trainings, self._first = Counter[int](), dict[int, tuple[bytes, FloatArray]]()
        self.whose = f"the Flower app {Path(reference).resolve().name}"
        self.faults: dict[str, Counter[str]] = {}
        try:
            self._told, vector = self._open()
        except Fault as fault:
            self._fail(fault.args[1])
        parts, dtype, code = (self._told[name] for name in ("parts", "dtype", "code"))
        super().__init__(tuple(Part(name, tuple(shape)) for name, shape in parts), np.dtype(dtype))
        self.foreign = str(code).encode()
        self._start = np.frombuffer(vector, self.dtype)
        if not self.size or not np.isfinite(self._start).all():
            self._fail("the model that its clients start from has no floating-point numbers, or some are not finite")

    def _open(self) -> tuple[dict[str, Any], bytes]:
        """Start the process; its first answer is of the model that its clients start from."""
        its_own = {name: text for name, text in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._pipe, its = Pipe()
        with its:
            self._process = subprocess.Popen(
                [self._python, str(Path(__file__).with_name("worker.py")), str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[its.fileno()],
                env={"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", **its_own},
                start_new_session=True,  # whoever interrupts a run interrupts it, and not an answer
            )
        return self._exchange({"reference": self._reference, "partitions": self._partitions, "seed": self._seed})

    def _call(self, kind: str, number: int, model: bytes) -> tuple[dict[str, Any], bytes]:
        """Answer of a client. A process that has ended is started anew, without what its clients remembered.

        What all started from stays: a server that draws it without a seed draws another.
        """
        if self._process.returncode is not None and self._open()[0] != self._told:
            self._fail("its files are others than when the run began; run it anew")
        return self._exchange({"kind": kind, "number": number, "turn": max(1, self._trainings[number])}, model)

    def _exchange(self, asked: dict[str, Any], vector: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Answer of the process, and the bytes after it: no more than those of the model that it was sent."""
        guard, began = Timer(self._timeout, self._kill), time.monotonic()
        guard.start()
        try:
            self._pipe.send_bytes(json.dumps(asked).encode())
            self._pipe.send_bytes(vector)
            told = json.loads(self._pipe.recv_bytes(_LONGEST_LINE))
            found = self._pipe.recv_bytes(len(vector) or _LARGEST)
        except (OSError, EOFError, ValueError):
            reason = "ended" if time.monotonic() < began + self._timeout else "no answer in time"
            self._said.seek(0)
            last = _COLOURS.sub("", self._said.read().decode(errors="replace")).rstrip().rpartition("\n")[2]
            self.close()
            raise Fault(
                reason, _WORDS["ends"][reason].format(seconds=self._timeout, last=last, python=self._python)
            ) from None
        except BaseException:  # such as Ctrl-C, after which nobody hears the answer
            self.close()
            raise
        finally:
            guard.cancel()
        if "error" in told:
            if "reference" in asked:  # what has not begun can answer nothing
                self.close()
            raise Fault(told["reason"], told["error"])
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
            # What has left the group may hold the other end, for as long as it likes.
            with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as ours:
                ours.shutdown(socket.SHUT_RDWR)

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

    def tried(self) -> None:
        line = ""
        for number in range(self._partitions) if self._own is None else [self._own]:
            update, line = self._answer("train", number, self._start)
            self._first[number] = self._start.tobytes(), update  # kept for when it is asked, as it is no other answer
            if not line:
                return
        self._fail(_WORDS["nobody"].format(line=line))

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
            sent, first = self._first.pop(number, (b"", update))
            update[:] = first if sent == model.tobytes() else self._answer("train", number, model)[0]
        return LocalUpdates(updates, np.zeros(len(models), np.int64))

    def _answer(self, kind: str, number: int, model: FloatArray) -> tuple[FloatArray, str]:
        """Update or scores of a client, and what was wrong with its answer if these are none."""
        self._trainings[number] += kind == "train"
        try:
            told, vector = self._call(kind, number, model.tobytes())
            if kind == "evaluate":
                return np.array(told["scores"]), ""
            with np.errstate(all="ignore"):
                update = np.frombuffer(vector, self.dtype) - model
            if np.isfinite(update).all():
                return update, ""
            reason, line = "not finite", "what it returned is not finite"
        except Fault as fault:
            reason, line = fault.args
        counts = self.faults.setdefault(f"partition {number}", Counter())
        counts[f"{kind}: {reason}"] += 1
        if counts[f"{kind}: {reason}"] == 1:
            warnings.warn(
                _WORDS["faults"][kind].format(whose=self.whose, number=number, line=line), RunWarning, stacklevel=2
            )
        return np.array([0.0, 0.0, 0.0]) if kind == "evaluate" else np.zeros(self.size, self.dtype), line

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Means over partitions, by their numbers of examples where clients say these."""
        partitions = tuple(split.targets.tolist())
        found = [self._tested(model.tobytes(), partitions) for model in self.rows(models, len(models))]
        return Evaluation(*np.array(found).reshape(-1, 2).T)

    def _test(self, model: bytes, partitions: tuple[int, ...]) -> FloatArray:
        vector = np.frombuffer(model, self.dtype)
        scores = np.array([self._answer("evaluate", number, vector)[0] for number in partitions])
        scores = scores[scores[:, 2] > 0]  # a client without examples has none
        return np.average(scores[:, :2], axis=0, weights=scores[:, 2]) if len(scores) else np.full(2, np.nan)


def settled(spec: Experiment) -> Experiment:
    """The spec of a run of an app.

    Raises
    ------
    SpecError
        If it is for an algorithm of other things than whole updates, or says what the app brings.
    """
    brought = ["algorithm.weights"] if "weights" in spec.algorithm.model_fields_set else []
    brought += [name for name in _BROUGHT if getattr(spec, name) != Experiment.model_fields[name].default]
    rules = {
        "brought": brought,
        "accuracy": spec.stop.accuracy is not None,
        "release": spec.evaluation.release is not None,
    }
    for line in [*asked_of_foreign(spec), *refusals(__file__, rules, brought=brought)]:
        raise SpecError(line)
    return spec.model_copy(update={"dataset": DatasetSettings(name=IN_MEMORY), "partition": Natural()})
