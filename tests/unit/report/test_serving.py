"""A report that is served: to whoever knows its address, on this machine, and to no page of another site."""

from __future__ import annotations

import html
import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from tests.unit.report.test_page import EVIL, ROWS
from tests.unit.report.test_parties import state
from tests.unit.report.test_records import folder

from gossamer.cli.logs import page_of
from gossamer.cli.main import main
from gossamer.report import serving
from gossamer.report.serving import Door, ShownFolders, ShownParties, served_beside, served_here

pytest.importorskip("altair", reason="needs the extra report")


@contextmanager
def served(there: Path, since: int = 0) -> Iterator[str]:
    """Address of a server in a thread of this process."""
    with serving_here(ShownFolders([there], page_of, since)) as address:
        yield address


@contextmanager
def serving_here(shown: ShownFolders) -> Iterator[str]:
    """Address of a server of that in a thread of this process."""
    door = Door.opened()
    with served_here(shown, door):
        yield door.address


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(serving, "_REST", 0.0)
    with served(tmp_path / "run") as found:
        yield found


def asked(address: str, path: str | None = None, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    """Status, text and headers of an answer."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=120)
    try:
        connection.request("GET", place.path if path is None else path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_the_page_follows_the_run(address: str, tmp_path: Path) -> None:
    path = urlsplit(address).path
    assert "Nothing has been written yet" in asked(address, f"{path}report")[1]
    before = json.loads(asked(address, f"{path}state")[1])["mark"]
    there = folder(tmp_path / "run", ROWS, status=EVIL)
    after = json.loads(asked(address, f"{path}state")[1])["mark"]
    assert before != after
    status, text, _ = asked(address, f"{path}report")
    assert status == 200
    assert "Accuracy of the mean model" in text
    assert EVIL not in text
    os.utime(there / "summary.json", ns=(0, time.time_ns() + 10**9))
    assert json.loads(asked(address, f"{path}state")[1])["mark"] not in (before, after)


def test_results_of_an_earlier_run_are_not_shown(tmp_path: Path) -> None:
    there = folder(tmp_path / "run", ROWS)
    os.utime(there / "summary.json", ns=(0, time.time_ns() - 10**9))
    with served(there, time.time_ns()) as address:
        assert "Nothing has been written yet" in asked(address, f"{urlsplit(address).path}report")[1]


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


def test_nothing_is_drawn_for_a_while_after_a_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_REST", 1e6)
    there = folder(tmp_path / "run", ROWS)
    with served(there) as address:
        path = urlsplit(address).path
        asked(address, f"{path}report")
        before = asked(address, f"{path}state")[1]
        os.utime(there / "summary.json", ns=(0, time.time_ns() + 10**9))
        assert asked(address, f"{path}state")[1] != before  # the first one loads what draws, and so takes long
        asked(address, f"{path}report")
        before = asked(address, f"{path}state")[1]
        (there / "metrics.jsonl").write_text("")
        os.utime(there / "summary.json", ns=(0, time.time_ns() + 2 * 10**9))
        assert asked(address, f"{path}state")[1] == before
        assert "Accuracy of the mean model" in asked(address, f"{path}report")[1]


def test_it_listens_on_the_loopback_address_and_ends_with_the_block(tmp_path: Path) -> None:
    shown, before = ShownFolders([tmp_path], page_of), {*multiprocessing.active_children()}
    with served_beside(shown, Door.opened()) as address:
        assert urlsplit(address).hostname == "127.0.0.1"
        assert asked(address)[0] == 200  # the process has come up
        with served_beside(shown, Door.opened()) as other:
            assert urlsplit(other).path != urlsplit(address).path
    with pytest.raises(OSError):
        asked(address)
    assert {*multiprocessing.active_children()} <= before


def test_it_ends_with_the_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from gossamer.cli.logs import page_of\n"
        "from gossamer.report.serving import served_beside; from gossamer.report.serving import Door, ShownFolders\n"
        "if __name__ == '__main__':\n"
        "    with served_beside(ShownFolders([Path(sys.argv[1])], page_of), Door.opened()) as address:\n"
        "        print(address, flush=True); time.sleep(600)\n"
    )
    (tmp_path / "shows.py").write_text(code)
    command = [sys.executable, str(tmp_path / "shows.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert asked(address)[0] == 200
        process.kill()
    for _ in range(600):
        try:
            asked(address)
        except http.client.IncompleteRead:
            pass  # it ended within an answer
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the page is still served")


def test_a_run_says_where_its_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec.yaml").write_text("algorithm: {name: gossip, nodes: 3, updates_per_node: 4}\nprivacy: none\n")
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "out"), "--live"]) == 0
    assert re.search(r"for you alone: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", capsys.readouterr().err)

    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "create_server", full)
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "other"), "--live"]) == 2
    assert (
        "--live: cannot listen on 127.0.0.1 (Too many open files); give another port, or leave it out"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "other").exists()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens at."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_port_in_use_is_refused_before_anything_is_begun(
    tmp_path: Path, taken: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.yaml").write_text("algorithm: {name: gossip, nodes: 3, updates_per_node: 4}\nprivacy: none\n")
    there = folder(tmp_path / "run", ROWS)
    out = ("--out", str(tmp_path / "out"))
    for command in (
        ("run", str(tmp_path / "spec.yaml"), *out),
        ("up", str(tmp_path / "spec.yaml"), *out),
        ("node", "--invitation", str(tmp_path / "invitation.yaml"), "--store", str(tmp_path / "out")),
        ("report", str(there)),
    ):
        assert main([*command, "--live", str(taken)]) == 2
        said = capsys.readouterr().err.strip()
        assert "\n" not in said
        assert f"--live: cannot listen on 127.0.0.1:{taken} (Address already in use); give another port" in said
        assert not (tmp_path / "out").exists()


def test_a_port_can_be_chosen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with served_beside(ShownFolders([tmp_path], page_of), Door.opened(port)) as address:
        assert urlsplit(address).port == port
        assert asked(address)[0] == 200


def test_a_page_that_fails_ends_nothing(tmp_path: Path) -> None:
    before = {*multiprocessing.active_children()}
    with served_beside(ShownFolders([tmp_path], page_of), Door.opened()) as address:
        (process,) = {*multiprocessing.active_children()} - before
        process.kill()
        process.join()
        with pytest.raises(OSError):
            asked(address)


def test_a_party_is_shown_by_its_state_folder_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several those that have begun are shown, and what a node leaves half-written brings nothing down."""
    monkeypatch.setattr(serving, "_REST", 0.0)
    a, b = tmp_path / "a" / "state", tmp_path / "b" / "state"
    with serving_here(ShownFolders([a, b], page_of)) as address:
        path = urlsplit(address).path
        assert "Nothing has been written yet" in asked(address, f"{path}report")[1]
        state(a, ended=False, state="running")
        text = asked(address, f"{path}report")[1]
        assert "Budget of the policy" in text
        assert "sees &lt;script&gt;" in text
        state(b, ended=False, node="other-node", state="running")
        assert "other-node" in asked(address, f"{path}report")[1]
        (b / "status.json").write_text('{"state"')
        assert asked(address, f"{path}report")[0] == 200


def test_a_report_is_shown_until_it_is_interrupted(tmp_path: Path) -> None:
    there = folder(tmp_path / "run", ROWS)
    command = [sys.executable, "-m", "gossamer", "report", str(there), "--live"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        assert "Accuracy of the mean model" in asked(address, f"{urlsplit(address).path}report")[1]
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "the report is shown no more\n"
    assert process.returncode == 0
    assert not (there / "report.html").exists()


def test_a_folder_that_is_no_result_is_refused_before_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "--live"]) == 2
    assert "with a summary.json" in capsys.readouterr().err


