"""``gossamer attack``: inversion, membership inference and audits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gossamer.cli.printing import print_json, table
from gossamer.experiment.attacking import Inversion, invert
from gossamer.experiment.prepare import prepare
from gossamer.experiment.reading import read_spec
from gossamer.experiment.results import to_json
from gossamer.experiment.spec import Experiment


def add_commands(commands: Any) -> None:
    """Add ``attack`` and its three commands to the parser."""
    attack = commands.add_parser(
        "attack",
        help="attack what a run releases, and audit its guarantee",
        description="Attack what a run releases, and audit its guarantee from below.",
    )
    attacks = attack.add_subparsers(title="attacks", metavar="ATTACK", required=True)
    _add_inversion(attacks)


def _add_spec(command: argparse.ArgumentParser) -> None:
    command.add_argument("spec", type=Path, metavar="SPEC", help="the experiment, a YAML file")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, such as privacy.clip=2",
    )
    command.add_argument("--seed", type=int, help="override the seed")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def _read(options: argparse.Namespace) -> Experiment:
    seed = [] if options.seed is None else [f"seed={options.seed}"]
    return read_spec(options.spec, [*options.set, *seed])


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# Inversion


def _add_inversion(attacks: Any) -> None:
    command = attacks.add_parser(
        "inversion",
        help="recover examples from the gradients that a spec's node would release",
        description="Recover the first examples of the first node's shard from the gradients it would release.",
    )
    _add_spec(command)
    command.add_argument("--examples", type=int, default=8, metavar="N", help="how many batches to attack (default: 8)")
    command.add_argument("--batch-size", type=int, default=1, metavar="B", help="examples in a batch (default: 1)")
    command.add_argument(
        "--epsilon",
        type=float,
        nargs="+",
        default=[],
        metavar="E",
        help="also compare noise of the L2 Laplace mechanism with this epsilon for one release",
    )
    command.add_argument(
        "--method", choices=["auto", "linear", "matching"], default="auto", help="how (default: by the first layer)"
    )
    command.add_argument("--out", type=Path, help="folder for the figure (default: runs/<spec>-inversion)")
    command.set_defaults(command=inversion_command)


def inversion_command(options: argparse.Namespace) -> int:
    """Recover examples, draw them, and say how like the originals they are."""
    prepared = prepare(_read(options))
    found = invert(
        prepared,
        examples=options.examples,
        batch_size=options.batch_size,
        epsilons=options.epsilon,
        method=options.method,
    )
    out = _folder(options.out or Path("runs") / f"{options.spec.stem}-inversion")
    figure = _draw(found, out / "inversion.png")
    document = {**found.as_dict(), "figure": None if figure is None else str(figure)}
    (out / "inversion.json").write_text(to_json(document, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print_json(document)
        return 0
    rows = [
        (level["level"], "-" if level["ssim"] is None else f"{level['ssim']:.3f}", f"{level['cosine']:.3f}")
        for level in document["levels"]
    ]
    print(
        f"{found.method} inversion of {len(found.originals)} batches of {found.batch_size} at {found.node}, "
        f"initial model\n\n{table([('noise', 'mean SSIM', 'mean cosine'), *rows])}\n"
    )
    print(f"Figure: {figure}" if figure else "Examples are no pictures, so there is no SSIM and no figure.")
    return 0


def _draw(found: Inversion, path: Path) -> Path | None:
    from gossamer.report.grids import stretched, write_grid

    if found.originals.ndim != 4 or found.originals.shape[1] not in (1, 3):
        return None
    originals = [stretched(picture, found.low, found.high) for picture in found.originals]
    recovered = [(level.name, [stretched(picture) for picture in level.recovered]) for level in found.levels]
    write_grid(path, [("original", originals), *recovered])
    return path
