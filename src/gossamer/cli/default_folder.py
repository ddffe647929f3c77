"""The folder that results go to unless ``--out`` says another: its name tells runs of one spec apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gossamer.experiment.setting_names import setting_name


def default_folder(spec: Path, kind: str, seed: int | None, settings: Sequence[str]) -> Path:
    """The folder for the results of a spec, such as ``runs/digits-gossip-seed0,algorithm.batch_size=8``.

    Parameters
    ----------
    spec : Path
        The file.
    kind : str
        What stands between the spec's name and the seed, such as ``up``; may be empty.
    seed : int or None
        Of the run; None where the folder is for runs of several.
    settings : sequence of str
        Overrides, as ``--set`` takes them, of which the last one of a key counts, and names of other options. Their
        order does not count.
    """
    parts = (setting.partition("=") for setting in settings)
    given = {key.strip(): value.strip() if equals else None for key, equals, value in parts}
    given.pop("seed", None)
    name = "-".join(part for part in (spec.stem, kind, "" if seed is None else f"seed{seed}") if part)
    said = setting_name(given)
    return Path("runs") / (f"{name},{said}" if said else name)
