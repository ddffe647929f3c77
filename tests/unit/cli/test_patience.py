"""What takes long is told on stderr, and nothing else is."""

from __future__ import annotations

import time

import pytest

from gossamer.cli.printing import patience


def test_long_work_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = ""
    with patience("thinking", 0.01) as report:
        while "still thinking" not in told:  # for ever, if it is never told
            time.sleep(0.01)
            told += capsys.readouterr().err
        report("searching")
        while "still searching" not in told:
            time.sleep(0.01)
            told += capsys.readouterr().err
    assert set(told.splitlines()) == {"still thinking", "still searching"}


def test_short_work_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), patience("thinking", 60):
        raise KeyError
    assert capsys.readouterr() == ("", "")
