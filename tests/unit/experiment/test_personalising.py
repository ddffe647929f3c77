"""Personal models: PyTorch's training on a node's own examples, and nothing of it in the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gossamer.errors import SpecError
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.results.personalisation import NOTE, personal_models
from gossamer.experiment.results.records import Result
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.vectors import pack

SETTINGS = {"steps": 7, "learning_rate": 0.05, "momentum": 0.5, "proximal": 0.1, "batch_size": 40}
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "algorithm": {"name": "fedavg", "nodes": 6, "rounds": 3},
    "privacy": {"clip": 0.5, "noise_multiplier": 1.0, "noise_secret": "reproducible"},
    "evaluation": "off",
    "seed": 3,
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "fedavg": SPEC["algorithm"],
    "fedbuff": {"name": "fedbuff", "nodes": 6, "updates_per_node": 3},
    "fedasync": {"name": "fedasync", "nodes": 6, "updates_per_node": 3},
    "gossip": {"name": "gossip", "nodes": 6, "updates_per_node": 3},
}


def prepared(**changes: Any) -> Prepared:
    return prepare(parse_spec({**SPEC, "personalisation": SETTINGS, **changes}))


def flat(result: Result, of: Prepared) -> np.ndarray:
    """The run's model."""
    return pack(result.model, of.objective.parts, of.objective.dtype)


def by_hand(of: Prepared, name: str, start: np.ndarray) -> np.ndarray:
    """A node's personal model [outputs, inputs and bias] by PyTorch, on passes of its own examples in batches of 40.

    Each pass is a permutation of all rows, by the public coins of the node.
    """
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    from gossamer.experiment.preparation.prepare import public_seed
    from gossamer.randomness import stream

    rows = of.shards[of.names.index(name)]
    coins = stream(public_seed(of.experiment), "personalisation", name)
    batches: list[np.ndarray] = []
    while len(batches) < 7:
        order = rows[coins.permutation(len(rows))]
        batches += [order[i : i + 40] for i in range(0, len(order), 40)]
    x = torch.tensor(of.dataset.train.features.reshape(len(of.dataset.train), -1), dtype=torch.float64)
    y = torch.tensor(of.dataset.train.targets)
    model = torch.nn.Linear(64, 10, dtype=torch.float64)
    torch.nn.utils.vector_to_parameters(torch.tensor(start, dtype=torch.float64), model.parameters())
    first = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for batch in batches[:7]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
        for parameter, before in zip(model.parameters(), first, strict=True):
            loss = loss + 0.1 / 2 * (parameter - before).square().sum()
        loss.backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def test_the_training_is_that_of_pytorch() -> None:
    of = prepared()
    assert [part.shape for part in of.objective.parts] == [(10, 64), (10,)]  # as in torch.nn.Linear
    start = np.random.default_rng(0).normal(size=of.objective.size).astype(of.objective.dtype)
    names = of.names[1:4]
    found = personal_models(of, of.experiment.personalisation, names, np.repeat(start[None], 3, axis=0))
    for name, model in zip(names, found, strict=True):
        np.testing.assert_allclose(model, by_hand(of, name, start), rtol=0, atol=2e-5)
        assert np.abs(model - start).max() > 0.01


def test_the_summary_has_the_figures_of_models_made_by_hand() -> None:
    """Of the run's model and of six personal ones, on all test examples and on those of the classes that a node has."""
    of, result = prepared(), run(parse_spec({**SPEC, "personalisation": SETTINGS}))
    said, final = result.summary["personalisation"], flat(result, of)
    models = [by_hand(of, name, final) for name in of.names]
    x, y = of.dataset.test.features.reshape(len(of.dataset.test), -1).astype(np.float64), of.dataset.test.targets
    for key, each in (("personal", models), ("final_model", [final] * 6)):
        plain, own, losses = [], [], []
        for model, shard in zip(each, of.shards, strict=True):
            logits = x @ model[:640].reshape(10, 64).T + model[640:]
            right = logits.argmax(axis=1) == y
            losses.append((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]).mean())
            plain.append(right.mean())
            # Each example of the node stands for the test examples of its class.
            own.append(np.mean([right[y == target].mean() for target in of.dataset.train.targets[shard]]))
        expected = {
            "test_accuracy": np.mean(plain),
            "worst_node_test_accuracy": min(plain),
            "own_classes_test_accuracy": np.mean(own),
            "worst_node_own_classes_test_accuracy": min(own),
            "test_loss": np.mean(losses),
            "worst_node_test_loss": max(losses),
        }
        assert said[key] == pytest.approx(expected, abs=1e-4)
    assert said["nodes"] == 6
    assert said["note"] == NOTE


