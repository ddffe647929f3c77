"""The model card: what a model is for, whose data it learnt from, how well it does, and what is proved of its privacy.

References
----------
M. Mitchell et al., "Model cards for model reporting", FAT* 2019, whose sections these are; in the form that the Hugging
Face Hub reads, Markdown below lines of YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import yaml

from gossamer.errors import DataError, counted
from gossamer.files import MOST_RECORDS, as_written, read_text
from gossamer.objectives.score_words import said_first
from gossamer.privacy.guarantee_card import FILE as GUARANTEE
from gossamer.report.drawing import decimal
from gossamer.report.privacy import proved_of, sentence
from gossamer.report.records import RunRecord
from gossamer.report.scores import groups_of, private_evaluation, rows_of

MODEL, CARD = "model.json", "model-card.md"
"""Names of the file that has a model's card for programs, and of that for people."""
Card = Mapping[str, Any]
_NAMED = 12  # most classes that a sentence has


def card_of(record: RunRecord) -> Card | None:
    """The card of a run's model; None where there is no model, as of a run that has not come to one.

    Raises
    ------
    DataError
        If it is damaged.
    """
    if not (file := record.path / MODEL).exists():
        return None
    with as_written(file, "the card of a model", "run it again"):
        found = json.loads(read_text(file, MOST_RECORDS))
        return {**found, "data": {**found["data"]}, "about": {**(found.get("about") or {})}}


def opening(card: Card) -> list[str]:
    """Sentences that a page begins with: what is predicted, from which data, whose they are; and what it is for."""
    data, about = card["data"], card["about"]
    outcome = data["target"] if isinstance(data["target"], str) else "an outcome"
    what, classes = f"{outcome}, a number", [" or ".join(labels) for labels in data.get("classes") or ()]
    if len(classes) == 2:
        what = f"whether {outcome} is {' or '.join(classes)}"
    elif classes:
        more = ", ..." if len(classes) > _NAMED else ""
        what = f"which of {len(classes)} classes {outcome} is ({', '.join(classes[:_NAMED])}{more})"
    source = f"{counted(len(data['columns']), 'column')} of the table" if data.get("columns") else "the data set"
    whose = f": {about['persons']}" if about.get("persons") else "; nobody said whose data these are (about.persons)"
    owners = f", held by {counted(len({*card['owners']}), 'party', 'parties')}" if card.get("owners") else ""
    said = [f"This model predicts {what}, from {source} {data['name']}{owners}{whose}."]
    return said + [f"{words}: {about[name]}" for name, words in _SAID.items() if about.get(name)]


_SAID = {"purpose": "What it is for", "limits": "What it is not for", "decided": "Who decided"}


def model_card(record: RunRecord, *, public: bool = False) -> str:
    """Return the card of a run's model as Markdown; with ``public``, without what tells of more than was released.

    Raises
    ------
    DataError
        If the run has no model.
    """
    if (card := card_of(record)) is None:
        raise DataError(f"{record.path}: expected a model, with {MODEL}, found none; give a run that has ended")
    return "\n".join(_lines(record, card, public)) + "\n"


def _lines(record: RunRecord, card: Card, public: bool) -> Iterator[str]:
    head = {
        "library_name": "gossamer",
        "tags": ["federated-learning", "differential-privacy", *(["tabular"] if card["data"].get("columns") else [])],
    }
    yield f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n"
    yield f"# Model card: {record.name}\n"
    yield f"{opening(card)[0]}\n"
    for name, words in _SAID.items():
        yield f"## {words}\n\n{card['about'].get(name) or f'Nobody said (about.{name}).'}\n"
    yield "## Data\n"
    yield from _data(card)
    yield "\n## How well it does\n"
    yield from _scores(record, public)
    yield "\n## Privacy\n"
    yield from _proved(record)
    yield "\n## How to use it\n"
    made = _made(record, card, public)
    yield f"`gossamer predict {record.name} ROWS.csv`; written by Gossamer {card['gossamer']}, {made}."


def _data(card: Card) -> Iterator[str]:
    """Lines on what is declared of columns, and nothing that was found in rows."""
    if (columns := card["data"].get("columns")) is None:
        yield f"Examples of {' x '.join(map(str, card['data']['shape']))} numbers."
        return
    yield from _table(("column", "declared as"), ((name, _declared(column)) for name, column in columns.items()))


def _declared(column: Card) -> str:
    kind, texts, since = column.get("kind", "number"), column.get("categories"), column.get("since")
    said = str(kind) if texts is None else f"one of {', '.join(texts)}"
    if column.get("range"):
        low, high = (_value(end, since) for end in column["range"])
        said += f" from {low} to {high}"
    if since is not None and not (column.get("range") and since == low):
        said += f", in days since {since}"
    if column.get("parts"):
        said += f" ({', '.join(column['parts'])})"
    if "missing" in column:
        said += f"; an empty cell is read as {_value(column['missing'], since)}"
    return said + ("; a further feature says whether it was empty" if column.get("was_empty") else "")


def _value(value: bool | float | str, since: str | None) -> str:
    """Words for a value that a column declares; of days since a date, that date."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    try:
        first = date.fromisoformat(since or "")  # or the name of another column
        return (first + timedelta(days=value)).isoformat() if value == int(value) else f"{value:g}"
    except (ValueError, OverflowError):
        return f"{value:g}"


def _scores(record: RunRecord, public: bool) -> Iterator[str]:
    """Return how well the model does beside a constant, after what must be known first."""
    if (released := private_evaluation([record], public)) is not None:
        ((rows,), (told,)) = (released.values[key].values() for key in ("tables", "told"))
        what = "the sum of all parties' histograms" if told.get("together") else "histograms of each party"
        yield f"Of {what}, released once; intervals (95 %) hold the noise:\n"
        yield from _table([*rows[0]], ([*row.values()] for row in rows))
        yield ""
    if public:
        yield "Scores on test rows are left out: no guarantee covers them."
        return
    if not (rows := rows_of([record])):
        yield "It was not tested, or has no figures."
        return
    yield from (f"{line}\n" for line in said_first(record.scores))
    yield "On test rows, which no guarantee covers; *constant* is whoever says the same of every row:\n"
    yield from _table([*rows[0]], ([*row.values()] for row in rows))
    for title, groups in groups_of([record]):
        yield f"\nFigures {title}:\n"
        yield from _table([*groups[0]], ([*row.values()] for row in groups))


def _proved(record: RunRecord) -> Iterator[str]:
    for found in proved_of([record]):
        first = found.first
        yield f"{sentence(first)} Epsilon {decimal(first.epsilon)} at delta {decimal(first.delta)}.\n"
        yield from (f"- {line}" for line in first.assumptions)
        yield f"\nProof: {first.proof}. All of it is in `{GUARANTEE}`."
        return
    yield "Nothing is proved."


def _made(record: RunRecord, card: Card, public: bool) -> str:
    name = card["objective"].get("module") or card["objective"].get("name") or "a module from memory"
    made = f"{name} by {record.summary['algorithm']}"
    updates = record.summary.get("updates")  # of a deployed party there is no number
    if updates is None or (public and record.secret_schedule):  # how many there were tells whom the server drew
        return made
    return f"{made}, {counted(int(updates), 'update', form=',')}"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield f"|{'---|' * len(heading)}"
    yield from (f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def described(records: Sequence[RunRecord]) -> list[str]:
    """`opening` of the model of ``records``, where all have the same; of several models nothing."""
    found: Mapping[str, list[str]] = {
        "\n".join(said): said for record in records if (card := card_of(record)) and (said := opening(card))
    }
    return next(iter(found.values())) if len(found) == 1 else []
