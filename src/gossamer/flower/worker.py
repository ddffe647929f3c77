"""The process of a Flower app: imports it, and calls its clients at the models that it is sent.

The interpreter of the app's environment runs this file, which imports nothing of Gossamer. What it is asked, on a pipe
whose descriptor it is told, is a line of JSON, and the model: one array behind the other. So are its answers.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict, get_project_config
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity

_NO_EVALUATE = 4  # status of a NumPyClient or Client without an ``evaluate``
_LONGEST_ERROR = 1000


class Failure(Exception):
    """One line on what an app has not, or does not do."""


class Asked(BaseException):
    """Leaves a server at its first question, whatever it catches.

    That of a ``server_fn`` asks in threads, which keep it, and so goes on until it has asked in all of its rounds.
    """


class App:
    """An app with a context for each partition, whose state stays.

    Its server sees it as the nodes, and is stopped where it asks the first of them to train: the message says from what
    and how.
    """

    run = SimpleNamespace(run_id=0)

    def __init__(self, reference: str, partitions: int, seed: int) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # who makes a message has to have them
        self.folder, client, server, config = _found(reference)
        sys.path[0] = str(self.folder)  # in the place of this file's own
        numbers = range(partitions)
        nodes = [{"partition-id": number, "num-partitions": partitions} for number in numbers]
        self.contexts = [Context(0, 1 + n, nodes[n], RecordDict(), dict(config)) for n in numbers]
        self.content, self.client = RecordDict(), _named(client)
        if not isinstance(self.client, ClientApp):
            self.client = ClientApp(client_fn=self.client)
        beside = [one for one in vars(sys.modules[client.partition(":")[0]]).values() if isinstance(one, ServerApp)]
        asking = _named(server) if server else [*beside, ServerApp()][0]
        self.seed = seed
        _seed(f"{seed}")
        with suppress(Asked):
            asking(self, Context(0, 0, {}, RecordDict(), dict(config)))
        if not self.content:
            raise Failure("its ServerApp asks no client to train; give a project's folder, or both in a file")
        self.start = _model(self.content, "its ServerApp is to send")
        self.trains = {name: array for name, array in sorted(self.start.items()) if array.dtype.kind == "f"}
        self.dtype = np.result_type(np.float32, *(array.dtype for array in self.trains.values()))

    def get_node_ids(self) -> list[int]:
        """Ids of nodes, one for each partition."""
        return [one.node_id for one in self.contexts]

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> list[Any]:
        """Keep the first message by which a client is to train; a client gives what there is to start from."""
        for message in messages:
            kind = message.metadata.message_type
            if kind.startswith("train") or self.content:
                self.content = self.content or message.content
                raise Asked
            if kind != "get_parameters":
                raise Failure(f"its ServerApp asks clients to {kind} before they train, which no noise covers")
        return [self.client(message, self.contexts[0]) for message in messages]

    push_messages = send_and_receive

    def opened(self) -> tuple[dict[str, Any], bytes]:
        """Parts of the model and what it starts from, with a digest of what was imported from the app's folder."""
        files = {vars(module).get("__file__") or "/" for module in list(sys.modules.values())}
        own = sorted(file for file in files if Path(file).resolve().is_relative_to(self.folder))
        code = hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in own)).hexdigest()
        parts = [[name, list(array.shape)] for name, array in self.trains.items()]
        return {"parts": parts, "dtype": self.dtype.name, "code": code}, self._joined(self.start)

    def _joined(self, arrays: dict[str, Any]) -> bytes:
        return b"".join(arrays[name].astype(self.dtype).tobytes() for name in self.trains)

    def answered(self, kind: str, number: int, turn: int, body: bytes) -> tuple[dict[str, Any], bytes]:
        """Train a client for the ``turn``-th time, or evaluate a model on its partition."""
        if kind == "train":
            _seed(f"{self.seed} {number} {turn}")
        content = self._content(kind, turn, np.frombuffer(body, self.dtype))
        message = Message(content, dst_node_id=number + 1, message_type=kind, group_id="0")
        try:
            reply = self.client(message, self.contexts[number]).content
        except ValueError as error:
            if not str(error).startswith("No evaluate function"):
                raise
            return {"scores": _scores([])}, b""
        failed = [told for name, told in reply.config_records.items() if name.endswith(".status") and told["code"]]
        if failed and failed[0]["code"] != _NO_EVALUATE:
            raise Failure(f"its client failed: {failed[0]['message']}")
        if kind == "evaluate":
            return {"scores": _scores([*reply.metric_records.values(), *reply.config_records.values()])}, b""
        arrays = _model(reply, "its client is to return")
        for name in {**self.start, **arrays}:
            wanted, found = (those[name].shape if name in those else "none" for those in (self.start, arrays))
            if wanted != found:
                raise Failure(f"its client is to return arrays as they came: {name} is {wanted}, found {found}")
        return {}, self._joined(arrays)

    def _content(self, kind: str, turn: int, vector: Any) -> RecordDict:
        """The server's message with another model; what is not trained is as it was at the start."""
        ends = np.cumsum([array.size for array in self.trains.values()])
        pieces = dict(zip(self.trains, np.split(vector, ends[:-1]), strict=True))
        sent = {name: pieces.get(name, old).reshape(old.shape).astype(old.dtype) for name, old in self.start.items()}
        content = RecordDict()
        for name, record in self.content.items():
            if isinstance(record, ArrayRecord):
                own = ArrayRecord({key: Array(array) for key, array in sent.items()})
            else:
                own = copy.deepcopy(record)
                own.update({key: turn for key in ("server-round", "server_round") if key in own})
            content[name if kind == "train" else name.replace("fitins.", "evaluateins.")] = own
        return content


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    found = vars(import_module(module)).get(name)
    if not callable(found):
        raise Failure(f"expected a ClientApp, a client_fn or a ServerApp as {name} in {module}, found {found!r}")
    return found


