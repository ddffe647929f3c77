"""Looking at tables: how a file is written, and what its columns look like."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gossamer.data import table_survey as looking
from gossamer.data.columns import CsvSettings
from gossamer.data.table_survey import look, sniffed
from gossamer.errors import DataError


def table(folder: Path, text: str, encoding: str = "utf-8", name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", {}),
        ("a;b\n1;2\n", {"separator": ";"}),
        ("a\tb\n1\t2\n", {"separator": "\t"}),
        ("a|b\n1|2\n", {"separator": "|"}),
        ("a;b\n1,5;2,25\n", {"separator": ";", "decimal": ","}),
        ("a;b\n1,5;x\n2.5;y\n3.5;y\n", {"separator": ";"}),
        ("a,b\n1.5,2\n", {}),
        ('a,b\n"1,5",2\n', {}),
        ("name, first;b\nx, y;2\n", {}),  # both signs cut all lines alike: the comma is the usual one
        ("1,2\n3,4\n", {}),  # refused later, until somebody says what the first row is
        ("0,1\n3,4\n", {}),  # positions, as programs write them
        ("2020;x\n3;y\n", {"separator": ";"}),
        ("a\n1\n", {}),
        ("sep=;\na;b\n1;2\n", {"separator": ";"}),
        ("a b\n1 2\n", {"separator": " "}),
        ("  a   b\n 10   2\n", {"separator": " "}),
        ("when,b\n2020-01-01 10:00,2\n", {}),
        ('"a","b"\n"1",5,6\n"2",7,8\n', {"row_names": True}),
        ("a,b\n5,6,\n7,8,\n", {}),  # separators at the ends of rows name nothing
        ("a,b\n5,6,1\n5,8,2\n", {}),  # what begins these rows names none
    ],
)
def test_how_a_file_is_written(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    assert sniffed(table(tmp_path, text)) == CsvSettings.model_validate(expected)


def test_letters_are_told_by_the_whole_file(tmp_path: Path) -> None:
    """The only letter beyond ASCII stands far behind what else is looked at."""
    rows = "a,b\n" + "1,2\n" * 100_000
    assert sniffed(table(tmp_path, rows + "é,2\n", "latin-1")).encoding == "latin-1"
    assert sniffed(table(tmp_path, rows + "é,2\n")).encoding == "utf-8"
    assert sniffed(table(tmp_path, "\ufeff" + rows)).encoding == "utf-8"


def test_compressed_files_are_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a;b\n1;2\n"))
    assert look(path).csv == CsvSettings(separator=";")


def test_columns_are_counted(tmp_path: Path) -> None:
    text = "n,t,b,gaps\n1,x,yes,\n2.5,y,No,3\n-3e2,x,yes,NA\n"
    found = look(table(tmp_path, text))
    assert (found.rows, list(found.columns)) == (3, ["n", "t", "b", "gaps"])
    columns = found.columns
    assert [columns[name].numbers for name in columns] == [True, False, False, True]
    assert [columns[name].empty for name in columns] == [0, 0, 0, 2]
    assert [columns[name].truths for name in columns] == [False, False, True, False]
    assert columns["t"].texts == {"x": 2, "y": 1}


def test_many_texts_are_counted_of_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_MOST_TEXTS", 3)
    path = table(tmp_path, "who,name\n" + "".join(f"w{row},n{row}\n" for row in range(10)))
    found = look(path, {"who"}).columns
    assert (len(found["who"].texts), found["who"].many) == (10, False)
    assert (len(found["name"].texts), found["name"].many) == (3, True)


def test_a_parquet_file_has_kinds(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(
        pa.table({"n": [1.5, None], "k": [1, 0], "t": ["x", None], "b": [True, False]}), path
    )
    columns = look(path).columns
    assert [columns[name].numbers for name in columns] == [True, True, False, False]
    assert [columns[name].empty for name in columns] == [1, 0, 1, 0]
    assert columns["b"].truths


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "found an empty file"),
        (b"a,b\n", "expected rows below the header, found none"),
        (b"a,b\n1,2\0\n", "found bytes that are no text"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: expected 2 columns, found 3"),
    ],
)
def test_what_is_no_table(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=expected):
        look(path)
