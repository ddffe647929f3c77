"""Attacks on noise: nobody who knows the spec with its seed, and all records but one, draws a run's noise again."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer import philox
from gossamer.cli import main
from gossamer.experiment.preparation.secrets import KeptSecret, secret_seed
from gossamer.experiment.runs import running
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.sides.machine import Side
from gossamer.sides.pool import Pool
from gossamer.sides.sums import DrawnTurns
from gossamer.sides.window import GradientTerms
from gossamer.vectors import Masked, Released

pytestmark = pytest.mark.usefixtures("quiet")

RECORDS = 40
TRIALS = 40
MOST = 34
"""Of 40 guesses. Each is right with a probability of at most e^0.1/(1 + e^0.1) + 1e-5 < 0.525, which is what epsilon
0.1 leaves; 35 of 40 or more are then right with probability 3e-6."""

SPEC: dict[str, Any] = {
    "objective": "logistic",
    "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 8, "updates_per_node": 2, "topology": "line"},
    "budget": {"epsilon": 0.1, "delta": 1e-5},
    "evaluation": "off",
}


def worlds(folder: Path) -> list[dict[str, Any]]:
    """The same spec on two files that differ in one training record, whose last feature is turned around."""
    generator = np.random.default_rng(0)
    rows, labels = generator.standard_normal((RECORDS, 4)), np.arange(RECORDS) % 2
    found = []
    for world in range(2):
        path = folder / f"world-{world}.npz"
        changed = rows.copy()
        changed[3] = (-1) ** world * 10.0
        np.savez(path, train_features=changed, train_targets=labels, test_features=rows, test_targets=labels)
        found.append({**SPEC, "dataset": {"name": "mine", "path": str(path)}})
    return found


def published(spec: dict[str, Any], **more: Any) -> Any:
    """The model that a run of ``spec`` publishes."""
    return np.concatenate([part.ravel() for part in gs.run(parse_spec(spec), **more).model.values()])


ATTACKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "runs the spec": published,
    "takes the noise from the seed": lambda spec: published(reproducible(spec)),
    "takes the seed for the secret": lambda spec: published(spec, secret=gs.NoiseSecret(bytes(16))),
}


def reproducible(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "privacy": {**spec.get("privacy", {}), "noise_secret": "reproducible"}}


def right(models: list[Any], guessed: list[Any], coins: Any) -> int:
    """Number of the models that lie nearest to what the attacker computed for their world."""
    guesses = [np.argmin([np.linalg.norm(model - guess) for guess in guessed]) for model in models]
    return int(np.sum(coins == guesses))


@pytest.mark.usefixtures("real_secrets")
def test_whoever_knows_all_but_one_record_tells_worlds_apart_by_chance(tmp_path: Path) -> None:
    """40 models, each of a world that a coin chose. Where noise followed from the seed, all 40 were told."""
    specs, coins = worlds(tmp_path), np.random.default_rng(1).integers(2, size=TRIALS)
    models = [published(specs[coin]) for coin in coins]
    found = {name: right(models, [attack(spec) for spec in specs], coins) for name, attack in ATTACKERS.items()}
    assert max(found.values()) <= MOST, found


def test_the_attack_works_where_noise_can_be_drawn_again(tmp_path: Path) -> None:
    """On reproducible noise, which therefore has no guarantee; and for whoever has read the secret."""
    specs, coins = worlds(tmp_path), np.random.default_rng(2).integers(2, size=10)
    models = [published(reproducible(specs[coin])) for coin in coins]
    assert right(models, [published(reproducible(spec)) for spec in specs], coins) == 10
    secrets = [gs.NoiseSecret.fresh() for _ in coins]
    known = [published(specs[coin], secret=secret) for coin, secret in zip(coins, secrets, strict=True)]
    guesses = [[published(spec, secret=secret) for spec in specs] for secret in secrets]
    assert sum(right([model], guess, coin) for model, guess, coin in zip(known, guesses, coins, strict=True)) == 10


# Other mechanisms, samplings and algorithms

NOISY = {"noise_multiplier": 1e4, "clip": 1.0}
LAPLACE = {"mechanism": "l2_laplace", "epsilon": 1e-3, "clip": 1.0}
NODES: dict[str, Any] = {"nodes": 2, "batch_size": 60, "updates_per_node": 2}
EDGES: dict[str, Any] = {"nodes": 2, "batch_size": 60}
UNITS: dict[str, Any] = {"units": 2, "agents": 3, "local_steps": 2, "batch_size": 30, "rounds": 2}
SERVERS = {"standard_deviation": 1e4, "clip": 1.0}
RUNS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": {"name": "gossip", **NODES}, "privacy": NOISY},
    "gossip, fixed size": {"algorithm": {"name": "gossip", **NODES}, "privacy": {**NOISY, "sampling": "fixed_size"}},
    "gossip, L2-Laplace": {"algorithm": {"name": "gossip", **NODES}, "privacy": LAPLACE},
    "allreduce": {"algorithm": {"name": "allreduce", **NODES}, "privacy": NOISY},
    "audp, quantile": {"algorithm": {"name": "audp", **EDGES}, "privacy": {"noise_multiplier": 100.0}},
    "audp, a paper's noise": {"algorithm": {"name": "audp", **EDGES}, "privacy": {**LAPLACE, "norm": "exponential"}},
    "mapa": {"algorithm": {"name": "mapa", **EDGES}, "privacy": {"noise_multiplier": 1e4}},
    "increasing": {"algorithm": {"name": "increasing", "nodes": 2, "gradients": 400}, "privacy": NOISY},
    "increasing, sequential": {
        "algorithm": {"name": "increasing", "nodes": 2, "gradients": 400, "round_update": "sequential"},
        "privacy": NOISY,
    },
    "units, hidden": {"algorithm": {**UNITS, "gradient_at": "hidden"}, "privacy": SERVERS},
    "units, correlated": {"algorithm": {**UNITS, "temporal": "random_walk"}, "privacy": SERVERS},
    "units, Laplace": {"algorithm": UNITS, "privacy": {**SERVERS, "mechanism": "laplace"}},
    "units, random": {"algorithm": {**UNITS, "noise": "random"}, "privacy": SERVERS},
    "units, masks": {"algorithm": {**UNITS, "masking": "secure"}, "privacy": SERVERS},
    "units, agents' noise": {
        "algorithm": {**UNITS, "masking": "secure"},
        "privacy": {**SERVERS, "agent_noise": 3.0},
    },
}


def complete(name: str) -> dict[str, Any]:
    sections = RUNS[name]
    if "agent" in name or "masks" in name:
        pytest.importorskip("cryptography")
    algorithm = {"name": "graph_federated", **sections["algorithm"]}
    stop = {"updates": 4} if name.startswith(("audp", "mapa")) else {}
    return {**sections, "dataset": "digits", "algorithm": algorithm, "stop": stop, "evaluation": "off"}


class Seen:
    """Samples and answers of the data sides in a run."""

    def __init__(self, spec: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
        self.samples: list[bytes] = []
        self.answers: list[Any] = []
        with patch.context() as watched:
            watched.setattr(Side, "draw", self._watched(Side.draw))
            watched.setattr(Pool, "compute", self._answers(Pool.compute))
            watched.setattr(philox, "poisson_samples", self._of_windows(philox.poisson_samples))
            gs.run(parse_spec(spec))

    def _watched(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(side: Any, task: Any) -> Any:
            found = draw(side, task)
            if found is not None and not isinstance(found.drawn, GradientTerms):  # a record of a stream is of no sample
                rows = found.drawn.rows if isinstance(found.drawn, DrawnTurns) else found.drawn
                self.samples.append(np.ascontiguousarray(rows).tobytes())
            return found

        return drawn

    def _of_windows(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*given: Any) -> Any:
            rows, begins = draw(*given)
            self.samples.extend(rows[start:end].tobytes() for start, end in pairwise(begins.tolist()))
            return rows, begins

        return drawn

    def _answers(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def computed(sides: Any, tickets: Any) -> Any:
            answers = compute(sides, tickets)
            self.answers += [
                answer.released.values[:640].copy()  # a count of clipped examples may follow
                for answer in answers
                if isinstance(answer.released, Released | Masked)
            ]
            return answers

        return computed


@pytest.mark.some(8)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("real_secrets")
def test_runs_of_one_spec_share_neither_noise_nor_samples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, and the one whose noise follows from the seed. Releases are nearly all noise: their correlation over at
    least 640 numbers is below 0.25 with probability 1 - 1e-10, and two samples of 30 of 700 examples or more are the
    same with a probability below 1e-50."""
    spec = complete(name)
    runs = [Seen(spec, monkeypatch), Seen(spec, monkeypatch), Seen(reproducible(spec), monkeypatch)]
    assert all(run.samples and run.answers for run in runs)
    assert len({sample for run in runs for sample in run.samples}) == sum(len(run.samples) for run in runs)
    for number, one in enumerate(runs):
        for other in runs[number + 1 :]:
            assert len(one.answers) == len(other.answers)
            for a, b in zip(one.answers, other.answers, strict=True):
                assert not np.any(a == b)
                assert abs(np.corrcoef(a.astype(float), b.astype(float))[0, 1]) < 0.25