def _unchained(text: bytes) -> dict[str, Any]:
    """A line of receipts, or a guarantee, but for what names the run and is chained to its name."""

    def unnamed(said: dict[str, Any]) -> dict[str, Any]:
        named = ("run", "chain", "head", "receipts", "guarantee")  # the last is the digest of a file that names it
        return {key: value for key, value in said.items() if key not in named}

    said: dict[str, Any] = json.loads(text, object_hook=unnamed)
    return said


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_run_is_the_same_without(algorithm: dict[str, Any], tmp_path: Path) -> None:
    """Every step of every node, all that is charged, the released model, the guarantee, and all other figures."""
    found = {}
    for name, more in (("without", {}), ("with", {"personalisation": SETTINGS})):
        spec = parse_spec({**SPEC, "algorithm": algorithm, **more})
        result = run(spec, tmp_path / name, trace=tmp_path / f"{name}.trace")
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for other in ("spec.yaml", "summary.json", "timing.json"):
            files.pop(other)
        chained = {"guarantee.json": _unchained(files.pop("guarantee.json"))}
        chained["receipts.jsonl"] = [*map(_unchained, files.pop("receipts.jsonl").splitlines())]
        summary = dict(result.summary)
        own = summary.pop("personalisation", None)
        found[name] = (files, chained, summary, result.guarantee, _steps(tmp_path / f"{name}.trace"))
        assert (own is None) == (not more)
    assert found["with"] == found["without"]
    assert set(load_file(tmp_path / "with" / "model.safetensors")) == {"weight", "bias"}


def _steps(trace: Path) -> list[Any]:
    from gossamer.protocol.trace import read_steps

    with trace.open("rb") as file:
        return list(read_steps(file))


def test_nodes_without_a_server_train_their_own_models_on() -> None:
    """Personal models of no step to speak of are the nodes' own, and not their mean."""
    tiny = {"steps": 1, "learning_rate": 1e-12}
    result = run(parse_spec({**SPEC, "algorithm": ALGORITHMS["gossip"], "personalisation": tiny}))
    said, metrics = result.summary["personalisation"], result.summary["metrics"]
    assert said["final_model"]["test_accuracy"] == pytest.approx(metrics["test_accuracy"])
    assert said["final_model"]["worst_node_test_accuracy"] == pytest.approx(metrics["worst_node_test_accuracy"])
    assert said["final_model"]["test_accuracy"] != pytest.approx(metrics["mean_model_test_accuracy"])
    assert said["personal"] == pytest.approx(said["final_model"])


def test_a_run_that_is_cut_trains_its_last_model_on() -> None:
    """Clients that never heard of the end have an older model; the run's is the server's."""
    tiny = {"steps": 1, "learning_rate": 1e-12}
    spec = {**SPEC, "algorithm": ALGORITHMS["fedbuff"], "stop": {"virtual_seconds": 7}, "personalisation": tiny}
    result = run(parse_spec(spec))
    of = result.summary["metrics"]["mean_model_test_accuracy"]
    assert result.summary["personalisation"]["personal"]["test_accuracy"] == pytest.approx(of)


def test_training_that_diverges_has_figures_or_none() -> None:
    result = run(parse_spec({**SPEC, "personalisation": {"steps": 50, "learning_rate": 1e6, "proximal": 1e6}}))
    found = result.summary["personalisation"]["personal"].values()
    assert all(value is None or np.isfinite(value) for value in found)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "personalisation.steps is missing"),
        ({"steps": 0}, "personalisation.steps: input should be greater than or equal to 1, found 0"),
        ({"steps": True}, "personalisation.steps: input should be a number, found true"),
        ({"steps": 3, "momentum": 1}, "personalisation.momentum: input should be less than 1, found 1"),
        ({"steps": 3, "learning_rate": float("inf")}, "personalisation.learning_rate: input should be a finite number"),
        ({"steps": 3, "epochs": 1}, "unknown key personalisation.epochs; expected one of batch_size, learning_rate"),
        ("on", "personalisation: expected keys with their values"),
    ],
)
def test_wrong_settings_get_one_line(settings: Any, expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec({**SPEC, "personalisation": settings})
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)
