"""Runs with arrays and modules from memory, and what their results say."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_digits

import gossamer as gs
from gossamer.experiment.preparation.prepare import FromMemory
from gossamer.experiment.preparation.secrets import secret_seed

SPEC: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 2, "updates_per_node": 4, "batch_size": 8},
    "privacy": {"noise_multiplier": 1.0},
    "stop": {"epochs": 1},
}
LABELS = ("no", "yes")


def examples(seed: int = 0, rows: int = 60, **more: Any) -> gs.Data:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (rows, 3))
    return gs.Data(x, np.where(x[:, 0] > x[:, 1], "yes", "no"), owners=["a", "b"] * (rows // 2), labels=LABELS, **more)


def files_say(folder: Path) -> str:
    return "".join(
        path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.suffix != ".safetensors"
    )


def test_a_path_a_mapping_and_an_object_are_one_run(tmp_path: Path) -> None:
    spec = {**SPEC, "dataset": "digits", "privacy": {"noise_multiplier": 1.0, "noise_secret": "reproducible"}}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    runs = [gs.run(given) for given in (spec, path, str(path), gs.parse_spec(spec))]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.model["weight"], runs[0].model["weight"])


@pytest.mark.parametrize("given", [3, None, ["digits"]])
def test_what_is_no_spec_is_refused(given: Any) -> None:
    with pytest.raises(gs.SpecError, match="expected an Experiment, a mapping, or the path of a YAML file"):
        gs.run(given)


def test_digits_from_memory_have_the_gradients_of_digits_by_name() -> None:
    found = load_digits()
    memory = FromMemory(gs.Data(found.data, found.target, labels=range(10)))
    own = gs.prepare(gs.parse_spec({**SPEC, "dataset": {"name": "in memory", "divide_by": 16}}), memory)
    named = gs.prepare(gs.parse_spec({**SPEC, "dataset": "digits"}))
    np.testing.assert_array_equal(
        own.dataset.train.features.reshape(-1, 64), named.dataset.train.features.reshape(-1, 64)
    )
    np.testing.assert_array_equal(own.dataset.train.targets, named.dataset.train.targets)
    assert [shard.tolist() for shard in own.shards] == [shard.tolist() for shard in named.shards]


def test_owners_are_nodes(tmp_path: Path) -> None:
    prepared = gs.prepare(gs.parse_spec({**SPEC, "partition": "natural"}), FromMemory(examples()))
    assert prepared.dataset.owners is not None
    for owner, shard in zip("ab", prepared.shards, strict=True):
        assert set(prepared.dataset.owners[shard]) == {owner}


def test_a_person_with_too_many_rows_is_refused() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    data = gs.Data(x, [0, 1] * 30, persons=np.repeat(np.arange(20), 3), labels=[0, 1])
    spec = {**SPEC, "privacy": {}, "budget": {"epsilon": 8, "delta": 1e-4, "rows_per_person": 2}}
    with pytest.raises(gs.DataError, match="at most 2 training examples of one person"):
        gs.run(spec, data=data)


def test_results_say_in_memory_and_nothing_of_the_arrays(tmp_path: Path) -> None:
    data = examples(feature_names=["age", "dose", "stay"])
    gs.run(SPEC, tmp_path / "run", data=data)
    spec = yaml.safe_load((tmp_path / "run" / "spec.yaml").read_text())
    assert spec["dataset"]["name"] == "in memory"
    said = files_say(tmp_path / "run")
    assert not any(f"{number:.6g}" in said for number in data.train.features.ravel().tolist())
    with pytest.raises(gs.DataError, match=r"given from memory.*gs\.run\(spec, data=gs\.Data") as caught:
        gs.run(tmp_path / "run" / "spec.yaml")
    assert "\n" not in str(caught.value)
    assert gs.run(tmp_path / "run" / "spec.yaml", data=data).summary["dataset"] == "in memory"


def test_a_run_is_repeated_with_its_arrays_and_no_others(tmp_path: Path) -> None:
    first = gs.run(SPEC, tmp_path / "run", data=examples())
    again = gs.repeat_run(tmp_path / "run", data=examples())
    np.testing.assert_array_equal(first.model["weight"], again.model["weight"])
    with pytest.raises(gs.DataError, match="are not what they were"):
        gs.repeat_run(tmp_path / "run", data=examples(seed=1))


def test_arrays_that_are_not_wrapped_are_refused() -> None:
    with pytest.raises(gs.SpecError, match=r"data: expected gs\.Data\(x, y, \.\.\.\), found tuple; wrap the arrays"):
        gs.run(SPEC, data=(np.zeros((4, 2)), np.zeros(4)))  # type: ignore[arg-type]


# Modules


def network(width: int = 4) -> Any:
    nn = pytest.importorskip("torch.nn")
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


def test_a_module_starts_from_its_parameters_and_stays_as_it_is() -> None:
    module = network()
    before = {name: values.detach().numpy().copy() for name, values in module.named_parameters()}
    prepared = gs.prepare(gs.parse_spec(SPEC), FromMemory(examples(), module))
    start = gs.unpack(np.asarray(prepared.initial.values), prepared.objective.parts)
    gs.run(SPEC, data=examples(), module=module)
    for name, values in module.named_parameters():
        np.testing.assert_array_equal(start[name], before[name])
        np.testing.assert_array_equal(values.detach().numpy(), before[name])


def test_a_class_is_made_in_the_shape_of_the_data_and_drawn_from_the_seed() -> None:
    nn = pytest.importorskip("torch.nn")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
            super().__init__()
            self.layer = nn.Linear(input_shape[0], classes)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    prepared = [gs.prepare(gs.parse_spec(SPEC), FromMemory(examples(), given)) for given in (Net, Net)]
    assert prepared[0].objective.parts[0].shape == (2, 3)
    np.testing.assert_array_equal(*(np.asarray(each.initial.values) for each in prepared))
    assert prepared[0].experiment.objective.module == "in memory:Net"


def test_results_name_the_module_and_refuse_to_run_alone(tmp_path: Path) -> None:
    nn = pytest.importorskip("torch.nn")
    module = network()
    gs.run({**SPEC, "dataset": "digits"}, tmp_path / "run", module=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    spec = yaml.safe_load((tmp_path / "run" / "spec.yaml").read_text())
    assert spec["objective"]["module"] == "in memory:Sequential"
    with pytest.raises(gs.ModelError, match=r"Sequential was given from memory.*gs\.run\(spec, module="):
        gs.run(tmp_path / "run" / "spec.yaml")
    with pytest.raises(gs.SpecError, match="the spec's objective is 'softmax', and module= gives another"):
        gs.run({**SPEC, "objective": "softmax"}, data=examples(), module=module)


@pytest.mark.parametrize("given", ["mypackage.nets:Net", 3])
def test_what_is_no_module_is_refused(given: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(gs.ModelError, match=r"module: expected a torch\.nn\.Module, or a class or function"):
        gs.run(SPEC, data=examples(), module=given)


def test_another_module_has_other_noise() -> None:
    """Runs that share their noise give it away, so noise depends on all that decides a gradient."""
    torch = pytest.importorskip("torch")
    modules = [network(), network(), network(5)]
    with torch.no_grad():
        for one, other in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
            other.copy_(one)
    secret = gs.NoiseSecret.fresh()

    def seed(module: Any) -> int:
        return secret_seed(gs.prepare(gs.parse_spec(SPEC), FromMemory(examples(), module)), [], secret=secret)

    seeds = [seed(module) for module in modules]
    assert seeds[0] == seeds[1] != seeds[2]
    with torch.no_grad():
        modules[1][0].bias += 1
    assert seed(modules[1]) != seeds[0]


def test_code_at_a_prompt_is_told_apart() -> None:
    """Classes without a source file, as at a prompt, that differ in one constant."""
    pytest.importorskip("torch")
    text = (
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(3, 2)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x * FACTOR)\n"
    )
    from gossamer.objectives.models import made

    codes = []
    for factor in ("1.0", "2.0", "1.0"):
        place: dict[str, Any] = {"__name__": "prompt"}
        exec(text.replace("FACTOR", factor), place)
        codes.append(made(place["Net"], (3,), 2).code)
    assert codes[0] == codes[2] != codes[1]


def test_no_warning_comes_with_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        gs.run({**SPEC, "privacy": "none"}, data=examples())


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (5, "expected numbers by name, .* found int as"),
        (None, "expected numbers by name, .* found NoneType as"),
        ({"recall": "high"}, "expected numbers by name, .* found str as 'recall';"),
        ({3: 0.5}, "expected numbers by name, .* found float as '3';"),
    ],
)
def test_what_is_no_measure_is_refused_before_anything_is_written(tmp_path: Path, figures: Any, line: str) -> None:
    with pytest.raises(gs.CallerError, match=f"^measure: {line}"):
        gs.run(SPEC, tmp_path / "out", data=examples(), measure=lambda prepared, model: figures)
    assert not (tmp_path / "out").exists()


def test_a_measure_is_asked_once_an_evaluation() -> None:
    seen: list[float] = []

    def measure(prepared: Any, model: Any) -> dict[str, Any]:
        seen.append(float(np.square(model).sum()))
        return {"square": np.float32(seen[-1]), "none": np.nan}

    run = gs.run(SPEC, data=examples(), measure=measure)
    assert [row["square"] for row in run.metrics] == pytest.approx(seen)
    assert {row["none"] for row in run.metrics} == {None}
