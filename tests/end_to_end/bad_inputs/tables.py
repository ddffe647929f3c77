"""Tables whose columns are declared: declarations that do not fit, and cells."""

from __future__ import annotations

from tests.end_to_end.bad_inputs.case import RUN, Case, accepted
from tests.end_to_end.bad_inputs.paths import ODD

COLUMNS = "age: [0, 120], sex: [female, male], smoker: boolean, weight: {range: [0, 200], missing: 70}"
ROW = "40,female,yes,80,no"


def table(*rows: str) -> str:
    """A table that is in order, with more rows."""
    good = [
        f"{20 + i % 60},{('female', 'male')[i % 2]},{('yes', 'no')[i % 3 > 0]},{50 + i % 40},{('no', 'yes')[i % 2]}"
        for i in range(200)
    ]
    return "\n".join(["age,sex,smoker,weight,outcome", *good, *rows, ""])


def declared(columns: str = COLUMNS, more: str = "") -> str:
    data = f"name: wards, path: rows.csv, target: outcome, labels: ['no', 'yes'], columns: {{{columns}}}{more}"
    return RUN.replace("dataset: digits", f"dataset: {{{data}}}")


DECLARED: tuple[tuple[str, str, str, str], ...] = (
    ("a column that is not there", COLUMNS + ", height: [0, 3]", "", "height"),
    ("the target", COLUMNS + ", outcome: number", "", "outcome"),
    ("a range upside down", COLUMNS.replace("[0, 120]", "[120, 0]"), "", "columns.age"),
    ("a range of nothing", COLUMNS.replace("[0, 120]", "[5, 5]"), "", "columns.age"),
    ("a range of one number", COLUMNS.replace("[0, 120]", "[5]"), "", "columns.age"),
    ("a range of three", COLUMNS.replace("[0, 120]", "[0, 5, 9]"), "", "columns.age"),
    ("a range with NaN", COLUMNS.replace("[0, 120]", "[0, .nan]"), "", "columns.age"),
    ("a range without end", COLUMNS.replace("[0, 120]", "[0, .inf]"), "", "columns.age"),
    ("a range of truth values", COLUMNS.replace("[0, 120]", "[no, yes]"), "", "columns.age"),
    ("a range of a number and a text", COLUMNS.replace("[0, 120]", "[0, old]"), "", "columns.age"),
    ("a deviation of 0", COLUMNS.replace("[0, 120]", "{mean: 40, deviation: 0}"), "", "columns.age"),
    ("a mean without deviation", COLUMNS.replace("[0, 120]", "{mean: 40}"), "", "columns.age"),
    ("a range and a mean", COLUMNS.replace("[0, 120]", "{range: [0, 9], mean: 40, deviation: 3}"), "", "columns.age"),
    ("an unknown kind", COLUMNS.replace("boolean", "bool"), "", "columns.smoker"),
    ("an unknown key", COLUMNS.replace("missing", "mising"), "", "mising"),
    ("a number for a column", COLUMNS.replace("boolean", "3"), "", "columns.smoker"),
    ("nothing for a column", COLUMNS.replace("boolean", ""), "", "columns.smoker"),
    ("a category twice", COLUMNS.replace("[female, male]", "[female, female]"), "", "columns.sex"),
    ("no categories", COLUMNS.replace("[female, male]", "{categories: []}"), "", "columns.sex"),
    (
        "a filling that is no category",
        COLUMNS.replace("[female, male]", "{categories: [female, male], missing: x}"),
        "",
        "columns.sex",
    ),
    ("a filling that is no number", COLUMNS.replace("missing: 70", "missing: many"), "", "columns.weight"),
    ("no columns", "", "", "dataset.columns: expected 1 or more of them, found 0"),
    ("features as well", COLUMNS, ", features: [age]", "features"),
    ("ignore as well", COLUMNS, ", ignore: [age]", "ignore"),
    ("an unknown scale", COLUMNS, ", scale: standard", "scale"),
    ("a number for a scale", COLUMNS, ", scale: 3", "scale"),
    ("a share above 1", COLUMNS, ", scale: {name: private, share: 2}", "scale"),
    ("an unknown encoding", COLUMNS, ", csv: {encoding: utf-99}", "encoding"),
    ("a separator of two letters", COLUMNS, ", csv: {separator: ';;'}", "separator"),
    (
        "a separator that is the decimal sign",
        COLUMNS,
        ", csv: {separator: ',', decimal: ','}",
        "a comma cannot stand between cells and in numbers",
    ),
    ("an unknown key of csv", COLUMNS, ", csv: {seperator: ';'}", "did you mean separator?"),
    ("another separator than the file's", COLUMNS, ", csv: {separator: ';'}", "separator"),
    ("a header that is not there", COLUMNS, ", csv: {header: false}", "rows.csv"),
)
"""Declarations of columns of a table that is in order, and more settings of its data."""

