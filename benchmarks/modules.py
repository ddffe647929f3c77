"""Modules as people have them: each is trained for a few private updates, or refused with a reason.

    python benchmarks/modules.py                # a line for each
    python benchmarks/modules.py --only Bert    # those with that in their name
    python benchmarks/modules.py --write        # the table of docs/how-to/own-model.md

Weights are random: networks are made from their configuration, small. A row says which way of gradients was taken, or
the line of the refusal. The exit code is 1 if one ended otherwise. Packages that are not installed here come from an
environment of their own, as those of libraries beside this one do (benchmarks/peers), with torch by plain pip first.
Where none can be made, one line says what is missing, and the others are tried.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peers.environments import Unavailable, default_cache, python_of
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs

IMAGE, WORDS, GRAPH, VOLUME, CLASSES, ROWS = (3, 32, 32), (12,), (6, 10), (1, 8, 8, 8), 3, 40
ROOT = Path(__file__).resolve().parents[1]
PAGE, PINS = ROOT / "docs/how-to/own-model.md", ROOT / "benchmarks/requirements-modules.txt"
PACKAGES = ("transformers", "timm", "monai", "torch_geometric", "torchvision")
INSIDE = "GOSSAMER_MODULES_INSIDE"
"""Variable of the environment by which a call in that other environment is known."""
BEGIN, END = "<!-- modules -->\n", "<!-- end of modules -->"
HUGGING = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
HUGGING |= {"intermediate_size": 64, "max_position_embeddings": 32}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class Case(NamedTuple):
    """A module, the shape of its examples, of words if ``words``, and the targets."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: bool = False
    targets: str = "classes"
    adapters: tuple[str, ...] = ()


class Padded(nn.Module):
    """An encoder of torch's; words 0 are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32, padding_idx=0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        self.out = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        there = (x > 0).unsqueeze(-1).float()
        found = self.encoder(self.words(x.long()), src_key_padding_mask=x == 0)
        return self.out((found * there).sum(1) / there.sum(1).clamp(min=1))


class Masked(nn.Module):
    """A network of transformers whose mask is computed in forward."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(input_ids=x.long(), attention_mask=(x > 0).long()).logits


class Head(nn.Module):
    """A layer behind a network that stays as it is."""

    def __init__(self, inside: nn.Module, size: int) -> None:
        super().__init__()
        self.inside, self.out = inside.eval().requires_grad_(False), nn.Linear(size, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inside(x))


class DenseGraph(nn.Module):
    """Nodes with 4 features, and their adjacency, as one array."""

    def __init__(self) -> None:
        super().__init__()
        layers = importlib.import_module("torch_geometric.nn")
        self.one, self.two = layers.DenseGCNConv(4, 16), layers.DenseGCNConv(16, 16)
        self.out = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        edges = (x[..., :6] > 0).float()
        found = F.relu(self.two(F.relu(self.one(x[..., 6:], edges)), edges))
        return self.out(found.mean(1))


