"""Starting from a file: what is read, what is refused, and that a run says which file it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save

import gossamer as gs
from gossamer.deployment.founding.federation_spec import federation_spec
from gossamer.errors import SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.preparation.secrets import secret_seed
from gossamer.experiment.specs.spec_file import parse_spec, read_spec, read_text, write_spec

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 2, "updates_per_node": 2},
    "privacy": {"noise_multiplier": 1.0},
    "evaluation": "off",
}
RNG = np.random.default_rng(3)
ARRAYS = {"weight": RNG.normal(size=(10, 64)).astype(np.float32), "bias": RNG.normal(size=10).astype(np.float32)}


def spec(pretrained: Any = None, **sections: Any) -> gs.Experiment:
    objective = {} if pretrained is None else {"objective": {"pretrained": pretrained}}
    return parse_spec({**SPEC, **objective, **sections})


def saved(path: Path, **changes: Any) -> Path:
    arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
    path.write_bytes(save(arrays))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(tmp_path / "start.safetensors")


def test_all_nodes_start_from_the_file(file: Path) -> None:
    prepared = prepare(spec(str(file)))
    expected = np.concatenate([ARRAYS[part.name].reshape(-1) for part in prepared.objective.parts])
    np.testing.assert_array_equal(prepared.initial.values, expected)
    assert prepared.drawn_initial() == prepared.initial
    plan = plan_run(prepared)
    context = prepared.context(plan.mechanisms, plan.quotas)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    for node in nodes.values():
        np.testing.assert_array_equal(node.state.w.values, expected)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_converted(tmp_path: Path, kind: Any, dtype: str) -> None:
    arrays = {name: array.astype(kind) for name, array in ARRAYS.items()}
    file = saved(tmp_path / "start.safetensors", **arrays)
    initial = prepare(parse_spec({**SPEC, "objective": {"dtype": dtype, "pretrained": str(file)}})).initial
    assert initial.values.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(
        np.sort(initial.values), np.sort(np.concatenate([a.ravel() for a in arrays.values()])).astype(dtype)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bias": None}, r"is of another model: expected 'bias' \[10\], found nothing in the place; give"),
        ({"weight": np.zeros((64, 10), np.float32)}, r"expected 'weight' \[10, 64\], found 'weight' \[64, 10\] in"),
        ({"more": np.zeros(2, np.float32)}, r"is of another model: expected nothing, found 'more' \[2\] in"),
        ({"bias": np.zeros(10, np.int64)}, r"expected 'bias' \[10\], found 'bias' \[10\] of int64 in"),
        (
            {"bias": None, "fc.weight": np.zeros(2, np.float32), "fc.bias": np.zeros(2, np.float32)},
            r"expected 'bias' \[10\], found 'fc.bias' \[2\], 'fc.weight' \[2\] in",
        ),
        (
            {"bias": None, **{f"layer-{i}": np.zeros(1, np.float32) for i in range(9)}},
            r"'layer-4' \[1\] and 4 more in",
        ),
        ({"a\nb": np.zeros(1, np.float32)}, r"found 'a\\nb' \[1\] in"),
        ({"bias": np.full(10, np.nan, np.float32)}, "has numbers that are not finite"),
        ({"bias": np.full(10, np.inf, np.float32)}, "has numbers that are not finite"),
        ({"bias": np.full(10, 1e300)}, "too large for float32"),
    ],
)
def test_another_model_is_refused_in_a_line_that_says_what_differs(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    file = saved(tmp_path / "start.safetensors", **changes)
    with pytest.raises(SpecError, match=rf"^objective\.pretrained: .*{said}") as raised:
        prepare(spec(str(file)))
    assert "\n" not in str(raised.value)


def brain_floats() -> bytes:
    header = json.dumps({"bias": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"", "is no safetensors file"),
        (b"PK\x03\x04" * 20, "is no safetensors file"),
        (save(ARRAYS)[:-3], "is no safetensors file"),
        (brain_floats(), "has numbers of type BF16; save them as float16, float32 or float64"),
    ],
)
def test_what_is_no_model_is_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "start.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecError, match=rf"^objective\.pretrained: .*{said}") as raised:
        prepare(spec(str(file)))
    assert "\n" not in str(raised.value)
    with pytest.raises(SpecError, match="cannot be read"):
        prepare(spec(str(tmp_path)))  # a folder


@pytest.mark.parametrize("bad", [{}, {"path": "a", "sha256": "F" * 64}, {"path": "a", "md5": "1"}, 7])
def test_bad_settings_are_one_line(bad: Any) -> None:
    with pytest.raises(SpecError, match=r"objective\.pretrained") as raised:
        spec(bad)
    assert "\n" not in str(raised.value)


def test_a_file_with_another_hash_is_refused(file: Path) -> None:
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    assert prepare(spec({"path": str(file), "sha256": expected})).pretrained is not None
    saved(file, bias=np.ones(10, np.float32))
    with pytest.raises(SpecError, match=f"expected SHA-256 {expected}, found [0-9a-f]{{64}}; give the file"):
        prepare(spec({"path": str(file), "sha256": expected}))


def test_noise_depends_on_what_is_in_the_file_and_not_on_where_it_is(file: Path, tmp_path: Path) -> None:
    """Two runs with the same noise and other gradients would give the noise away."""
    copy = tmp_path / "elsewhere.safetensors"
    copy.write_bytes(file.read_bytes())
    other = saved(tmp_path / "other.safetensors", bias=np.zeros(10, np.float32))
    known = {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    seeds = [secret_seed(prepare(spec(start)), []) for start in (None, str(file), str(copy), known, str(other))]
    assert seeds[1] == seeds[2] == seeds[3]
    assert len(set(seeds)) == 3


def test_results_say_which_file_it_was_and_their_spec_repeats_the_run(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (tmp_path / "spec.yaml").write_text(
        yaml.safe_dump(
            {
                **SPEC,
                "objective": {"pretrained": file.name},
                "privacy": {"noise_multiplier": 1.0, "noise_secret": "reproducible"},
            }
        )
    )
    gs.run(read_spec(tmp_path / "spec.yaml"), folder)  # a path is taken from where the spec lies
    written = yaml.safe_load((folder / "spec.yaml").read_text(encoding="utf-8"))["objective"]["pretrained"]
    assert written == {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    gs.run(read_spec(folder / "spec.yaml"), tmp_path / "again")
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()
    # What a run ends with is what another one can start with.
    model = folder / "model.safetensors"
    initial = prepare(spec(str(model))).initial.values
    np.testing.assert_array_equal(initial[:640].reshape(10, 64), load_file(model)["weight"])
    saved(file, bias=np.ones(10, np.float32))
    with pytest.raises(SpecError, match="expected SHA-256"):
        gs.run(read_spec(folder / "spec.yaml"))


def test_constants_are_estimated_at_the_model_of_the_file(file: Path) -> None:
    mapa = {"name": "mapa", "nodes": 2, "updates_per_node": 2}
    gaps = [prepare(spec(start, algorithm=mapa)).experiment.algorithm.loss_gap for start in (None, str(file))]  # type: ignore[union-attr]
    assert gaps[0] != gaps[1]


def test_a_spec_without_a_file_is_written_as_before() -> None:
    assert "pretrained" not in spec().model_dump(mode="json")["objective"]
    named = spec("start.safetensors")
    assert read_text(write_spec(named)) == named
    assert spec(Path("start.safetensors")) == named


def test_a_federation_agrees_on_the_hash(file: Path) -> None:
    """The path is taken from the spec's folder, and left out of what parties agree on."""
    text = write_spec(spec(file.name))
    found = read_text(federation_spec(text, 2, file.parent)).objective.pretrained
    assert found is not None
    assert (found.path, found.sha256) == (None, hashlib.sha256(file.read_bytes()).hexdigest())
    with pytest.raises(SpecError, match=r"^objective\.pretrained: nowhere\.safetensors cannot be read"):
        federation_spec(text.replace(file.name, "nowhere.safetensors"), 2)


def test_a_hash_alone_is_no_file() -> None:
    with pytest.raises(SpecError, match=f"where is the file with SHA-256 {'0' * 64}. give its path"):
        prepare(spec({"sha256": "0" * 64}))
