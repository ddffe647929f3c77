"""Section of a report about what each node did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.report import words
from gossamer.report.figure import Figure
from gossamer.report.node_figures import clips, dots, staleness
from gossamer.report.node_records import FILE, PRIVATE, NodeRecord, read_nodes
from gossamer.report.records import RunRecord
from gossamer.report.timeline import timeline
from gossamer.report.topology import EDGES, NODES, topology

RUNS, ROWS = 3, 50
"""Most runs whose nodes are shown, and most nodes of a table."""

_FIGURES: Mapping[str, Callable[[NodeRecord, str], Figure | None]] = {
    "timeline": timeline,
    "staleness": staleness,
    "clips": clips,
    "topology": topology,
    "nodes": dots,
}


class Column(NamedTuple):
    """A column of the table of nodes: its heading, and a figure of ``nodes.json``."""

    heading: str
    figure: str


_COLUMNS = (
    Column("accuracy", "test_accuracy"),
    Column("loss", "test_loss"),
    Column("updates", "updates"),
    Column("computing, s", "computing_seconds"),
    Column("waiting, s", "idle_seconds"),
    Column("away, s", "away_seconds"),
    Column("messages", "messages"),
    Column("bytes sent", "bytes"),
    Column("staleness", "staleness"),
    Column("clip", "clip"),
    Column("releases", "releases"),
    Column("epsilon planned", "epsilon_planned"),
)
_SORTED = (
    ("test_accuracy", 1, "accuracy, lowest"),
    ("test_loss", -1, "loss, highest"),
    ("updates", 1, "updates, fewest"),
)


def section_values(records: Sequence[RunRecord], public: bool) -> tuple[list[Figure], dict[str, Any]] | None:
    """Return the figures and tables of the nodes of ``records``, or None where no folder tells of them."""
    there = [record for record in records if (record.path / FILE).exists()]
    if not there:
        return None
    told = [nodes.without(PRIVATE) if public else nodes for nodes in map(read_nodes, there[:RUNS])]
    figures, tables = [], []
    for place, record in enumerate(told):
        suffix = f"-{place + 1}" if place else ""
        made = [figure for name, maker in _FIGURES.items() if (figure := maker(record, name + suffix)) is not None]
        figures += made
        tables.append({"name": f"table-of-nodes{suffix}", "run": record.run, **_table(record)})
    return figures, {"tables": tables, "notes": _notes(told, len(there))}


def _notes(told: Sequence[NodeRecord], found: int) -> list[str]:
    """Say what is left out."""
    said = []
    if found > len(told):
        said.append(f"Nodes are shown of the first {len(told)} of {found} runs; make a report of others alone.")
    for record in told:
        if not record.nodes:
            said.append(f"{record.run} has {record.total:,} nodes, too many to tell of each.")
        elif not record.edges and len(record.nodes) > 1:
            said.append(f"Nobody is joined to anybody in {record.run}, or too many are to draw it.")
        elif len(record.nodes) > NODES or len(record.edges) > EDGES:
            said.append(
                f"{record.run} has {len(record.nodes):,} nodes and {len(record.edges):,} edges, too many to draw who "
                "was joined to whom."
            )
    return said


def _table(record: NodeRecord) -> dict[str, Any]:
    """Return rows of text, those first that a reader should look at, and what they are."""
    if not record.nodes:
        return {"rows": [], "words": ""}
    figure, sign, order = next(one for one in _SORTED if record.has(one[0]))
    known = sorted((n for n in record.nodes if figure in n), key=lambda node: sign * float(node[figure]))
    ordered = [*known, *(node for node in record.nodes if figure not in node)]
    columns = [column for column in _COLUMNS if _tells(record, column.figure)]
    rows = [
        {
            "node": node["name"],
            **{column.heading: words.figure(column.figure, node.get(column.figure)) for column in columns},
        }
        for node in ordered[:ROWS]
    ]
    some = f" {ROWS} of {len(ordered):,} are here, and all in the data of the figure." if len(ordered) > ROWS else ""
    return {"rows": rows, "words": f"Sorted by {order} first.{some}"}


def _tells(record: NodeRecord, figure: str) -> bool:
    """Whether a column says anything: nobody was away in most runs."""
    return record.has(figure) and (figure != "away_seconds" or any(node.get(figure) for node in record.nodes))
