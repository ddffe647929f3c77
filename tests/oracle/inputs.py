"""What runs depend on, as text: inputs of the seed of noise, streams, encodings, states, files, words of guarantees.

Unlike hashes it is the same on every machine: computed numbers have four digits. Where it changes, runs with the same
seed have other noise, old stores do not open, or guarantees say something else.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.oracle.specs import HERE, SPECS

import gossamer
from gossamer import randomness
from gossamer.algorithms.plan import differing
from gossamer.deployment.party import side_file
from gossamer.errors import RunWarning
from gossamer.experiment import results_folder, secrets
from gossamer.experiment.nodes_and_sides import sides_of
from gossamer.experiment.noise_secret import NoiseSecret
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.reading import parse_spec
from gossamer.experiment.running import run_prepared
from gossamer.protocol import encoding
from gossamer.protocol.node import state_of
from gossamer.runtimes.storage import account as storage_account
from gossamer.runtimes.storage import store as storage

TEXT = HERE / "expected" / "inputs.txt"
CHEAP = (
    "gossip-bipartite",
    "gossip-lossy",
    "gossip-logistic",
    "gossip-l2-laplace-level",
    "gossip-own-module",
    "gossip-persons",
    "allreduce-quantile",
    "audp-drop",
    "asgd",
    "mapa-estimated",
    "increasing-sequential",
    "increasing-fixed-size",
    "increasing-parts",
    "increasing-aggregators",
    "graph-random",
    "graph-laplace",
    "graph-banded",
    "graph-walk",
    "graph-pairwise",
    "graph-secure-agent-noise",
)
"""Small specs that are planned and run in no time, and between them use every stream, state and law."""

_DRAWN = ("graph_regression",)  # data sets that are computed, and so differ in their last digits


class Planned(NamedTuple):
    """A small spec, with the plan of a run whose noise is reproducible."""

    spec: dict[str, Any]
    prepared: Prepared
    plan: Any


def text() -> str:
    """All of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        planned = {name: _planned(SPECS[name], "reproducible") for name in CHEAP}
        sections = {
            "version": [gossamer.__version__],
            "inputs of the noise seed": list(_noise_seeds(planned)),
            "streams": list(_streams(planned)),
            "encoded types and the order of their fields": _registry(),
            "fields of states, in order": list(_states(planned)),
            "files": list(_files()),
            "words of plans, guarantees and ledgers": list(_words(planned)),
        }
    return "\n".join(line for title, lines in sections.items() for line in [f"== {title}", *lines, ""])


def _planned(spec: dict[str, Any], noise: str) -> Planned:
    privacy = spec.get("privacy", {})
    given = {"mechanism": privacy} if isinstance(privacy, str) else privacy
    prepared = prepare(parse_spec({**spec, "evaluation": "off", "privacy": {**given, "noise_secret": noise}}))
    return Planned(spec, prepared, plan_run(prepared))


# The seed of noise


def _noise_seeds(planned: dict[str, Planned]) -> Iterator[str]:
    """What `secrets.secret_seed` hashes, with and without a noise secret."""
    for name, (_, prepared, plan) in planned.items():
        seed, label, settings, examples, *rest = _hashed(secrets, "derive", prepared, plan)
        assert _hashed(NoiseSecret, "derive", prepared, plan, NoiseSecret(bytes(16)))[1:] == (settings, examples, *rest)
        content, laws = json.loads(settings)
        assert settings == json.dumps([content, laws], sort_keys=True)
        known = prepared.dataset.name not in _DRAWN
        yield f"{name}: seed {seed}, {label!r}, examples {examples if known else 'drawn'}, {', '.join(map(repr, rest))}"
        for key, value in sorted(content.items()):
            yield f"  {key}: {json.dumps(rounded(value), sort_keys=True)}"
        for law, same in groupby(laws):
            yield f"  noise, {len(list(same))} times: {json.dumps(rounded(law), sort_keys=True)}"


def _hashed(where: Any, what: str, prepared: Prepared, plan: Any, secret: NoiseSecret | None = None) -> Any:
    found: list[Any] = []
    with patch.object(where, what, lambda *labels: found.append(labels) or 0):
        secrets.secret_seed(prepared, plan.noise, "run", secret)
    return found[0]