def _model(content: RecordDict, who: str) -> dict[str, Any]:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise Failure(f"{who} one model, an ArrayRecord, found {len(records)}")
    return {name: array.numpy() for name, array in records[0].items()}


def _scores(records: list[Any]) -> list[float]:
    """Loss, accuracy and number of examples among what an evaluation returned; no number where there is none."""
    figures = [(name, n) for record in records for name, n in record.items() if isinstance(n, int | float)]
    missing = {"loss": np.nan, "acc": np.nan, "examples": 1.0}
    return [next((float(n) for name, n in figures if word in name), none) for word, none in missing.items()]


def _seed(text: str) -> None:
    random.seed(text)
    np.random.seed(random.getrandbits(32))  # noqa: NPY002  # an app may draw from it
    if torch := sys.modules.get("torch"):
        torch.manual_seed(random.getrandbits(32))


def _found(reference: str) -> tuple[Path, str, str, dict[str, Any]]:
    """Folder, client, server ("" if there is none) and configuration of a project, or of ``FILE.py:NAME``."""
    place, _, name = reference.rpartition(":")
    if Path(place).is_file():
        return Path(place).resolve().parent, f"{Path(place).stem}:{name}", "", {}
    if not (Path(reference) / "pyproject.toml").is_file():
        raise Failure("expected a project's folder with pyproject.toml, or FILE.py:NAME of a file, found neither")
    told = get_project_config(reference)["tool"]["flwr"]["app"]
    names = told["components"]
    return Path(reference).resolve(), names["clientapp"], names["serverapp"], flatten_dict(told.get("config"))


def _line(error: BaseException) -> str:
    """Words on what was raised, and where."""
    if isinstance(error, Failure):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)  # all in there where this file is installed and no app was met
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f"{own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}"
    return f"{type(error).__name__}: {str(error)[:_LONGEST_ERROR]} ({where})"


def main() -> NoReturn:
    """Answer until nothing more is asked."""
    pipe = Connection(int(sys.argv.pop()))
    app: App | None = None
    with suppress(EOFError):
        while True:
            asked, body = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
            try:
                if app is None:
                    app = App(**asked)
                    told, vector = app.opened()
                else:
                    told, vector = app.answered(**asked, body=body)
            except BaseException as error:
                reason = "no such arrays" if isinstance(error, Failure) else type(error).__name__
                told, vector = {"error": _line(error), "reason": reason}, b""
            pipe.send_bytes(json.dumps(told).encode())
            pipe.send_bytes(vector)
    os._exit(0)  # whatever threads of a server are left


if __name__ == "__main__":
    main()