class EdgeGraph(nn.Module):
    """A ring, as a list of edges."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv, self.out = (
            getattr(importlib.import_module("torch_geometric.nn"), kind)(4, 16),
            nn.Linear(16, CLASSES),
        )
        self.register_buffer("edges", torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6]))

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        edges = (self.edges[:, None] + 6 * torch.arange(n)[:, None]).flatten(1)
        return self.out(F.relu(self.conv(x[..., 6:].reshape(-1, 4), edges)).reshape(n, 6, -1).mean(1))


def hugging(kind: str, config: str = "", **settings: Any) -> Callable[[], nn.Module]:
    """A classifier of transformers, by its configuration."""

    def make() -> nn.Module:
        package = importlib.import_module("transformers")
        whole = {"num_labels": CLASSES, **settings}
        task = "ForImageClassification" if "image_size" in settings else "ForSequenceClassification"
        return getattr(package, kind + task)(getattr(package, f"{config or kind}Config")(**whole)).eval()

    return make


def from_package(package: str, name: str, *args: Any, still: bool = False, **settings: Any) -> Callable[[], nn.Module]:
    """What a function of a package makes, in evaluation mode if ``still``."""

    def make() -> nn.Module:
        found = getattr(importlib.import_module(package), name)(*args, **settings)
        return found.eval() if still else found

    return make


def groups(channels: int) -> nn.Module:
    """A normalisation of groups in the place of that of batches."""
    return nn.GroupNorm(8, channels)


VISION_MODELS, NETS = "torchvision.models", "monai.networks.nets"
CASES: dict[str, Case] = {
    "`nn.TransformerEncoder`, padding mask": Case(Padded, WORDS, True),
    "transformers `Bert`, mask in forward": Case(lambda: Masked(hugging("Bert", **HUGGING)()), WORDS, True),
    "transformers `Bert`, adapters": Case(hugging("Bert", **HUGGING), WORDS, True, adapters=("query", "value")),
    "transformers `DistilBert`": Case(
        hugging("DistilBert", vocab_size=50, dim=32, n_layers=2, n_heads=4, hidden_dim=64), WORDS, True
    ),
    "transformers `Roberta`": Case(hugging("Roberta", **HUGGING), WORDS, True),
    "transformers `Albert`": Case(hugging("Albert", **HUGGING, embedding_size=16), WORDS, True),
    "transformers `GPT2`": Case(
        hugging("GPT2", vocab_size=50, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1, pad_token_id=0),
        WORDS,
        True,
    ),
    "transformers `GPT2`, adapters": Case(
        hugging("GPT2", vocab_size=50, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1, pad_token_id=0),
        WORDS,
        True,
        adapters=("c_attn",),
    ),
    "transformers `Llama`, adapters": Case(
        hugging("Llama", **HUGGING, pad_token_id=0), WORDS, True, adapters=("q_proj", "v_proj")
    ),
    "transformers `ViT`": Case(hugging("ViT", **VISION, image_size=32, patch_size=8), IMAGE),
    "transformers `Swin`": Case(
        hugging("Swin", image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
        IMAGE,
    ),
    "torchvision `resnet18`": Case(from_package(VISION_MODELS, "resnet18", num_classes=CLASSES), IMAGE),
    "torchvision `resnet18`, GroupNorm": Case(
        from_package(VISION_MODELS, "resnet18", num_classes=CLASSES, norm_layer=groups), IMAGE
    ),
    "torchvision `resnet18`, frozen, and a layer": Case(
        lambda: Head(from_package(VISION_MODELS, "resnet18", num_classes=16)(), 16), IMAGE
    ),
    "torchvision `squeezenet1_1`": Case(from_package(VISION_MODELS, "squeezenet1_1", num_classes=CLASSES), IMAGE),
    "torchvision `shufflenet_v2_x0_5`, `.eval()`": Case(
        from_package(VISION_MODELS, "shufflenet_v2_x0_5", num_classes=CLASSES, still=True), IMAGE
    ),
    "torchvision `VisionTransformer`": Case(
        from_package(VISION_MODELS, "VisionTransformer", 32, 8, 2, 4, 32, 64, num_classes=CLASSES), IMAGE
    ),
    "timm `vit_tiny_patch16_224`": Case(
        from_package(
            "timm", "create_model", "vit_tiny_patch16_224", num_classes=CLASSES, img_size=32, patch_size=8, depth=2
        ),
        IMAGE,
    ),
    "timm `mixer_s16_224`": Case(
        from_package("timm", "create_model", "mixer_s16_224", num_classes=CLASSES, img_size=32),
        IMAGE,
    ),
    "timm `convnext_atto`": Case(from_package("timm", "create_model", "convnext_atto", num_classes=CLASSES), IMAGE),
    "timm `resnet10t`": Case(from_package("timm", "create_model", "resnet10t", num_classes=CLASSES), IMAGE),
    "monai `DenseNet`, `.eval()`": Case(
        from_package(NETS, "DenseNet", 2, 3, CLASSES, init_features=8, growth_rate=4, block_config=(2, 2), still=True),
        IMAGE,
    ),
    "monai `ViT`": Case(
        from_package(
            NETS, "ViT", 3, (32, 32), (8, 8), 32, 64, 2, 4, classification=True, num_classes=CLASSES, spatial_dims=2
        ),
        IMAGE,
    ),
    "monai `UNet`, classes of voxels": Case(
        from_package(NETS, "UNet", 3, 1, CLASSES, (4, 8), (2,), norm=("GROUP", {"num_groups": 1})),
        VOLUME,
        targets="places",
    ),
    "monai `UNet`, with its own norm": Case(
        from_package(NETS, "UNet", 3, 1, CLASSES, (4, 8), (2,), norm="BATCH"), VOLUME, targets="places"
    ),
    "monai `Classifier`, several answers": Case(
        from_package(NETS, "Classifier", IMAGE, 5, (4, 8), (2, 2)), IMAGE, targets="answers"
    ),
    "torch_geometric `DenseGCNConv`": Case(DenseGraph, GRAPH),
    "torch_geometric `GCNConv`, edges": Case(lambda: EdgeGraph("GCNConv"), GRAPH),
    "torch_geometric `GATConv`, edges": Case(lambda: EdgeGraph("GATConv"), GRAPH),
}


def data_of(case: Case) -> gs.Data:
    """Made-up examples."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, *case.shape), dtype=np.float32)
    if case.words:
        x = generator.integers(1, 50, (ROWS, *case.shape)).astype(np.float32)
        x[::2, -4:] = 0
    if case.targets == "classes":
        return gs.Data(x, np.arange(ROWS) % CLASSES, labels=range(CLASSES))
    places = case.shape[1:] if case.targets == "places" else (5,)
    return gs.Data(x, generator.integers(0, CLASSES if case.targets == "places" else 2, (ROWS, *places)))


