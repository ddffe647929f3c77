"""A first spec for one's own table, with a comment on each line: private, and sound as it is written.

All constants of it are public: what the user declares, and what every guarantee takes to be public anyway, namely the
columns' names, how many rows there are, how many owners, and how few rows an owner has.

Of n rows delta is the largest power of ten that is at most 1/(10 n). With owners, each is a node of gossip; without,
all rows are in one place. A step takes about half of the fewest rows that a node trains on, at most 10,000, so that the
noise of a step is small beside its sum. Rate, steps and clip are those of `linear_rules`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import resources
from typing import Any

import yaml

from gossamer.data.columns import Column
from gossamer.data.table_survey import LookedAt
from gossamer.experiment.specs.linear_rules import LinearRules
from gossamer.experiment.specs.spec_file import override
from gossamer.privacy.accounting.gaussian_dp import gaussian_mu

_TESTED = 0.2
"""Share of the rows that is held out for testing, as specs have it by default."""
_MOST_BATCH = 10_000


@dataclass
class Draft:
    """Declaration of a table by its user, from which a spec is written once it is complete.

    Attributes
    ----------
    name, path : str
        Name and path of the data set; the path as seen from the spec's folder.
    target : str
        The column to be predicted.
    labels : sequence of str or int
        Classes of the target; none for a regression.
    columns : dict of str to plain data
        Features, as ``dataset.columns`` has them, but for what is said of empty cells.
    missing : dict of str to plain data
        Values that an empty cell is read as, by column.
    column_marks : dict of str to list of str
        Marks that say nothing in cells, by column.
    left_out : list of str
        Columns that are no features.
    rows, fewest : int
        Number of rows, and of those at the owner that has fewest.
    owner : str or None
        The column that says whose row it is.
    owners : int
        Number of owners; 1 without such a column.
    csv : mapping of str to plain data
        Ways in which the file is written, where that is not as usual.
    epsilon : float
        Epsilon of the budget.
    delta : float or None
        Delta of the budget; by default that of the rule.
    target_range : plain data, optional
        Range of a regression's target, as ``dataset.target_range`` has it.
    person : str or None
        The column that says which person a row is about.
    rows_per_person : int
        Most rows that a person may have.
    marks : list of str
        Marks that say nothing in cells of any other column, beside the usual ones.
    was_empty : list of str
        Columns of which a further feature says whether the cell was empty.
    drop_unlabelled : bool
        Whether rows without a target are left out.
    about : dict of str to str
        What people say of the model, as the section ``about`` has it.
    prevalence : float or None
        Share of the second of two classes, as it is known without the rows.
    private : bool
        Whether there is noise.
    tested : bool
        Whether test rows are kept back of these rows, and not in a file of their own.
    """

    name: str = ""
    path: str = ""
    target: str = ""
    labels: Sequence[str | int] = ()
    columns: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, Any] = field(default_factory=dict)
    column_marks: dict[str, list[str]] = field(default_factory=dict)
    rows: int = 0
    fewest: int = 0
    left_out: list[str] = field(default_factory=list)
    owner: str | None = None
    owners: int = 1
    csv: Mapping[str, Any] = field(default_factory=dict)
    epsilon: float = 1.0
    delta: float | None = None
    target_range: Any = None
    person: str | None = None
    rows_per_person: int = 1
    marks: list[str] = field(default_factory=list)
    was_empty: list[str] = field(default_factory=list)
    drop_unlabelled: bool = False
    prevalence: float | None = None
    about: dict[str, str] = field(default_factory=dict)
    private: bool = True
    tested: bool = True

    @property
    def trained(self) -> float:
        """Rows that the smallest owner trains on."""
        return self.fewest * (1 - _TESTED * self.tested)

    @property
    def rules(self) -> LinearRules:
        """Rules for a linear model of this table."""
        delta = delta_of(self.rows) if self.delta is None else self.delta
        p, of_unit = self.prevalence, isinstance(self.target_range, Mapping) and "mean" in self.target_range
        return LinearRules(
            [Column.model_validate(self.column(name)) for name in self.columns],
            _LOSSES.get(len(self.labels), "softmax"),
            max(1, len(self.labels)) if len(self.labels) != 2 else 1,
            self.trained / self.rows_per_person,
            self.owners,
            gaussian_mu(self.epsilon, delta) if self.private else math.inf,
            None if p is None else min(p, 1 - p),
            of_unit,
        )

    @property
    def roles(self) -> dict[str, str]:
        """Columns that are no features, by what they are."""
        found = {"target": self.target, "owner": self.owner, "person": self.person}
        return {what: name for what, name in found.items() if name is not None}

    def read(self, name: str, column: LookedAt) -> LookedAt:
        """A column as it was found, read as it was declared."""
        return column.read(self.column_marks.get(name, self.marks), texts_in(self.columns.get(name)))

    def column(self, name: str) -> Any:
        """Declaration of one column, as short as it can be."""
        found = self.columns.get(name, "number")
        held = {"missing": self.missing, "missing_marks": self.column_marks}
        more = {key: values[name] for key, values in held.items() if name in values}
        more |= {"was_empty": True} if name in self.was_empty and name in self.missing else {}
        if not more:
            return found
        if isinstance(found, list):
            return {"categories" if texts_in(found) else "range": found} | more
        return (dict(found) if isinstance(found, Mapping) else {} if found == "number" else {"kind": found}) | more


def texts_in(column: Any) -> list[str]:
    """The categories of a declaration; none if it has others."""
    return column if isinstance(column, list) and isinstance(column[0], str) else []


def delta_of(rows: int) -> float:
    """The largest power of ten that is at most a tenth of one over ``rows``."""
    return float(f"1e-{math.ceil(math.log10(10 * rows) - 1e-9)}")


def draft(given: Draft) -> str:
    """Write the spec of a table, as YAML with comments."""
    text = resources.files(__package__).joinpath("first_spec.txt").read_text("utf-8").removesuffix("\n")
    head, of_owners, alone, steps, noise = text.split("---\n")
    rest = (alone if given.owner is None else of_owners) + steps + (noise if given.private else "privacy: none\n")
    sections = rest.format(**_rest(given)) + _about(given.about)
    return head.format(name=_line(given.name), path=_line(given.path)) + _dataset(given) + sections


def _about(words: Mapping[str, str]) -> str:
    lines = [f"  {key}: {_value(text)}\n" for key, text in words.items()]
    return "".join(["about: # what people say of the model, for its card\n", *lines]) if lines else ""


def _dataset(given: Draft) -> str:
    classes = list(given.labels)
    of_target: dict[str, tuple[Any, str]] = {
        "task": ("regression", ""),
        "target_range": (given.target_range, "learnt as -1 .. 1; predictions are in its own unit"),
    }
    if classes:
        of_target = {
            "labels": (classes, "its classes; predictions are given in these words"),
            "prevalence": (given.prevalence, f"share of {_value(classes[-1])}, known without these rows"),
        }
    said = {
        "name": (given.name, ""),
        "path": (given.path, ""),
        "csv": (dict(given.csv), "how the file is written"),
        "target": (given.target, "what is predicted"),
        **of_target,
        "drop_unlabelled": (given.drop_unlabelled, "rows without a target are left out, and counted"),
        "owner": (given.owner, "whose row it is; an owner's rows stay at its node"),
        "person": (given.person, "which person a row is about; no feature"),
        "missing_marks": (list(given.marks), "cells that say nothing, beside empty ones"),
    }
    lines = ["dataset:"]
    for key, (value, why) in said.items():
        lines += [f"  {key}: {_value(value)}{why and f' # {why}'}"] if value or value == "" else []
    names = ", ".join(_line(name) or "a column without a name ('')" for name in given.left_out)
    left = f"; left out: {names}" if names else ""
    lines.append(f"  columns: # the features, in this order{left}")
    columns = {name: given.column(name) for name in given.columns}
    lines += [f"    {_value(name)}: {_value(column)} # {_remark(column)}" for name, column in columns.items()]
    if any(map(unscaled, columns.values())):
        lines.append(
            "  scale: private # of numbers without a range: found by a noisy release before a run, in the budget; "
            "parties of a federation have to declare one"
        )
    return "\n".join(lines) + "\n"


def unscaled(column: Any) -> bool:
    """Whether a column is a number that no constants are declared for."""
    whole = column if isinstance(column, Mapping) else {"kind": column}
    return whole.get("kind", "number") == "number" and not isinstance(column, list) and not whole.keys() & _SAID


_SAID = {"range", "mean", "categories"}


def _remark(column: Any) -> str:
    """A comment on a column."""
    filled = isinstance(column, Mapping) and "missing" in column
    gaps = f"; an empty cell counts as {_line(_value(column['missing']))}" if filled else ""
    whole = column if isinstance(column, Mapping) else {}
    if whole.get("missing_marks"):
        gaps += f"; empty is {_line(', '.join(whole['missing_marks']))}, too"
    gaps += "; a further feature says that it was" if whole.get("was_empty") else ""
    items = column if isinstance(column, list) else whole.get("range") or whole.get("categories")
    if "mean" in whole:
        return f"a number, less its mean and over its deviation{gaps}"
    if column == "boolean" or whole.get("kind") == "boolean":
        return f"0 or 1{gaps}"
    if not items:
        return f"scaled privately; better a range that is known without these rows, such as [0, 100]{gaps}"
    if isinstance(items[0], date):
        return f"days from the first date to the last, mapped to -1 .. 1{gaps}"
    if isinstance(items[0], str):
        return f"a feature for each, 1 where a row has it{gaps}"
    return f"mapped to -1 .. 1; beyond, the nearer end{gaps}"


def _rest(given: Draft) -> dict[str, Any]:
    """Values that the sections after the data set are filled in with."""
    half, rules = max(1, int(given.trained) // 2), given.rules
    return dict(
        objective=f"{rules.loss} # a linear model{_KINDS[rules.loss]}",
        owners=given.owners,
        topology="complete" if given.owners <= _FEW else "exponential",
        batch=f"{half} # about half" if half <= _MOST_BATCH else f"{_MOST_BATCH} # some",
        rate=f"{rules.rate:g}",
        updates=f"{rules.updates} # as many as the noise lets learn from" if given.private else _WITHOUT_NOISE,
        optimizer="" if given.private else "  optimizer: {name: momentum, momentum: 0.9}\n",
        clip=rules.clip,
        whom="one of its rows" if given.rows_per_person == 1 else "all rows of a person",
        persons=""
        if given.person is None and given.rows_per_person == 1
        else _PERSONS.format(rows=given.rows_per_person),
        epsilon=f"{given.epsilon:g}",
        delta=_value(delta_of(given.rows) if given.delta is None else given.delta),
        which=f"at most a tenth of 1 over the {given.rows:,} rows" if given.delta is None else "as asked for",
    )


_FEW, _WITHOUT_NOISE = 10, "500 # without noise"
_LOSSES = {0: "squared", 2: "logistic"}
_KINDS = {"squared": "", "logistic": " of two classes", "softmax": " of several classes"}


def _value(value: Any) -> str:
    """A value in one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return text.removesuffix("...\n").strip("\n")


def _line(text: str) -> str:
    """A text in a comment, which ends where the line does."""
    return " ".join(text.split())


_PERSONS = "  rows_per_person: {rows} # the most that one person has\n"


def with_settings(text: str, settings: Sequence[str]) -> str:
    """A spec's text with overrides such as ``dataset.test_fraction=0.1``, a line for each."""
    after = override(yaml.safe_load(text), settings)
    for setting in settings:
        section, key = [*setting.partition("=")[0].split("."), ""][:2]
        block = re.search(rf"(?m)^{re.escape(section)}:\n(?: .*\n)*", text) if key else None
        if block is None:
            rest = re.sub(rf"(?m)^{re.escape(section)}:.*\n(?: .*\n)*", "", text)
            text = f"{rest}{section}: {_value(after[section])} # as asked for\n"
            continue
        kept = re.sub(rf"(?m)^  {re.escape(key)}:.*\n(?:   .*\n)*", "", block[0])
        line = f"  {key}: {_value(after[section][key])} # as asked for\n"
        text = text[: block.start()] + kept + line + text[block.end() :]
    return text