CELLS: tuple[tuple[str, str, str], ...] = (
    ("a category that was not declared", ROW.replace("female", "other"), "line 202, column 'sex'"),
    ("an empty category", ROW.replace("female", ""), "line 202, column 'sex'"),
    ("an empty number", ROW.replace("40", ""), "line 202, column 'age'"),
    ("a text for a number", ROW.replace("40", "forty"), "line 202, column 'age'"),
    ("infinite", ROW.replace("40", "inf"), "line 202, column 'age'"),
    ("a truth value that is none", ROW.replace("yes", "perhaps"), "line 202, column 'smoker'"),
    ("a label that was not declared", ROW.replace(",no", ",dead"), "dead"),
    ("an empty label", ROW.replace(",no", ","), "line 202"),
)
"""A row of a table whose columns are declared."""

RANGES: tuple[tuple[str, str, str], ...] = (
    ("upside down", "[200, 50]", "range must be [least, most], the least being less, found [200, 50]"),
    ("of nothing", "[80, 80]", "dataset.target_range"),
    ("of one number", "[80]", "dataset.target_range"),
    ("of three", "[0, 80, 200]", "dataset.target_range"),
    ("of none", "[]", "dataset.target_range"),
    ("with NaN", "[.nan, 200]", "dataset.target_range"),
    ("without end", "[0, .inf]", "dataset.target_range"),
    ("of texts", "[low, high]", "dataset.target_range"),
    ("of truth values", "[no, yes]", "dataset.target_range"),
    ("that is a text", "wide", "such as [80, 200], found 'wide'"),
    ("that is a number", "200", "such as [80, 200], found 200"),
    ("too wide for float32", "[-1.0e+300, 1.0e+300]", "numbers must fit float32"),
    ("too narrow for float32", "[0, 1.0e-300]", "numbers must fit float32"),
    ("by a mean alone", "{mean: 80}", "give a mean and a deviation"),
    ("by a deviation of 0", "{mean: 80, deviation: 0}", "dataset.target_range"),
    ("with an unknown key", "{ranges: [0, 9]}", "ranges"),
    ("that a target does not fit", "{mean: 0, deviation: 1.0e-37}", "no finite number of float32 once it is scaled"),
)
"""Ranges of a target that is a number."""


def regression(target_range: str, task: str = "regression", columns: str = "age: [0, 120]") -> str:
    data = f"name: wards, path: rows.csv, target: weight, task: {task}, columns: {{{columns}}}"
    return RUN.replace("dataset: digits", f"dataset: {{{data}, target_range: {target_range}}}")


KIND = "table"
CASES: tuple[Case, ...] = (
    *(
        Case(
            f"columns: {name}",
            KIND,
            "check spec.yaml",
            says,
            {"spec.yaml": declared(columns, more), "rows.csv": table()},
        )
        for name, columns, more, says in DECLARED
    ),
    *(
        Case(
            f"target: a range {name}",
            KIND,
            "check spec.yaml",
            says,
            {"spec.yaml": regression(said), "rows.csv": table()},
        )
        for name, said, says in RANGES
    ),
    Case(
        "target: a range of classes",
        KIND,
        "check spec.yaml",
        "target_range is for targets that are numbers; say task: regression, or leave it out",
        {"spec.yaml": regression("[50, 200]", "classification"), "rows.csv": table()},
    ),
    Case(
        "target: a range, and a text in a row",
        KIND,
        "check spec.yaml",
        "rows.csv, line 202, column 'weight': expected a number, found 'heavy'",
        {"spec.yaml": regression("[50, 200]"), "rows.csv": table(ROW.replace("80", "heavy"))},
    ),
    accepted(
        Case(
            "target: outside of its range",
            KIND,
            "check spec.yaml",
            "",
            {"spec.yaml": regression("[50, 60]"), "rows.csv": table()},
        ),
        "it is learnt as the end of the range; saying so would tell of a private row",
    ),
    *(
        Case(f"cell: {name}", KIND, "check spec.yaml", says, {"spec.yaml": declared(), "rows.csv": table(row)})
        for name, row, says in CELLS
    ),
    *(
        Case(
            f"columns from {name}",
            "file",
            "check spec.yaml",
            says,
            {
                "spec.yaml": RUN.replace(
                    "dataset: digits", "dataset: {name: wards, path: rows.csv, target: outcome, columns: odd}"
                ),
                "rows.csv": table(),
            },
            make,
        )
        for name, make, says in ODD
    ),
    accepted(
        Case(
            "cell: an empty one with a filling",
            KIND,
            "check spec.yaml",
            "",
            {"spec.yaml": declared(), "rows.csv": table(ROW.replace("80", ""))},
        ),
        "the spec says what it is read as",
    ),
    accepted(
        Case(
            "cell: outside of its range",
            KIND,
            "check spec.yaml",
            "",
            {"spec.yaml": declared(), "rows.csv": table(ROW.replace("40", "140"))},
        ),
        "it counts as the end of the range; saying so would tell of a private row",
    ),
    accepted(
        Case(
            "cell: a truth value in capitals",
            KIND,
            "check spec.yaml",
            "",
            {"spec.yaml": declared(), "rows.csv": table(ROW.replace("yes", "YES"))},
        ),
        "any case is taken",
    ),
)
