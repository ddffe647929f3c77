"""From a table to predictions on new rows, and to a file that other programs read.

python examples/python/predict_and_export.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gossamer as gs

EXAMPLES = Path(__file__).parents[1]


def main(folder: Path | None = None) -> tuple[gs.Predictions, Path]:
    """Train on `wards.csv`, predict `wards-new.csv`, and export for PyTorch, into a folder or a temporary one."""
    folder = folder or Path(tempfile.mkdtemp())
    gs.run(gs.read_spec(EXAMPLES / "wards-gossip.yaml", ["evaluation=false"]), folder / "wards")

    model = gs.load_model(folder / "wards")  # its folder knows how columns are read, scaled and filled
    found = model.predict(EXAMPLES / "wards-new.csv")
    for row in found.rows()[:3]:
        print(row)

    exported = model.export("torch", folder / "model.pt2")
    print(f"{exported.name} takes {', '.join(model.features)}")
    return found, exported


if __name__ == "__main__":
    main()