def test_what_is_compared_is_the_same_where_the_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail."""
    spec = reproducible(complete("gossip"))
    one, other = Seen(spec, monkeypatch), Seen(spec, monkeypatch)
    assert one.samples == other.samples
    assert all(np.array_equal(a, b) for a, b in zip(one.answers, other.answers, strict=True))


# The secret is nowhere but in its file


def forms(number: int) -> list[bytes]:
    """Ways to write down 128 bits."""
    found: list[bytes] = [str(number).encode(), hex(number)[2:].encode()]
    for raw in (number.to_bytes(16, "big"), number.to_bytes(16, "little")):
        half = [raw[:8], raw[8:]]
        texts = [
            raw.hex(),
            base64.b64encode(raw).decode().rstrip("="),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        ]
        texts += [part.hex() for part in half] + [
            str(int.from_bytes(part, order)) for part in half for order in ("big", "little")
        ]
        texts += [str(int.from_bytes(raw, "big")), ", ".join(map(str, raw)), repr(raw)[2:-1]]
        found += [raw, *half, *(text.encode() for text in texts)]
        found += [text.upper().encode() for text in texts[:1]]
    return found


@pytest.mark.parametrize("name", ["gossip", "gossip, L2-Laplace", "increasing", "units, agents' noise"])
@pytest.mark.usefixtures("called_here", "real_secrets")
def test_the_secret_and_its_seed_are_in_no_other_file_and_in_nothing_that_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Of 8 bytes or more, by chance with a probability below 1e-10 for a million places to look at."""
    seeds: list[int] = []
    monkeypatch.setattr(running, "secret_seed", lambda *given: seeds.append(secret_seed(*given)) or seeds[-1])
    Path("spec.yaml").write_text(yaml.safe_dump(complete(name)))
    with caplog.at_level(0):
        assert main(["run", "spec.yaml", "--out", "out", "--trace", "trace"]) == 0
        assert main(["check", "spec.yaml"]) == 0
        result = gs.run(gs.read_spec("spec.yaml"), secret=KeptSecret.read(Path("out")).secret)
    secret = result.secret
    assert secret is not None
    assert len(set(seeds)) == 1
    captured = capsys.readouterr()
    said = [
        captured.out,
        captured.err,
        caplog.text,
        repr(result),
        str(result),
        repr(result.guarantee),
        f"{vars(result)}",
    ]
    places = {"said": "".join(said).encode(), "trace": Path("trace").read_bytes()}
    places |= {path.name: path.read_bytes() for path in Path("out").iterdir()}
    hidden = [*forms(int.from_bytes(secret.value, "big")), *forms(seeds[0])]
    found = {name for name, content in places.items() if any(form in content for form in hidden)}
    assert found == {"noise_secret.json"}
    places.pop("noise_secret.json")
    assert len(places) >= 7
