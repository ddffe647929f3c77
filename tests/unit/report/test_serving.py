"""A report that is served: to whoever knows its address, on this machine, and to no page of another site."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.unit.report.test_page import EVIL, ROWS
from tests.unit.report.test_records import folder

from gossamer.cli.main import main
from gossamer.report import serving
from gossamer.report.serving import served

pytest.importorskip("altair", reason="needs the extra report")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "run") as found:
        yield found


def asked(address: str, path: str | None = None, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    """Status, text and headers of an answer."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    try:
        connection.request("GET", place.path if path is None else path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_the_page_follows_the_run(address: str, tmp_path: Path) -> None:
    path = urlsplit(address).path
    assert "Nothing has been evaluated yet" in asked(address, f"{path}report")[1]
    before = json.loads(asked(address, f"{path}state")[1])["evaluated"]
    there = folder(tmp_path / "run", ROWS, status=EVIL)
    after = json.loads(asked(address, f"{path}state")[1])["evaluated"]
    assert before != after
    status, text, _ = asked(address, f"{path}report")
    assert status == 200
    assert "Accuracy of the mean model" in text
    assert EVIL not in text
    os.utime(there / "summary.json", ns=(0, time.time_ns() + 10**9))
    assert json.loads(asked(address, f"{path}state")[1])["evaluated"] not in (before, after)


def test_results_of_an_earlier_run_are_not_shown(tmp_path: Path) -> None:
    there = folder(tmp_path / "run", ROWS)
    os.utime(there / "summary.json", ns=(0, time.time_ns() - 10**9))
    with served(there) as address:
        assert "Nothing has been evaluated yet" in asked(address, f"{urlsplit(address).path}report")[1]


def test_the_page_around_runs_its_own_script_alone(address: str) -> None:
    status, text, headers = asked(address)
    (nonce,) = set(re.findall(r"nonce[-=]\"?([\w-]+)", text))
    assert status == 200
    assert f"script-src 'nonce-{nonce}'" in text
    assert asked(address)[1] != text
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in headers
    assert "{" not in text.split("<script")[0].split("<style>")[0]


@pytest.mark.parametrize(
    "path", ["/", "/report", "/x/report", "//report", "/é/", "*", "/{token}", "/{token}/../run", "/{token}x/"]
)
def test_without_the_token_there_is_nothing(address: str, path: str) -> None:
    token = urlsplit(address).path.strip("/")
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=30) as line:
        line.sendall(f"GET {path.format(token=token)} HTTP/1.0\r\nHost: {place.netloc}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.split(b" ")[1] == b"404"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_what_another_site_caused_is_refused(address: str, headers: dict[str, str]) -> None:
    assert asked(address, **headers)[:2] == (403, "refused")


def test_requests_of_its_own_pages_are_answered(address: str) -> None:
    own = f"http://{urlsplit(address).netloc}"
    assert asked(address, **{"Origin": own, "Sec-Fetch-Site": "same-origin"})[0] == 200


def test_it_listens_on_the_loopback_address_and_ends_with_the_block(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        assert urlsplit(address).hostname == "127.0.0.1"
        with served(tmp_path) as other:
            assert urlsplit(other).path != urlsplit(address).path
    with pytest.raises(OSError):
        asked(address)
    assert not [thread for thread in threading.enumerate() if "serve_forever" in thread.name]


def test_a_run_says_where_its_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec.yaml").write_text("algorithm: {name: gossip, nodes: 3, updates_per_node: 4}\nprivacy: none\n")
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "out"), "--live"]) == 0
    assert re.search(r"for you alone: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", capsys.readouterr().err)

    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(serving, "_Server", full)
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "other"), "--live"]) == 2
    assert "--live: cannot listen on 127.0.0.1 (Too many open files); leave it out" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
