"""Networks by name, and networks of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from gossamer.errors import ModelError
from gossamer.objectives.models import MODELS, build_model, load_module

OWN = """
import torch
from torch import nn

class Plain(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

class Sized(nn.Linear):
    def __init__(self, input_shape, classes):
        assert type(input_shape) is tuple
        super().__init__(input_shape[0], classes)

class Classes(nn.Linear):
    def __init__(self, *, classes=2):
        super().__init__(4, classes)

def anything(**settings):
    return nn.Linear(settings["input_shape"][0], settings["classes"])

class Needs(nn.Linear):
    def __init__(self, depth):
        super().__init__(4, depth)

class Picky(nn.Linear):
    def __init__(self, classes):
        raise ValueError("an odd number of classes,\\nplease")

def number():
    return 7

constant = 7
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of one's own; named after the folder, so that no import is remembered."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / name).mkdir()
    (tmp_path / name / "nets.py").write_text(OWN)
    (tmp_path / name / "broken.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_every_name_builds_a_module_for_its_classes() -> None:
    assert len(MODELS) == 14
    module = build_model("lenet5", (1, 28, 28), 7)
    assert isinstance(module, nn.Module)
    assert module.output.out_features == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet", r"did you mean resnet18\?"),
        ("LeNet-5", r"did you mean lenet5\?"),
        ("transformer", "expected one of cnn_mapa, .*, vgg19"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(name: str, hint: str) -> None:
    with pytest.raises(ModelError, match=rf"model: unknown name '{name}'; {hint}"):
        build_model(name, (3, 32, 32), 10)


@pytest.mark.parametrize(
    ("name", "shape"), [("Plain", (3, 4)), ("Sized", (5, 4)), ("Classes", (5, 4)), ("anything", (5, 4))]
)
def test_own_modules_get_what_their_signature_takes(own: str, name: str, shape: tuple[int, int]) -> None:
    module = load_module(f"{own}.nets:{name}", (4,), 5)
    assert tuple(module.weight.shape) == shape  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nets", r"one's own model is written 'package.module:Class', found 'nets'"),
        ("nets:", r"one's own model is written 'package.module:Class', found 'nets:'"),
        ("no_such_package.nets:Net", r"cannot import 'no_such_package.nets' .*No module named .*on PYTHONPATH\?"),
        ("OWN.broken:Net", r"cannot import 'own\w+.broken' .*No module named 'nothing_of_this_name'"),
        ("OWN.nets:Absent", r"expected a class or function 'Absent' in 'own\w+.nets'"),
        ("OWN.nets:constant", r"expected a class or function 'constant'"),
        ("OWN.nets:number", r"must give a torch.nn.Module, found int"),
        ("OWN.nets:Needs", r"creating 'own\w+.nets:Needs' failed: TypeError: .*depth"),
        ("OWN.nets:Picky", r"creating 'own\w+.nets:Picky' failed: ValueError: an odd number of classes, please"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(own: str, reference: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as refusal:
        load_module(reference.replace("OWN", own), (4,), 5)
    assert "\n" not in str(refusal.value)
