"""``gossamer new``: a first spec for one's own table."""

from __future__ import annotations

import argparse

from gossamer.cli.commands import FileName


def new_options(command: argparse.ArgumentParser) -> None:
    """Look at a CSV or Parquet file on this machine, and write a commented spec for a first private run on it.

    Ranges, categories and labels are what you declare, with flags or as answers in a terminal: they are public
    knowledge, never learnt from private rows.
    """
    add = command.add_argument
    add("name", metavar="NAME", help="what the data set is called; the spec is NAME.yaml")
    add("--data", action=FileName, metavar="FILE", help="the table, CSV or Parquet")
    add("--target", metavar="COLUMN", help="what is to be predicted")
    add("--owner", metavar="COLUMN", help="whose row it is: each owner becomes a node")
    add("--person", metavar="COLUMN", help="which person a row is about, where persons have several")
    add(
        "--rows-per-person", type=int, metavar="M", help="the most rows that one person has; 1: each row is another one"
    )
    add("--out", action=FileName, metavar="FILE", help="the spec (default: NAME.yaml)")
    add("--labels", metavar="A,B", help="the target's classes, in order")
    add("--regression", action="store_true", help="the target is a number, and has a --range in place of classes")
    _add_columns(command)
    add("--epsilon", type=float, default=1.0, metavar="E", help="of the budget (default: 1)")
    add("--delta", type=float, metavar="D", help="of the budget (default: below 1/(10 rows))")
    add("--csv", nargs="+", action="extend", metavar="KEY=VALUE", help="how the file is written, such as header=false")
    add("--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="any other key, as of gossamer run")
    command.set_defaults(command=new_command)


def _add_columns(command: argparse.ArgumentParser) -> None:
    """Add the flags that declare columns; each takes several."""
    for flag, metavar, what in (
        ("--range", "COLUMN=LOW..HIGH", "from where to where numbers mostly lie, such as age=0..120"),
        ("--mean", "COLUMN=MEAN,DEVIATION", "published figures of such numbers, such as heart_rate=80,15"),
        ("--categories", "COLUMN=A,B", "the texts that there can be, such as sex=female,male"),
        ("--boolean", "COLUMN", "true or false: yes and no, 1 and 0, in small or large letters"),
        ("--number", "COLUMN", "a number without a range, which is scaled privately"),
        ("--missing", "COLUMN=VALUE", "what an empty cell is read as"),
        (
            "--missing-marks",
            "COLUMN=A,B",
            "what else says nothing, such as hb=-9; of all columns: --missing-marks=-9,999",
        ),
        ("--drop", "COLUMN", "no feature, such as a number that only names a row"),
    ):
        command.add_argument(flag, nargs="+", action="extend", metavar=metavar, help=what)


def new_command(options: argparse.Namespace) -> int:
    """Write the spec."""
    from gossamer.cli.runs.first_spec import write_first_spec

    return write_first_spec(options)
