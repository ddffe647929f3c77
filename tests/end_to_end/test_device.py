"""Runs on a device: as without, with the same noise and without any, to 1e-5; and the same bytes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer.cli.main import main
from gossamer.experiment.specs.spec_file import override, parse_spec

torch = pytest.importorskip("torch")

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 8, "topology": "ring", "batch_size": 30, "updates_per_node": 25},
    "privacy": {"clip": 0.5, "noise_multiplier": 1.0, "noise_secret": "reproducible"},
    "speeds": "lognormal",
    "evaluation": "off",
}
"""200 updates of eight nodes."""
NETWORK = "objective.module=tests.end_to_end.test_device:Small"


class Small(torch.nn.Sequential):
    """A network like `cnn_mapa`, for images of 8 by 8, and smooth.

    Where rounding decides on which side of a kink (of ReLU, or of a largest one) one of a million activations lies, two
    runs part by more than rounding: one run in six did.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
            torch.nn.Conv2d(4, 6, 2),
            torch.nn.Tanh(),
            torch.nn.Flatten(),
            torch.nn.Linear(24, classes),
        )


def ran(*settings: str) -> gs.Result:
    return gs.run(parse_spec(override(SPEC, settings)))


def model(result: gs.Result) -> Any:
    return np.concatenate([part.ravel() for part in result.model.values()])


SILENT = ("privacy={mechanism: none, clip: 0.5}",)


@pytest.mark.some(4)
@pytest.mark.parametrize("noise", [(), SILENT], ids=["noise", "silent"])
@pytest.mark.parametrize(
    "settings",
    [
        (NETWORK,),
        (NETWORK, "algorithm={name: allreduce, nodes: 8, batch_size: 30, updates_per_node: 25}"),
        (NETWORK, "algorithm={name: audp, nodes: 8, batch_size: 30}", "stop={updates: 200}"),
    ],
    ids=["gossip", "allreduce", "audp"],
)
def test_two_hundred_updates_agree(settings: tuple[str, ...], noise: tuple[str, ...]) -> None:
    usual, device = ran(*settings, *noise), ran(*settings, *noise, "compute.device=cpu")
    assert device.summary["updates"] == usual.summary["updates"] >= 200
    np.testing.assert_allclose(model(device), model(usual), atol=1e-5, rtol=0)
    assert (device.timing["device"], "device" in usual.timing) == ("cpu", False)


def test_a_clip_that_moves_has_its_count_with_the_same_noise() -> None:
    usual, device = (ran(NETWORK, "privacy.clip=quantile", *more) for more in ([], ["compute.device=cpu"]))
    np.testing.assert_allclose(model(device), model(usual), atol=1e-5, rtol=0)


def test_other_noise_is_drawn_as_usual() -> None:
    settings = NETWORK, "privacy={mechanism: l2_laplace, clip: 0.5, epsilon: 30, noise_secret: reproducible}"
    usual, device = ran(*settings), ran(*settings, "compute.device=cpu")
    np.testing.assert_allclose(model(device), model(usual), atol=1e-5, rtol=0)


def test_a_linear_model_is_computed_as_without_a_device() -> None:
    usual, device = ran("objective=softmax"), ran("objective=softmax", "compute.device=cpu")
    assert model(device).tobytes() == model(usual).tobytes()
    assert "device" not in device.timing


def test_noise_is_noticed() -> None:
    """Without it the agreement of runs that are to have it would say little."""
    noisy, silent = (ran(NETWORK, "compute.device=cpu", *more) for more in ((), SILENT))
    assert np.abs(model(noisy) - model(silent)).max() > 1e-3


def test_the_same_run_twice_has_the_same_bytes() -> None:
    first, second = (ran(NETWORK, "compute.device=cpu") for _ in range(2))
    assert model(first).tobytes() == model(second).tobytes()


def test_nodes_at_once_change_the_last_digits_alone() -> None:
    alone, together = (ran(NETWORK, "compute.device=cpu", f"compute.width={width}") for width in (1, 1024))
    np.testing.assert_allclose(model(alone), model(together), atol=1e-5, rtol=0)


def test_the_option_is_the_setting(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    out = tmp_path / "out"
    assert main(["run", str(tmp_path / "spec.yaml"), "--set", "compute.device=cpu", "--out", str(out)]) == 0
    assert "device: cpu" in (out / "spec.yaml").read_text()
