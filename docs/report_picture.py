"""Takes the picture of the demo's report that the README shows; needs chromium and chromium-driver.

python docs/report_picture.py [RESULTS]

It runs the demo, or takes the results folder of one, and writes ``docs/report.png``: the page to its trade-off curve.
"""

from __future__ import annotations

import base64
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
WIDTH, MARGIN, COLOURS = 1000, 16, 192
MOST = 150_000  # bytes


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as scratch, browser() as driver:
        results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "demo"
        if len(sys.argv) == 1:
            gs.run(DOCS.parent / "examples" / "digits-gossip.yaml", results)
        page = write_report(read_records([results]), Path(scratch))
        show(driver, page, width=WIDTH)
        curve = "document.querySelector('[aria-labelledby=part-privacy] [data-chart]').closest('figure')"
        end = driver.execute_script(f"return {curve}.offsetTop + {curve}.offsetHeight")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": end + MARGIN, "scale": 1}
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    picture = (
        Image.open(io.BytesIO(base64.b64decode(taken["data"])))
        .convert("RGB")
        .quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    )
    picture.save(DOCS / "report.png", optimize=True)
    size = (DOCS / "report.png").stat().st_size
    if size > MOST:
        raise SystemExit(f"docs/report.png has {size} bytes, expected at most {MOST}; take fewer colours")


if __name__ == "__main__":
    main()
