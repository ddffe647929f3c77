"""The table of bad inputs, a module a group of kinds; `interrupts` has those that are no input of a command."""

from tests.end_to_end.bad_inputs import (
    archives,
    data,
    models,
    options,
    papers,
    paths,
    results,
    specs,
    tables,
    texts,
)
from tests.end_to_end.bad_inputs.case import Case

_PARTS = (texts, specs, options, paths, data, archives, tables, models, papers, results)
CASES: tuple[Case, ...] = tuple(case for part in _PARTS for case in part.CASES)
