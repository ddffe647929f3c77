"""The page of deployed parties while they run: of a whole federation in a real browser, and of one node alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.end_to_end.test_live_page import until
from tests.reference.browser import browser, said
from tests.unit.report.test_serving import asked

from gossamer.experiment.specs.spec_file import parse_spec

pytest.importorskip("cryptography", reason="needs the extra secure")
pytest.importorskip("altair", reason="needs the extra report")

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, batch_size: 32, updates_per_node: %d, topology: complete}
budget: {epsilon: 10, delta: 1.0e-4}
"""
ADDRESS = r"http://127\.0\.0\.1:\d+/[\w-]{32}/"


@contextmanager
def gossamer(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which is ended with the block."""
    command = [sys.executable, "-m", "gossamer", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def soon(condition: Callable[[], object]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def closed(address: str) -> bool:
    """Whether nobody answers there."""
    try:
        asked(address)
    except ConnectionError:
        return True
    return False


@pytest.mark.slow
def test_a_federation_on_one_machine_is_seen_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="needs the extra broker")
    (tmp_path / "spec.yaml").write_text(SPEC % 20_000)
    with browser() as driver, gossamer("up", tmp_path / "spec.yaml", "--out", tmp_path / "up", "--live") as process:
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(ADDRESS, line)))

        def inside() -> str:
            driver.switch_to.default_content()
            driver.switch_to.frame(0)
            return str(driver.find_element("css selector", "body").text)

        driver.set_page_load_timeout(120)
        driver.get(address)
        until(driver, lambda _: all(f"node-{n}" in inside() for n in range(3)) and "running" in inside(), 120)
        until(driver, lambda _: driver.find_elements("css selector", "[data-drawn=all]"), 120)
        assert {"party-releases", "party-budget", "party-peers"} <= {
            figure.get_attribute("id") for figure in driver.find_elements("css selector", "figure")
        }
        driver.switch_to.default_content()
        assert said(driver) == []
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        until(driver, lambda _: "It is over" in driver.find_element("css selector", "p").text)
        assert closed(address)


@pytest.mark.slow
def test_an_organiser_sees_all_parties_in_a_browser(tmp_path: Path, broker: Any) -> None:
    """Lamps, who hears whom, and when a party fell silent."""
    from tests.reference.deployments import parties

    from gossamer.cli.federation.local_federation import LocalFederation

    federation = LocalFederation.found(parse_spec(yaml.safe_load(SPEC % 20_000)), tmp_path / "f", broker.url)
    with (
        browser() as driver,
        parties(federation) as there,
        gossamer("federation", "status", federation.folder, "--live", "--wait", "60") as process,
    ):
        there.start()
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(ADDRESS, line)))

        def all_of(selector: str) -> list[Any]:
            driver.switch_to.default_content()
            driver.switch_to.frame(0)
            return [*driver.find_elements("css selector", selector)]

        driver.set_page_load_timeout(120)
        driver.get(address)
        until(driver, lambda _: len(all_of("circle.ok")) == 3 and len(all_of("line:not(.broken)")) == 6, 120)
        assert said(driver) == []
        there.kill("node-1")
        until(driver, lambda _: len(all_of("circle.critical")) == 1 and all_of("line.broken"), 120)
        assert {"ok", "critical"} <= {one.get_attribute("class") for one in all_of("rect")}
        assert any("node-1: critical" in one.text for one in all_of("li"))
        assert "node-1" in all_of("tr")[1].text  # the worst first
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert closed(address)


@pytest.fixture
def party(tmp_path: Path) -> tuple[Path, list[str]]:
    """A party's folder, and the arguments of its node; the broker is not there."""
    from gossamer.cli.federation.local_federation import LocalFederation

    made = LocalFederation.found(parse_spec(yaml.safe_load(SPEC % 20)), tmp_path / "up", "mqtt://127.0.0.1:1")
    return made.folder / "node-1", [part for part in made.command("node-1") if part != "--quiet"]


@pytest.mark.some(1)
@pytest.mark.parametrize("ended_by", ["interrupt", "stop", "kill"])
def test_a_node_shows_itself_and_its_address_is_told_its_owner_alone(
    party: tuple[Path, list[str]], ended_by: str
) -> None:
    """What it says where there is no terminal is gathered for others, and has no token."""
    folder, command = party
    file = folder / "state" / "live-address"
    with gossamer(*command, "--live", "--connect-timeout", "600") as process:
        soon(file.exists)
        assert file.stat().st_mode & 0o077 == 0
        address = file.read_text().strip()
        assert re.fullmatch(ADDRESS, address)
        path = urlsplit(address).path
        soon(lambda: "connecting" in asked(address, f"{path}report")[1])
        text = asked(address, f"{path}report")[1]
        assert "node-1" in text
        assert "node-0" not in text
        assert "node-2" not in text
        assert path.strip("/") not in (folder / "state" / "node.log").read_text()
        if ended_by == "stop":
            with gossamer("stop", folder / "state") as stop:
                stop.communicate(timeout=60)
        else:
            process.send_signal(signal.SIGINT if ended_by == "interrupt" else signal.SIGKILL)
        _, told = process.communicate(timeout=60)
    assert str(file) in told
    assert path.strip("/") not in told
    assert "Traceback" not in told
    soon(lambda: closed(address))
    assert file.exists() == (ended_by == "kill")
    if ended_by != "kill":  # that it never reached its broker is no failure: who stops it is told so, as ever
        assert (process.returncode, told.splitlines()[-1][21:]) == (0, "node-1 stopped")


def test_a_node_that_is_refused_shows_nothing(party: tuple[Path, list[str]]) -> None:
    folder, command = party
    command[command.index("--organiser") + 1] = "0" * 64
    with gossamer(*command, "--live") as process:
        _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told.count("\n") == 1
    assert "http://" not in told
    assert not os.path.lexists(folder / "state")
