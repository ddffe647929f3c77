"""The process of a Flower app: imports it, and calls its clients at the models that it is sent.

The interpreter of the app's environment runs this file, which imports nothing of Gossamer. What it is asked on stdin is
a line of JSON and, where that says ``bytes``, so many bytes: the model, one array behind the other. So are its answers.
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
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

_ROUND = ("server-round", "server_round")
_NO_EVALUATE = 4  # of a client without an ``evaluate``


class Failure(Exception):
    """One line on what an app has not, or does not do."""


class Asked(BaseException):
    """Leaves a server at its first question, whatever it catches; older ones ask in threads, which keep it."""


class FirstQuestion:
    """Nodes of a server that is stopped where it asks the first of them to train: it says from what and how."""

    run = SimpleNamespace(run_id=0)

    def __init__(self, client: Any, contexts: list[Any]) -> None:
        self._client, self._contexts, self.content = client, contexts, RecordDict()

    def get_node_ids(self) -> list[int]:
        """Ids of nodes, one for each partition."""
        return [one.node_id for one in self._contexts]

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> list[Any]:
        """Keep the first message by which a client is to train; a client gives what there is to start from."""
        for message in messages:
            kind = message.metadata.message_type
            if kind.startswith("train") or self.content:
                self.content = self.content or message.content
                raise Asked
            if kind != "get_parameters":
                raise Failure(f"its ServerApp asks clients to {kind} before they train, which no noise covers")
        return [self._client(message, self._contexts[0]) for message in messages]

    push_messages = send_and_receive


class App:
    """A loaded app: a context for each partition, whose state stays, and the first message that its server sends."""

    def __init__(self, request: dict[str, Any]) -> None:
        with suppress(ImportError):  # older versions ask nobody who they are when they make a message
            identity = import_module("flwr.supercore.task_identity").TaskIdentity
            identity.task_id = identity.run_id = identity.node_id = 1
        count, config = request["partitions"], request["config"]
        nodes = [{"partition-id": number, "num-partitions": count} for number in range(count)]
        self.contexts = [Context(0, 1 + n, node, RecordDict(), dict(config)) for n, node in enumerate(nodes)]
        self.trained, self.client = [0] * count, _client(_named(request["client"]))
        asked = FirstQuestion(self.client, self.contexts)
        with suppress(Asked):
            _server(request, self.client)(asked, Context(0, 0, {}, RecordDict(), dict(config)))
        self.content = asked.content
        records = [record for record in self.content.values() if isinstance(record, ArrayRecord)]
        if len(records) != 1:
            raise Failure(f"expected a model in the first message of its ServerApp, found {len(records)}")
        self.start = {name: array.numpy() for name, array in records[0].items()}
        self.trains = {name: array for name, array in self.start.items() if array.dtype.kind == "f"}
        self.dtype = max((array.dtype for array in self.trains.values()), default=np.dtype(np.float32))
        self.dtype = max(self.dtype, np.dtype(np.float32))

    def opened(self, folder: Path) -> tuple[dict[str, Any], bytes]:
        """Parts of the model and what it starts from, with a digest of what was imported from the app's folder."""
        files = {vars(module).get("__file__") or "/" for module in list(sys.modules.values())}
        own = sorted(file for file in files if Path(file).resolve().is_relative_to(folder))
        code = hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in own)).hexdigest()
        parts = [[name, list(array.shape)] for name, array in self.trains.items()]
        return {"parts": parts, "dtype": self.dtype.name, "code": code}, self._joined(self.start)

    def _joined(self, arrays: dict[str, Any]) -> bytes:
        return b"".join(arrays[name].astype(self.dtype).tobytes() for name in self.trains)

    def answered(self, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Train a client, or evaluate a model on its partition."""
        number, kind = request["partition"], request["do"]
        ends = np.cumsum([array.size for array in self.trains.values()])
        pieces = dict(zip(self.trains, np.split(np.frombuffer(body, self.dtype), ends[:-1]), strict=True))
        sent = {name: pieces.get(name, old).reshape(old.shape).astype(old.dtype) for name, old in self.start.items()}
        if kind == "train":
            self.trained[number] += 1
            _seed(f"{request['seed']} {number} {self.trained[number]}")
        content = RecordDict()
        for name, record in self.content.items():
            own = copy.deepcopy(record)
            own.update({key: max(1, self.trained[number]) for key in _ROUND if key in own})
            if isinstance(record, ArrayRecord):  # what is not trained is as it was at the start
                own = ArrayRecord({key: Array(array) for key, array in sent.items()})
            content[name if kind == "train" else name.replace("fitins.", "evaluateins.")] = own
        message = Message(content, dst_node_id=number + 1, message_type=kind, group_id="0")
        try:
            reply = self.client(message, self.contexts[number])
        except ValueError as error:
            if kind == "train" or not str(error).startswith("No evaluate function"):
                raise
            return _scores([]), b""
        status = [told for name, told in reply.content.config_records.items() if name.endswith(".status")]
        if status and status[0]["code"] not in (0, _NO_EVALUATE):
            raise Failure(f"its client failed: {status[0]['message']}")
        if kind == "evaluate":
            return _scores([*reply.content.metric_records.values(), *reply.content.config_records.values()]), b""
        return {}, self._joined(self._checked(list(reply.content.array_records.values())))

    def _checked(self, records: list[Any]) -> dict[str, Any]:
        """Arrays of an answer, which are those of the model."""
        arrays = {name: array.numpy() for record in records for name, array in record.items()}
        for name in {**self.start, **arrays}:
            wanted, found = (those[name].shape if name in those else "none" for those in (self.start, arrays))
            if wanted != found:
                raise Failure(f"its client is to return arrays as they came: {name} is {wanted}, found {found}")
        return arrays


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    found = import_module(module)
    if not hasattr(found, name):
        raise Failure(f"there is no {name!r} in {module}")
    return getattr(found, name)


def _client(found: Any) -> Any:
    if isinstance(found, ClientApp):
        return found
    kind = found if isinstance(found, type) else type(found)
    if issubclass(kind, Client | NumPyClient):
        return ClientApp(client_fn=lambda context: (found() if kind is found else found).to_client())
    if kind is found or not callable(found):
        raise Failure(f"expected a ClientApp, a client_fn, a NumPyClient or a Client, found {found!r}")
    return ClientApp(client_fn=found)


def _server(request: dict[str, Any], client: Any) -> Any:
    if request["server"]:
        return _named(request["server"])
    module = sys.modules[request["client"].partition(":")[0]]
    server = next((one for one in vars(module).values() if isinstance(one, ServerApp)), None)
    if server is None and getattr(client, "_call", True) is None:
        raise Failure("no ServerApp is beside it, to say what clients start from; give the project's folder")
    return server or ServerApp()  # which asks a client for what its get_parameters returns


def _scores(records: Any) -> dict[str, float]:
    """Loss, accuracy and number of examples among what an evaluation returned; no number where there is none."""
    figures = [(name, n) for record in records for name, n in record.items() if isinstance(n, int | float)]
    words = {"loss": "loss", "accuracy": "acc", "examples": "examples"}
    return {key: next((float(n) for name, n in figures if word in name), np.nan) for key, word in words.items()}


def _seed(text: str) -> None:
    random.seed(text)
    np.random.seed(random.getrandbits(32))  # noqa: NPY002  # an app may draw from it
    if torch := sys.modules.get("torch"):
        torch.manual_seed(random.getrandbits(32))


def _line(error: BaseException, folder: Path) -> str:
    """Words on what was raised, and where in the app."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)]
    where = f" ({Path(own[-1].filename).relative_to(folder)}, line {own[-1].lineno}, in {own[-1].name})" if own else ""
    return str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}{where}"


def main() -> NoReturn:
    """Answer until nothing more is asked."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what an app prints is no answer
    app, folder = None, Path()
    while line := asked.readline():
        request = json.loads(line)
        body = asked.read(request["bytes"])
        try:
            if app is None:
                folder = Path(request["folder"]).resolve()
                sys.path[0] = str(folder)  # in the place of this file's own
                app = App(request)
                told, vector = app.opened(folder)
            else:
                told, vector = app.answered(request, body)
        except BaseException as error:
            told, vector = {"error": _line(error, folder)}, b""
        answers.write(json.dumps({**told, "bytes": len(vector)}).encode() + b"\n" + vector)
        answers.flush()
    os._exit(0)  # whatever threads of a server are left


if __name__ == "__main__":
    main()
