"""Tables and LIBSVM files that are damaged, or of another kind than the spec says."""

from __future__ import annotations

from tests.end_to_end.bad_inputs.case import RUN, Case, accepted

GOOD = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(200))
"""A table that can be used."""


def spec(path: str, more: str = "") -> str:
    """A spec of some data, with more of their settings."""
    return RUN.replace("dataset: digits", f"dataset: {{name: mine, path: {path}{more}}}").replace(
        "batch_size: 20", "batch_size: 5"
    )


def _table(rows: str) -> str:
    return GOOD + rows


CSV: tuple[tuple[str, str | bytes, str, str], ...] = (
    ("nothing", b"", "", "expected a header of two or more different names"),
    ("a header alone", "a,b,label\n", "", "expected rows below the header, found none"),
    ("one column", "a\n1\n2\n", "", "expected a header of two or more different names"),
    ("a name twice", GOOD.replace("a,b,", "a,a,"), "", "expected a header of two or more different names"),
    ("a short row", _table("1,2\n"), "", "line 202: expected 3 columns, found 2"),
    ("a long row", _table("1,2,3,4\n"), "", "line 202: expected 3 columns, found 4"),
    ("a text for a number", _table("x,2,1\n"), "", "line 202, column 'a': expected a number, found 'x'"),
    ("an empty cell", _table(",2,1\n"), "", "line 202, column 'a'"),
    ("NaN", _table("nan,2,1\n"), "", "line 202, column 'a'"),
    ("infinite", _table("inf,2,1\n"), "", "line 202, column 'a'"),
    (
        "larger than float32",
        _table("1e39,2,1\n"),
        "",
        "line 202, column 'a': expected a finite number that fits float32",
    ),
    ("5,000 digits", _table(f"{'9' * 5_000},2,1\n"), "", "line 202, column 'a'"),
    ("an empty target", _table("1,2,\n"), "", "line 202, column 'label': the target is empty"),
    ("a target that is text among numbers", _table("1,2,nan\n"), "", "nan"),
    ("no such target", GOOD, ", target: outcome", "no column 'outcome'; its columns are a, b, label"),
    ("a target's number too large", GOOD, ", target: 7", "no column 7; it has 3, numbered from 0"),
    ("no such owner", GOOD, ", owner: ward", "no column 'ward'; its columns are a, b, label"),
    ("the target as owner", GOOD, ", owner: label", "owner names 'label', which is the target's column"),
    ("no such column to ignore", GOOD, ", ignore: [x]", "no column 'x'; its columns are a, b, label"),
    ("nothing left", GOOD, ", ignore: [a, b]", "expected a feature in a column of its own, found none"),
    ("an open quote", _table('"1,2,1\n'), "", "not a CSV row"),
    ("a NUL byte", _table("1,\0,1\n"), "", "line 202"),
    ("Latin-1", GOOD.replace("a,", "ä,").encode("latin-1"), "", "expected text in UTF-8, found bytes that are not"),
    ("UTF-16", GOOD.encode("utf-16"), "", "expected text in UTF-8, found bytes that are not"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "", "expected text in UTF-8, found bytes that are not"),
    ("semicolons", GOOD.replace(",", ";"), "", "expected a header of two or more different names"),
    ("decimal commas", GOOD.replace("\n1,", "\n1,5,"), "", "expected 3 columns, found 4"),
    ("one class", GOOD.replace(",1\n", ",0\n"), "", "class"),
    ("too few rows", "a,b,label\n1,2,0\n2,3,1\n", "", "too few"),
    ("features that are none", GOOD, ", target: label, features: [a, c]", "no column 'c'"),
    (
        "the target as a feature",
        GOOD,
        ", target: label, features: [a, label]",
        "features names 'label', which is the target's column",
    ),
    (
        "labels that do not fit",
        GOOD,
        ", labels: ['no', 'yes']",
        "has the label 0, which is none of the 2 classes no, yes",
    ),
    ("a line of 2 MB", _table("1" * 2_000_000 + "\n"), "", "line 202"),
    ("HTML", "<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "", "expected a header of two or more"),
)
"""Tables, each with more of the data's settings."""

LIBSVM: tuple[tuple[str, str | bytes, str], ...] = (
    ("nothing", b"", "expected lines of 'label index:value ...', found none"),
    ("no pairs", "1 2 3\n", "line 1: expected 'label index:value index:value ...'"),
    ("no label", "1:2 2:3\n", "line 1: expected 'label index:value"),
    ("an index of 0", "1 0:2\n", "line 1: expected indices from 1"),
    ("falling indices", "1 2:1 1:1\n", "line 1: expected indices from 1, each larger than the one before"),
    ("NaN", "1 1:nan\n", "line 1"),
    ("infinite", "1 1:inf\n", "line 1"),
    ("a label that is infinite", "inf 1:1\n", "line 1"),
    ("an index of 10**12", "".join(f"{i % 2} 1:{i} 1000000000000:1\n" for i in range(200)), "1000000000000"),
    ("an index of 10**9", "".join(f"{i % 2} 1:{i} 1000000000:1\n" for i in range(200)), "1000000000"),
    ("an index of 5,000 digits", f"1 {'9' * 5_000}:1\n", "line 1"),
    ("binary", bytes(range(256)), "line 1"),
)


FINE: tuple[tuple[str, str | bytes, str, str], ...] = (
    ("a mark of the byte order", "\ufeff" + GOOD, ", scale: none", "spreadsheets write one"),
    ("CRLF", GOOD.replace("\n", "\r\n"), ", scale: none", "lines end so on Windows"),
    ("blank lines", GOOD.replace("\n", "\n\n"), ", scale: none", "they say nothing"),
    ("quotes", GOOD.replace("a,b", '"a","b"'), ", scale: none", "they are part of CSV"),
    ("no end of the last line", GOOD.rstrip(), ", scale: none", "many editors write none"),
    ("spaces", GOOD.replace(",", ", "), ", scale: none", "numbers and names are the same"),
    (
        "labels that are texts",
        GOOD.replace(",1\n", ",yes\n").replace(",0\n", ",no\n"),
        ", scale: none",
        "a label is a name",
    ),
)

KIND = "data"
CASES: tuple[Case, ...] = (
    *(
        Case(f"csv: {name}", KIND, "check spec.yaml", says, {"spec.yaml": spec("rows.csv", more), "rows.csv": content})
        for name, content, more, says in CSV
    ),
    *(
        Case(
            f"libsvm: {name}",
            KIND,
            "check spec.yaml",
            says,
            {"spec.yaml": spec("rows.libsvm"), "rows.libsvm": content},
            apart="10**" in name,
        )
        for name, content, says in LIBSVM
    ),
    *(
        accepted(
            Case(
                f"csv: {name}", KIND, "check spec.yaml", "", {"spec.yaml": spec("rows.csv", more), "rows.csv": content}
            ),
            why,
        )
        for name, content, more, why in FINE
    ),
)
