"""The page and the plot of ``docs/``, from the JSON of a run.

    python benchmarks/peers/page.py RESULTS.json

Copies the JSON to ``docs/benchmarks.json``, writes what stands between the page's markers, and draws
``docs/benchmarks.svg``. No figure on the page is typed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[0] = str(HERE.parent)

from peers.jobs import COHORT, NOTES  # noqa: E402

DOCS = HERE.parents[1] / "docs"
PAGE, KEPT, PLOT = DOCS / "benchmarks.md", DOCS / "benchmarks.json", DOCS / "benchmarks.svg"
BLOCK = re.compile(r"(<!-- results -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_YET = "\nNo results are kept yet.\n\n"
HEADINGS = {
    "step": "A private step",
    "clients": "Updates of federated clients",
    "workers": "Sixteen asynchronous workers",
    "rounds": "Sequential steps of single examples",
}
COLOURS = {
    "Gossamer": "#0072b2",
    "Gossamer gossip": "#56b4e9",
    "vmap(grad)": "#999999",
    "Opacus hooks": "#d55e00",
    "Opacus ew": "#e69f00",
    "Opacus ghost": "#cc79a7",
    "pfl-research": "#009e73",
    "Flower": "#000000",
}


class Unfit(Exception):
    """Why results are not for the page, in one line."""


def check(results: dict[str, Any]) -> None:
    """Raise Unfit for results that are no measurement of a commit."""
    if results.get("benchmark") != "peers":
        raise Unfit("expected the JSON of benchmarks/peers")
    if results["quick"]:
        raise Unfit("the figures of --quick are no measurement; run it without")
    if results["commit"].endswith("-changed") or results["commit"] == "unknown":
        raise Unfit(f"expected results of a commit, found {results['commit']}; commit first")


def jobs_of(rows: Sequence[dict[str, Any]], kind: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of a kind by their jobs, least first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == kind:
            found.setdefault(row["job"], []).append(row)
    return {job: sorted(each, key=lambda row: row["ratio"]) for job, each in found.items()}


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table, header first."""
    head, *rest = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rest)) + "\n"


def described(row: dict[str, Any]) -> str:
    """What a job is, without its kind."""
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    return f"{row['model']}, batch {row['batch']}, {threads}"


def results_of(rows: Sequence[dict[str, Any]], kind: str) -> str:
    """The section of a kind of job."""
    rate = ["updates a second"] if kind == "clients" else []
    lines = [["job", "base", "way", "time / base", "middle half", "ms", *rate, "differs by"]]
    for each in jobs_of(rows, kind).values():
        for row in each:
            low, high = row["quartiles"]
            seconds = [f"{1 / row['seconds']:.0f} ({1 / row['base_seconds']:.0f})"] if rate else []
            differs = "-" if row["difference"] is None else f"{row['difference']:.0e}"
            cells = [described(row), row["base"], row["way"], f"{row['ratio']:.2f}", f"{low:.2f} to {high:.2f}"]
            lines.append([*cells, f"{1e3 * row['seconds']:.3g}", *seconds, differs])
    note = f"\nRounds of {COHORT} clients; in brackets the plain loop's updates a second.\n" if rate else ""
    return f"## {HEADINGS[kind]}\n\n{table(lines)}{note}"


def text(results: dict[str, Any]) -> str:
    """Everything between the markers."""
    machine, rows = results["machine"], results["rows"]
    versions = "; ".join(
        f"{name}: {', '.join(f'{package} {version}' for package, version in packages.items())}"
        for name, packages in results["versions"].items()
    )
    head = (
        f"Measured on {results['date']} at commit `{results['commit'][:12]}` on {machine['cores']} cores of "
        f"{machine['processor']}, load {machine['load_before']} before and {machine['load_after']} after, seed "
        f"{results['seed']}. Versions: {versions}. All figures: [benchmarks.json](benchmarks.json).\n"
    )
    plot = "![Time of each way relative to a plain loop](benchmarks.svg)\n"
    sections = [results_of(rows, kind) for kind in HEADINGS if jobs_of(rows, kind)]
    ways = [way for way in NOTES if any(row["way"] == way for row in rows)]
    used = table([["way", "configuration"], *([way, NOTES[way]] for way in ways)])
    lines = [f"- {item['what']}: {item['why']}\n" for item in results["left_out"]]
    absent = "## Left out\n\n" + ("".join(lines) or "Nothing.\n")
    return "\n" + "\n".join([head, plot, *sections, f"## Configurations\n\n{used}", absent]) + "\n"


def written(page: str, results: dict[str, Any] | None) -> str:
    """Return ``page`` with the results that it should have."""
    inside = NOT_YET if results is None else text(results)
    return BLOCK.sub(lambda found: found[1] + inside + found[2], page)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a row of points for each job: time relative to the base, on a logarithmic axis."""
    import matplotlib  # in the extra "figures"

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "peers"  # the same file for the same results
    groups = [(job, each) for kind in HEADINGS for job, each in jobs_of(rows, kind).items()]
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.36 * len(groups)), layout="constrained")
    axes.axvline(1, color="#bbbbbb", linewidth=1, zorder=0)
    told: set[str] = set()
    shift = {way: 0.08 * (n - 3.5) for n, way in enumerate(COLOURS)}  # ways that take as long stay apart
    for line, (_, each) in enumerate(groups):
        for row in each:
            way = row["way"]
            label = None if way in told else way
            told.add(way)
            height = line + shift[way]
            axes.plot(row["quartiles"], [height] * 2, color=COLOURS[way], linewidth=2, alpha=0.5)
            axes.plot(row["ratio"], height, "o", color=COLOURS[way], markersize=6, label=label)
    axes.set_xscale("log")
    axes.set_xticks(ticks := [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(min(row["quartiles"][0] for row in rows) / 1.3, max(row["quartiles"][1] for row in rows) * 1.3)
    axes.set_yticks(range(len(groups)), [job for job, _ in groups])
    axes.invert_yaxis()
    axes.grid(axis="y", color="#eeeeee", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("time relative to the job's plain loop (less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main(arguments: Sequence[str]) -> int:
    """Write the page, the plot and the copy of the results."""
    if len(arguments) != 1:
        print("page: expected one file, the JSON of a run: python benchmarks/peers/page.py FILE", file=sys.stderr)
        return 2
    try:
        results = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        check(results)
    except (OSError, ValueError, KeyError, Unfit) as problem:
        print(f"page: {arguments[0]}: {problem}", file=sys.stderr)
        return 2
    KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results["rows"], PLOT)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
