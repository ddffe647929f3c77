"""``gossamer flower``."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from gossamer.cli.commands import naming, read_experiment, settings_of
from gossamer.cli.runs.run import told_run
from gossamer.experiment.specs.folder_names import default_folder


def flower_command(options: argparse.Namespace) -> int:
    """Run the clients of a Flower app, and say what came of it."""
    from gossamer.experiment.runs.running import run
    from gossamer.flower.app import FlowerApp, settled

    with naming(options.spec):
        spec = settled(read_experiment(options))
    out = options.out or default_folder(options.spec, "", spec.seed, settings_of(options))
    more = {"overwrite": options.overwrite, "trace": options.trace, "track": options.track, "checkpoint": None}
    python = options.python or sys.executable
    with closing(FlowerApp(options.app, spec.algorithm.nodes, python, spec.seed, options.timeout)) as app:
        return told_run(options, out, lambda shown: run(spec, out, data=app.data(), module=app, progress=shown, **more))
