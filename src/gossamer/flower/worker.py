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
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict, get_project_config
from flwr.serverapp import ServerApp

_NO_EVALUATE = 4  # status of an older client without an ``evaluate``


class Failure(Exception):
    """One line on what an app has not, or does not do."""


class Asked(BaseException):
    """Leaves a server at its first question, whatever it catches; older ones ask in threads, which keep it."""


class App:
    """An app with a context for each partition, whose state stays.

    Its server sees it as the nodes, and is stopped where it asks the first of them to train: the message says from what
    and how.
    """

    run = SimpleNamespace(run_id=0)

    def __init__(self, folder: Path, client: str, server: str | None, config: dict[str, Any], count: int) -> None:
        with suppress(ImportError):  # older versions ask nobody who they are when they make a message
            identity = import_module("flwr.supercore.task_identity").TaskIdentity
            identity.task_id = identity.run_id = identity.node_id = 1
        sys.path[0] = str(folder)  # in the place of this file's own
        nodes = [{"partition-id": number, "num-partitions": count} for number in range(count)]
        self.contexts = [Context(0, 1 + n, node, RecordDict(), dict(config)) for n, node in enumerate(nodes)]
        self.trained, self.content, self.client = [0] * count, RecordDict(), _named(client)
        if not isinstance(self.client, ClientApp):
            self.client = ClientApp(client_fn=self.client)
        beside = (one for one in vars(sys.modules[client.partition(":")[0]]).values() if isinstance(one, ServerApp))
        asking = _named(server) if server else next(beside, ServerApp())
        with suppress(Asked):
            asking(self, Context(0, 0, {}, RecordDict(), dict(config)))
        records = [record for record in self.content.values() if isinstance(record, ArrayRecord)]
        if len(records) != 1:
            raise Failure("its ServerApp asks no client to train one model; give a project's folder, or both in a file")
        self.start = {name: array.numpy() for name, array in records[0].items()}
        self.trains = {name: array for name, array in self.start.items() if array.dtype.kind == "f"}
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

    def opened(self, folder: Path) -> tuple[dict[str, Any], bytes]:
        """Parts of the model and what it starts from, with a digest of what was imported from the app's folder."""
        files = {vars(module).get("__file__") or "/" for module in list(sys.modules.values())}
        own = sorted(file for file in files if Path(file).resolve().is_relative_to(folder))
        code = hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in own)).hexdigest()
        parts = [[name, list(array.shape)] for name, array in self.trains.items()]
        return {"parts": parts, "dtype": self.dtype.name, "code": code}, self._joined(self.start)

    def _joined(self, arrays: dict[str, Any]) -> bytes:
        return b"".join(arrays[name].astype(self.dtype).tobytes() for name in self.trains)

    def answered(self, kind: str, number: int, seed: int, body: bytes) -> tuple[dict[str, Any], bytes]:
        """Train a client, or evaluate a model on its partition."""
        ends = np.cumsum([array.size for array in self.trains.values()])
        pieces = dict(zip(self.trains, np.split(np.frombuffer(body, self.dtype), ends[:-1]), strict=True))
        sent = {name: pieces.get(name, old).reshape(old.shape).astype(old.dtype) for name, old in self.start.items()}
        if kind == "train":
            self.trained[number] += 1
            _seed(f"{seed} {number} {self.trained[number]}")
        content = RecordDict()
        for name, record in self.content.items():
            own = copy.deepcopy(record)
            own.update({key: max(1, self.trained[number]) for key in ("server-round", "server_round") if key in own})
            if isinstance(record, ArrayRecord):  # what is not trained is as it was at the start
                own = ArrayRecord({key: Array(array) for key, array in sent.items()})
            content[name if kind == "train" else name.replace("fitins.", "evaluateins.")] = own
        try:
            message = Message(content, dst_node_id=number + 1, message_type=kind, group_id="0")
            reply = self.client(message, self.contexts[number]).content
        except ValueError as error:
            if not str(error).startswith("No evaluate function"):
                raise
            return _scores([]), b""
        for name, told in reply.config_records.items():
            if name.endswith(".status") and told["code"] == _NO_EVALUATE:
                return _scores([]), b""
            if name.endswith(".status") and told["code"]:
                raise Failure(f"its client failed: {told['message']}")
        if kind == "evaluate":
            return _scores([*reply.metric_records.values(), *reply.config_records.values()]), b""
        arrays = {name: array.numpy() for record in reply.array_records.values() for name, array in record.items()}
        for name in {**self.start, **arrays}:
            wanted, found = (those[name].shape if name in those else "none" for those in (self.start, arrays))
            if wanted != found:
                raise Failure(f"its client is to return arrays as they came: {name} is {wanted}, found {found}")
        return {}, self._joined(arrays)


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    found = vars(import_module(module)).get(name)
    if not callable(found):
        raise Failure(f"expected a ClientApp, a client_fn or a ServerApp as {name} in {module}, found {found!r}")
    return found


def _scores(records: list[Any]) -> dict[str, float]:
    """Loss, accuracy and number of examples among what an evaluation returned; no number where there is none."""
    figures = [(name, n) for record in records for name, n in record.items() if isinstance(n, int | float)]
    words = {"loss": "loss", "accuracy": "acc", "examples": "examples"}
    return {key: next((float(n) for name, n in figures if word in name), np.nan) for key, word in words.items()}


def _seed(text: str) -> None:
    random.seed(text)
    np.random.seed(random.getrandbits(32))  # noqa: NPY002  # an app may draw from it
    if torch := sys.modules.get("torch"):
        torch.manual_seed(random.getrandbits(32))


def _loaded(reference: str, partitions: int) -> tuple[App, Path]:
    """App of a project's folder, or of ``FILE.py:NAME``, and its folder."""
    place, _, name = reference.rpartition(":")
    if Path(place).is_file():
        folder = Path(place).resolve().parent
        return App(folder, f"{Path(place).stem}:{name}", None, {}, partitions), folder
    told, folder = get_project_config(reference)["tool"]["flwr"]["app"], Path(reference).resolve()
    names = told["components"]
    return App(folder, names["clientapp"], names["serverapp"], flatten_dict(told.get("config")), partitions), folder


def _line(error: BaseException) -> str:
    """Words on what was raised, and where."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    where = f" ({own[-1].filename}, line {own[-1].lineno}, in {own[-1].name})"
    return str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}{where}"


def main() -> NoReturn:
    """Answer until nothing more is asked."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what an app prints is no answer
    app: App | None = None
    while line := asked.readline():
        request = json.loads(line)
        body = asked.read(request.pop("bytes"))
        try:
            if app is None:
                app, folder = _loaded(**request)
                told, vector = app.opened(folder)
            else:
                told, vector = app.answered(**request, body=body)
        except BaseException as error:
            told, vector = {"error": _line(error)}, b""
        answers.write(json.dumps({**told, "bytes": len(vector)}).encode() + b"\n" + vector)
        answers.flush()
    os._exit(0)  # whatever threads of a server are left


if __name__ == "__main__":
    main()