def test_what_a_party_says_of_itself_is_text(tmp_path: Path) -> None:
    """It may have said anything; a change of words alone is no news."""
    shown, heads = ShownParties(), ("party", "level", "state")
    for said in (EVIL, f"{EVIL} again"):
        problem = {"level": "critical", "kind": "ledger", "text": said}
        one = {"level": "critical", "state": EVIL, "problems": [problem], "peers": {"b": {"state": EVIL}, EVIL: {}}}
        two = {"level": "ok", "state": "running", "problems": [], "peers": {}}
        shown.show("run", {"a": one, "b": two}, [heads, ("a", "critical", EVIL), ("b", "ok", "running")])
    page = shown.draw()
    assert EVIL not in page
    assert html.escape(EVIL) in page.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")
    assert page.count("<li>") == page.count("<rect") == 2
    assert shown.mark == 2


def test_who_has_the_page_of_a_federation_has_a_document_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with --watch, since it goes on; Ctrl-C ends both."""
    looks, one = iter(range(2)), {"node": "a", "level": "ok", "state": "not heard", "problems": [], "peers": {}}

    def look(*_: object) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    watch = SimpleNamespace(
        transport=nullcontext(),
        connected=60.0,
        look=look,
        all_heard=None,
        invitation=SimpleNamespace(run="run"),
        statuses=lambda: {"a": one | {"dropped": {}}},
    )
    monkeypatch.setattr("gossamer.cli.federation.overview.Watch", lambda *_, rejoin: watch if rejoin == 30 else None)
    assert main(["federation", "status", str(tmp_path), "--live", "--json"]) == 130
    out, told = capsys.readouterr()
    assert [json.loads(line)["a"]["node"] for line in out.splitlines()] == ["a", "a"]
    assert re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", told)
