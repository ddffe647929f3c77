"""Takes the picture of the demo's report that the README shows; needs chromium and chromium-driver.

python docs/report_picture.py [RESULTS]

It runs the demo, or takes the results folder of one, and writes ``docs/report.png``.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.reference.browser import browser, show

import gossamer as gs
from gossamer.report.page import write_report
from gossamer.report.records import read_records

DOCS = Path(__file__).parent
WIDTH, HEIGHT, COLOURS = 1000, 1500, 64
MOST = 150_000  # bytes


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as scratch, browser() as driver:
        results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "demo"
        if len(sys.argv) == 1:
            gs.run(DOCS.parent / "examples" / "digits-gossip.yaml", results)
        page = write_report(read_records([results]), Path(scratch))
        show(driver, page, width=WIDTH)
        taken = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture = taken.crop((0, 0, WIDTH, min(HEIGHT, taken.height))).quantize(COLOURS)
    picture.save(DOCS / "report.png", optimize=True)
    size = (DOCS / "report.png").stat().st_size
    if size > MOST:
        raise SystemExit(f"docs/report.png has {size} bytes, expected at most {MOST}; take fewer colours")


if __name__ == "__main__":
    main()