def rounded(value: Any) -> Any:
    """With four digits of each number that is not whole."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


# Streams


def _streams(planned: dict[str, Planned]) -> Iterator[str]:
    """The labels of every stream and derived seed that a run asks for, after that of its seed; no numbers of nodes."""
    for name, (spec, *_) in planned.items():
        with _listened() as heard:
            found = _planned(spec, "reproducible")
            run_prepared(found.prepared, found.plan, purpose="run")
        yield name
        yield from (f"  {line}" for line in sorted(heard))


@contextmanager
def _listened() -> Iterator[set[str]]:
    heard: set[str] = set()
    known: dict[int, str] = {}
    digest = randomness._digest

    def listening(size: int, seed: int, *labels: str | int) -> bytes:
        found = digest(size, seed, *labels)
        path = f"{known.get(seed, 'seed')}: {', '.join(map(_label, labels))}"
        heard.add(path)
        if labels[:1] == ("derive",):
            known[int.from_bytes(found, "little")] = str(labels[1])
        return found

    with patch.object(randomness, "_digest", listening):
        yield heard


def _label(label: str | int) -> str:
    if not isinstance(label, str):
        return "#"
    if label.startswith("[{"):
        return "<settings>"
    if label == gossamer.__version__:
        return "<version>"
    return "<examples>" if re.fullmatch("[0-9a-f]{32}", label) else repr(re.sub(r"\d+", "#", label))


# Encodings, states, files


def _registry() -> list[str]:
    """Of all modules, imported one by one; names of tests are left out."""
    for module in pkgutil.walk_packages(gossamer.__path__, "gossamer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    own = {name: cls for name, cls in encoding._TYPES.items() if cls.__module__.startswith("gossamer.")}
    return [f"{name}: {', '.join(encoding._FIELDS[cls])}" for name, cls in sorted(own.items())]


def _states(planned: dict[str, Planned]) -> Iterator[str]:
    seen = set[str]()
    for name, (_, prepared, plan) in planned.items():
        context = prepared.context(plan.mechanisms, plan.quotas)
        for node in prepared.algorithm.build(prepared.experiment.algorithm, context).values():
            state = ", ".join(f"{key} {type(value).__name__}" for key, value in state_of(node).items())
            line = f"{prepared.experiment.algorithm.name}, {node.name.partition('-')[0]}: {state}"
            if line not in seen:
                seen.add(line)
                yield f"{line} ({name})"


def _files() -> Iterator[str]:
    yield f"results: {', '.join(results_folder.FILES)}"
    for layout in (storage.FORMAT, storage_account.FORMAT, side_file.FORMAT):
        yield f"{layout.what}: {layout.identifier:08x}, version {layout.version}, pages of {layout.page_size}"
        yield from (f"  {' '.join(statement.split())}" for statement in layout.tables)


# Words


def _words(planned: dict[str, Planned]) -> Iterator[str]:
    """Each once, of runs with a noise secret; what is printed of a class by its name is among them."""
    seen = set[str]()
    for name, (spec, *_) in planned.items():
        _, prepared, plan = _planned(spec, "fresh")
        said: list[Any] = [str(plan), plan.describe(), plan.figures, *plan.noise, str(plan.guarantee)]
        said += [plan.describe_node(node) for node in prepared.names]
        said += [str(guarantee) for guarantee in differing(plan.guarantees).values()]
        said += [ledger.lines() for ledger in sides_of(prepared, plan, 1).ledgers]
        for line in _lines(said):
            if line not in seen:
                seen.add(line)
                yield f"{name}: {line}"


def _lines(said: Iterable[Any]) -> Iterator[str]:
    for item in said:
        plain = item if isinstance(item, str) else json.dumps(rounded(item), sort_keys=True)
        for line in plain.splitlines():
            yield re.sub(r"-?\d+\.\d+(e-?\d+)?|\d+e-?\d+", lambda number: f"{float(number[0]):.4g}", line.strip())
