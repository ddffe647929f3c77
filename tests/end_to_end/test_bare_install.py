"""The first day with ``pip install .`` alone: from a table to predictions nothing is needed that is optional."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.end_to_end.test_first_day import NEW
from tests.end_to_end.ward_table import TARGET, ward_table, write

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = [
    *("cryptography", "torch", "PIL", "matplotlib", "paho", "amqtt", "pyarrow", "sklearn", "onnx", "onnxruntime"),
    *("tensorboard", "mlflow", "wandb", "trackio", "mkdocs", "mkdocstrings"),
    *(
        "altair",
        "jinja2",
        "vl_convert",
        "weasyprint",
        "ray",
        "fsspec",
        "s3fs",
        "onnxscript",
        "joblib",
        "prometheus_client",
        "pandas",
        "hypothesis",
        "pytest",
    ),
]
COMMAND = f"""
import sys

class Absent:  # as if they were not installed
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from gossamer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def bare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_list_of_what_is_optional_is_whole() -> None:
    """Every extra of the project has its package in the list, by the name that it is imported by."""
    imported = {
        "mkdocs-material": "mkdocs",
        "pillow": "PIL",
        "paho-mqtt": "paho",
        "scikit-learn": "sklearn",
        "prometheus-client": "prometheus_client",
        "vl-convert-python": "vl_convert",
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {
        one.split(">")[0].split("[")[0].split("=")[0] for extra in extras if extra != "dev" for one in extras[extra]
    }
    assert {imported.get(name, name) for name in names} - {"gossamer-fl"} <= set(OPTIONAL)


@pytest.mark.slow
def test_from_a_table_to_predictions(tmp_path: Path) -> None:
    write(tmp_path / "wards.csv", ward_table(5, 600))
    write(tmp_path / "more.csv", ward_table(6, 20), without=(TARGET,))
    commands = (
        NEW,
        ["check", "wards.yaml"],
        ["run", "wards.yaml", "--out", "results"],
        ["predict", "results", "more.csv"],
        ["evaluate", "results", "wards.csv"],
    )
    for command in commands:
        done = bare(tmp_path, *command)
        assert done.returncode == 0, done.stderr
    assert len(bare(tmp_path, "predict", "results", "more.csv").stdout.splitlines()) == 21


@pytest.mark.slow
def test_other_algorithms_without_masks(tmp_path: Path) -> None:
    for name in ("digits-allreduce", "digits-fedbuff", "digits-graph", "digits-mapa"):
        done = bare(tmp_path, "check", str(ROOT / "examples" / f"{name}.yaml"))
        assert done.returncode == 0, done.stderr


def test_a_check_needs_nothing_optional(tmp_path: Path) -> None:
    done = bare(tmp_path, "check", str(ROOT / "examples" / "digits-gossip.yaml"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "The spec is sound."), done.stderr


def test_masks_say_what_they_need(tmp_path: Path) -> None:
    done = bare(tmp_path, "check", str(ROOT / "examples" / "digits-fedavg-masked.yaml"))
    assert done.returncode == 2
    assert re.search('-m pip install "cryptography>=.*"$', done.stderr)
