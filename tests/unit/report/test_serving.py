"""A report that is served: to whoever knows its address, on this machine, and to no page of another site."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.unit.report.test_page import EVIL, ROWS
from tests.unit.report.test_records import folder

from gossamer.cli.main import main
from gossamer.errors import DataError
from gossamer.report import serving
from gossamer.report.live_page import LiveRun
from gossamer.report.live_server import HOST, LiveServer
from gossamer.report.serving import served

pytest.importorskip("altair", reason="needs the extra report")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(LiveRun(tmp_path_factory.mktemp("nothing"))) as found:
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


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def mark(address: str) -> str:
    """Mark of what the page shows."""
    found = json.loads(asked(address, f"{urlsplit(address).path}state")[1])["shown"]
    assert isinstance(found, str)
    return found


def report(address: str) -> str:
    """The page inside."""
    status, text, _ = asked(address, f"{urlsplit(address).path}report")
    assert status == 200
    return text


def test_the_page_follows_the_run(tmp_path: Path) -> None:
    with served(LiveRun(tmp_path / "run")) as address:
        assert "Nothing has been evaluated yet" in report(address)
        assert mark(address) == ""
        there = folder(tmp_path / "run", ROWS, status=EVIL)
        first = mark(address)
        assert first != ""
        text = report(address)
        assert "Accuracy of the mean model" in text
        assert EVIL not in text
        os.utime(there / "summary.json", ns=(0, time.time_ns() + 10**9))
        until(lambda: mark(address) not in ("", first))


def test_a_page_is_drawn_again_only_after_a_while(tmp_path: Path) -> None:
    """Until then the mark is that of what was drawn, or a browser would take it for the newest."""
    page = LiveRun(folder(tmp_path / "run", ROWS))
    with socket.create_server((HOST, 0)) as listening:
        server = LiveServer(listening, "token", page, 1)
        drawn = server.report()
        first = server.mark
        os.utime(tmp_path / "run" / "summary.json", ns=(0, time.time_ns() + 10**9))
        assert page.mark() != first
        assert server.mark == first
        assert server.report() is drawn
        server._next = 0.0
        assert server.mark == page.mark()
        assert server.report() is not drawn


def test_what_cannot_be_drawn_is_said_in_the_page(tmp_path: Path) -> None:
    there = folder(tmp_path / "run", ROWS)
    with served(LiveRun(there)) as address:
        (there / "summary.json").write_text("<i>no JSON")
        text = report(address)
        assert "There is nothing that can be shown" in text
        assert "summary.json" in text
        folder(tmp_path / "again", ROWS)
        (tmp_path / "again" / "summary.json").replace(there / "summary.json")
        until(lambda: "Accuracy of the mean model" in report(address))


def test_results_of_an_earlier_run_are_not_shown(tmp_path: Path) -> None:
    there = folder(tmp_path / "run", ROWS)
    os.utime(there / "summary.json", ns=(0, time.time_ns() - 10**9))
    with served(LiveRun(there)) as address:
        assert "Nothing has been evaluated yet" in report(address)


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
    before = {*multiprocessing.active_children()}
    with served(LiveRun(tmp_path)) as address:
        assert urlsplit(address).hostname == HOST
        assert asked(address)[0] == 200
        with served(LiveRun(tmp_path)) as other:
            assert urlsplit(other).path != urlsplit(address).path
    with pytest.raises(OSError):
        asked(address)
    assert {*multiprocessing.active_children()} == before


def test_a_page_whose_process_is_gone_ends_nothing(tmp_path: Path) -> None:
    with served(LiveRun(tmp_path)) as address:
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        with pytest.raises(OSError):
            asked(address)


def test_a_port_can_be_named_and_one_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DataError, match=rf"--live-port: port {port} of 127\.0\.0\.1 is in use; give another"):
            with served(LiveRun(tmp_path), port):
                pass
    with served(LiveRun(tmp_path), port) as address:
        assert urlsplit(address).port == port
        assert asked(address)[0] == 200


def test_a_run_says_where_its_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec.yaml").write_text("algorithm: {name: gossip, nodes: 3, updates_per_node: 4}\nprivacy: none\n")
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "out"), "--live"]) == 0
    assert re.search(r"for you alone: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", capsys.readouterr().err)

    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(serving.socket, "create_server", full)
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "other"), "--live"]) == 2
    assert "--live: cannot listen on 127.0.0.1 (Too many open files); leave it out" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
