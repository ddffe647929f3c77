"""``gossamer attack inversion``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.options import FileName, add_spec, made_folder, naming, read_experiment
from gossamer.cli.printing import print_json, table
from gossamer.errors import CallerError, counted

if TYPE_CHECKING:
    from gossamer.experiment.audits.attacking import Inversion

DESCRIPTION = "Recover the first examples of the first node's shard from the gradients it would release."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
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
    command.add_argument("--out", action=FileName, help="folder for the figure (default: runs/<spec>-inversion)")
    command.set_defaults(command=inversion_command)


def inversion_command(options: argparse.Namespace) -> int:
    """Recover examples, draw them, and say how like the originals they are."""
    from gossamer.experiment.audits.attacking import invert
    from gossamer.experiment.preparation.prepare import prepare
    from gossamer.experiment.results.results_folder import to_json
    from gossamer.files import write_own

    if not all(1e-9 <= epsilon <= 1e12 for epsilon in options.epsilon):
        raise CallerError(f"--epsilon lies between 1e-9 and 10^12, found {options.epsilon}")
    experiment = read_experiment(options)
    with naming(options.spec):
        prepared = prepare(experiment)
    found = invert(
        prepared,
        examples=options.examples,
        batch_size=options.batch_size,
        epsilons=options.epsilon,
        method=options.method,
    )
    out = made_folder(options.out or Path("runs") / f"{options.spec.stem}-inversion")
    figure = _draw(found, out / "inversion.png")
    document = {**found.as_dict(), "figure": None if figure is None else str(figure)}
    write_own(out / "inversion.json", to_json(document, indent=2) + "\n")
    if options.json:
        print_json(document)
        return 0
    rows = [
        (level["level"], "-" if level["ssim"] is None else f"{level['ssim']:.3f}", f"{level['cosine']:.3f}")
        for level in document["levels"]
    ]
    print(
        f"{found.method} inversion of {counted(len(found.originals), 'batch', 'batches')} of {found.batch_size} at "
        f"{found.node}, initial model\n\n{table([('noise', 'mean SSIM', 'mean cosine'), *rows])}\n"
    )
    print(f"Figure: {figure}" if figure else "Examples are no pictures, so there is no SSIM and no figure.")
    return 0


def _draw(found: Inversion, path: Path) -> Path | None:
    from gossamer.report.attack_figures import stretched, write_grid

    if found.originals.ndim != 4 or found.originals.shape[1] not in (1, 3):
        return None
    shown = "original" if found.batch_size == 1 else "most alike"
    originals = [stretched(picture, found.low, found.high) for picture in found.originals]
    recovered = [(level.name, [stretched(picture) for picture in level.recovered]) for level in found.levels]
    write_grid(path, [(shown, originals), *recovered])
    return path
