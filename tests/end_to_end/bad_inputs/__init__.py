"""The table of bad inputs, a module a group of kinds."""

from tests.end_to_end.bad_inputs import data, options, papers, paths, results, specs, texts
from tests.end_to_end.bad_inputs.case import Case

CASES: tuple[Case, ...] = tuple(
    case for part in (texts, specs, options, paths, data, papers, results) for case in part.CASES
)