def outcome(case: Case) -> str:
    """What became of a module, in a cell of the table."""
    torch.manual_seed(0)
    spec: dict[str, Any] = {
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 4, "topology": "complete"},
        "budget": {"epsilon": 5, "delta": 1e-3},
        "stop": {"updates": 2},
        "evaluation": "off",
    }
    if case.adapters:
        spec["objective"] = {"adapters": {"modules": case.adapters}}
    try:
        result = gs.run(spec, data=data_of(case), module=case.make())
    except gs.CallerError as error:
        return f"refused: {error}"
    assert all(np.isfinite(array).all() for array in result.model.values())
    return f"trained, by `{result.timing['strategy']}`"


def with_torchvision() -> torch.library.Library:
    """Declare operators that torchvision has only beside the torch which it was built for; as long as they are held."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def elsewhere(cache: Path) -> int | None:
    """Do the same in an environment with all packages, and return its exit code; None where it is to be done here."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not missing or INSIDE in os.environ:
        return None
    try:
        python = python_of("modules", cache, PINS)
    except Unavailable as problem:
        print(f"without {', '.join(missing)}: {problem}", file=sys.stderr, flush=True)
        return None
    environment = {**os.environ, INSIDE: "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([str(python), *sys.argv], env=environment, check=False).returncode


def main() -> int:
    """Try all, print, and say whether one ended in nobody's words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the environment")
    asked = parser.parse_args()
    if (code := elsewhere(asked.cache)) is not None:
        return code
    warnings.simplefilter("ignore")
    held = with_torchvision()
    rows, wrong, lacking = ["| module | outcome |", "|---|---|"], 0, list[str]()
    for name, case in CASES.items():
        if asked.only not in name:
            continue
        try:
            found = outcome(case)
        except ModuleNotFoundError as missing:
            lacking.append(f"{name} ({missing.name})")
            continue
        except Exception as problem:  # what this looks for
            found, wrong = f"{type(problem).__name__}: {problem}", wrong + 1
        rows.append(f"| {name} | {found} |")
        print(f"{name}: {found}", flush=True)
    if lacking:
        print(f"left out, since the package is not installed: {', '.join(lacking)}", file=sys.stderr)
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        with_versions = f"With {', '.join(f'{name} {metadata.version(name)}' for name in ('torch', *PACKAGES))}:\n\n"
        PAGE.write_text(f"{before}{BEGIN}\n{with_versions}" + "\n".join(rows) + f"\n\n{END}{after}", encoding="utf-8")
    del held
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
