"""Cost of ``gossamer run --live``: seconds with the page over seconds without it, while a browser follows the run.

Both commands run the demo, in fresh processes and in turns; a ratio is of two that ran one after the other, and the
figure is the median. The client asks what the page's own script asks, when that would: how far the run is every five
seconds, and for the report when there is more of it. What a browser itself takes to draw is not in it.
Processor time is that of the command's own process, without the page's, and hardly depends on what else the machine
does: where a processor is free for the page, this is what a run waits for. Linux alone has it.

    python benchmarks/live_page.py [--json] [--pairs N] [--seconds VIRTUAL]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[1] / "examples" / "digits-gossip.yaml"
REQUIRED = 1.05
"""Ratio of wall time, at most."""
_LOOK = 5.0  # seconds between two looks of the page's script


def once(seconds: int, out: Path, live: bool) -> dict[str, float]:
    """Seconds of one run, and how often its report was drawn."""
    stop = ("--set", f"stop.virtual_seconds={seconds}", "--set", f"algorithm.updates_per_node={seconds}")
    command = [sys.executable, "-m", "gossamer", "run", str(DEMO), *stop, "--out", str(out), "--overwrite"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, *(["--live"] if live else [])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    drawn: list[int] = []
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+", line):
            threading.Thread(target=_follow, args=(found[0], drawn), daemon=True).start()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall, processor = time.perf_counter() - start, _processor_seconds(process.pid)
    if process.wait():
        raise SystemExit("the run failed")
    return {"wall": wall, "processor": processor, "drawn": len(drawn)}


def _processor_seconds(pid: int) -> float:
    """Processor time of a process that has ended, and of none that it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _follow(address: str, drawn: list[int]) -> None:
    """Ask as the page's script does, until nobody answers; ``drawn`` gets the length of each report."""
    shown = None
    try:
        _asked(address)
        while True:
            found = json.loads(_asked(f"{address}state"))
            if found != shown:
                drawn.append(len(_asked(f"{address}report")))
            shown = found
            time.sleep(_LOOK)
    except OSError:
        return


def _asked(address: str) -> bytes:
    with urllib.request.urlopen(address) as answer:
        return bytes(answer.read())


def measured(pairs: int, seconds: int, folder: Path) -> dict[str, Any]:
    """Medians over pairs, the order in a pair changing from one to the next."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for pair in range(pairs):
        for live in (False, True) if pair % 2 else (True, False):
            found[live].append(once(seconds, folder / "out", live))
    both = list(zip(found[True], found[False], strict=True))
    figures: dict[str, Any] = {
        f"{name}_ratio": round(statistics.median(w[name] / wo[name] for w, wo in both), 3)
        for name in ("wall", "processor")
    }
    figures |= {"processor_seconds_without": round(statistics.median(one["processor"] for one in found[False]), 1)}
    figures |= {"reports_drawn": statistics.median(one["drawn"] for one in found[True]), "pairs": pairs}
    for name in ("wall", "processor"):
        figures[f"{name}_ratios"] = [round(w[name] / wo[name], 3) for w, wo in both]
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=1500, help="virtual seconds of the run (default: 1500)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measured(options.pairs, options.seconds, Path(name))
    if options.json:
        print(json.dumps({"gossamer run --live": figures, "required wall_ratio, at most": REQUIRED}, indent=2))
        return
    print(f"{'gossamer run --live':24}  wall ratio {figures['wall_ratio']:.3f}, at most {REQUIRED} required")
    print("\n".join(f"  {name.replace('_', ' ')}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
