"""The line that installs an extra names packages of other people that exist, whatever Gossamer was installed from."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from gossamer import extras
from gossamer.errors import CallerError
from gossamer.extras import install_line, require

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PAGES = [
    *ROOT.glob("*.md"),
    *(path for top in ("docs", "deploy", "examples", "release") for path in (ROOT / top).rglob("*.md")),
]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[]", one)[0] for one in requirements}


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "dev"])
def test_a_line_has_the_packages_of_its_extra_for_this_python_and_not_gossamer(extra: str) -> None:
    python, module, pip, install, *packages = shlex.split(install_line(extra))
    assert [python, module, pip, install] == [sys.executable, "-m", "pip", "install"]
    others = {"onnx": "torch", "pdf": "report"}  # extras that bring another's packages
    within = names(EXTRAS[others[extra]]) if extra in others else set()
    assert names(packages) == names(EXTRAS[extra]) - {"gossamer-fl"} | within


def test_a_source_tree_that_was_never_installed_is_named_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", absent)
    assert install_line("mqtt").endswith(f'-m pip install "{ROOT}[mqtt]"')


def test_only_the_package_itself_is_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho", None)
    with pytest.raises(CallerError, match=r"^a node needs the optional package paho, which is not .* \"paho-mqtt>="):
        require("paho", "a node needs", "mqtt")
    require("json", "nobody needs", "mqtt")


UNKNOWN_TO_ALL = re.compile(
    r"""(?:pip|uv)x?(?: [^\n`]*)? install\b[^\n`]*["' ]gossamer(?!\[?[\w,]*\]? @ )(?=[\["' =<>~\n`])"""
)
"""A line that installs what an index has under our name."""


def test_no_page_installs_whatever_an_index_has_under_our_name() -> None:
    """The name is nobody's there, so anybody may take it."""
    assert {path: lines for path in PAGES if (lines := UNKNOWN_TO_ALL.findall(path.read_text()))} == {}


def test_lines_that_would_do_so_are_found() -> None:
    bad = (
        'pip install "gossamer[secure,mqtt]"',
        "pip install gossamer\n",
        "`/opt/bin/pip install --upgrade gossamer==VERSION`",
    )
    good = (
        'pip install ".[torch]"',
        'pip install "gossamer[ray] @ git+URL"',
        'pip install "./gossamer-1-py3-none-any.whl[mqtt]"',
    )
    assert all(UNKNOWN_TO_ALL.search(line) for line in bad)
    assert not any(UNKNOWN_TO_ALL.search(line) for line in good)


def test_no_error_does_either() -> None:
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    assert not [path for path, text in sources.items() if UNKNOWN_TO_ALL.search(text) or 'install "gossamer' in text]


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ('{"url": "file:///x.whl", "archive_info": {"hashes": {"sha256": "ab"}}}', "ab"),
        ('{"url": "file:///clone", "dir_info": {"editable": true}}', None),
        (None, None),
    ],
)
def test_the_wheel_that_is_installed(noted: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "distribution", lambda name: SimpleNamespace(read_text=lambda file: noted))
    assert extras.installed_wheel() == found
