"""The files in ``deploy/kubernetes``: schemas accept them, their commands exist, and they are as closed as they say."""

from __future__ import annotations

import os
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

from gossamer.cli.main import parser
from gossamer.deployment.party.agreement import PartyOptions

DEPLOY = Path(__file__).resolve().parents[4] / "deploy"
PAGE = (DEPLOY / "README.md").read_text(encoding="utf-8")
FILES = sorted((DEPLOY / "kubernetes").iterdir())
PARTIES = ("hospital-a", "hospital-b", "hospital-c", "server")


def text_of(name: str) -> str:
    """The file of a party, or of the broker, as the page makes it from that of hospital-a."""
    file = name if name in ("broker", "server") else "party"
    return (DEPLOY / "kubernetes" / f"{file}.yaml").read_text(encoding="utf-8").replace("hospital-a", name)


def documents(name: str) -> dict[str, dict[str, Any]]:
    """What is in a file, by kind and name."""
    return {f"{one['kind']} {one['metadata']['name']}": one for one in yaml.safe_load_all(text_of(name))}


def pod(name: str) -> dict[str, Any]:
    kind = "Deployment" if name == "broker" else "Job"
    spec: dict[str, Any] = documents(name)[f"{kind} {name}"]["spec"]["template"]["spec"]
    return spec


def node(name: str) -> dict[str, Any]:
    """The container that is not there to make others ready."""
    (found,) = pod(name)["containers"]
    return dict(found)


@pytest.mark.parametrize("name", ["broker", *PARTIES])
def test_the_schemas_accept_them(name: str, tmp_path: Path) -> None:
    beside = Path(sys.executable).parent / "kubernetes-validate"
    if (tool := beside if beside.exists() else shutil.which(beside.name)) is None:
        pytest.skip("no kubernetes-validate on this machine: pip install kubernetes-validate")
    for text, accepted in ((text_of(name), True), (text_of(name).replace("readOnlyRoot", "readonlyRoot"), False)):
        (tmp_path / "file.yaml").write_text(text)
        found = subprocess.run([tool, "--strict", tmp_path / "file.yaml"], capture_output=True, text=True, check=False)
        assert (found.returncode == 0) == accepted, found.stdout + found.stderr


def test_there_is_no_other_file() -> None:
    assert [file.name for file in FILES] == ["broker.yaml", "party.yaml", "server.yaml"]


@pytest.mark.parametrize("name", PARTIES)
def test_the_command_of_a_party_exists(name: str) -> None:
    options = parser().parse_args(node(name)["args"])
    assert options.command.__self__.name == "node"
    mounted = {volume["mountPath"] for volume in node(name)["volumeMounts"]}
    for path in (options.invitation, options.policy, options.data, options.store):
        assert path is None or {str(path), str(path.parent)} & mounted, path
    assert (options.policy is None) == (options.data is None) == (name == "server")


@pytest.mark.parametrize("name", PARTIES)
def test_what_is_mounted_is_the_partys_own_or_made_for_it(name: str) -> None:
    """Names of secrets and claims begin with the party's; claims that a node writes to are in its file."""
    volumes = {volume.pop("name"): volume for volume in pod(name)["volumes"]}
    for mount in (*node(name)["volumeMounts"], *pod(name)["initContainers"][0]["volumeMounts"]):
        assert mount["name"] in volumes
    claims = {one["persistentVolumeClaim"]["claimName"] for one in volumes.values() if "persistentVolumeClaim" in one}
    made = {key.split()[1] for key in documents(name) if key.startswith("PersistentVolumeClaim")}
    assert claims - made == ({f"{name}-owner"} if name != "server" else set())
    assert made == {f"{name}-{what}" for what in (("ledger", "state") if name != "server" else ("state",))}
    assert {one["secret"]["name"].removesuffix("-2") for one in volumes["secret"]["projected"]["sources"]} == {name}
    for key in made:
        assert documents(name)[f"PersistentVolumeClaim {key}"]["spec"]["accessModes"] == ["ReadWriteOncePod"]


@pytest.mark.parametrize("name", PARTIES)
def test_a_further_run_is_a_job_of_its_own(name: str, tmp_path: Path) -> None:
    """The page's command makes it: the same, but for its name and the run that it takes part in."""
    (command,) = re.findall(r"^ *(sed '.*) party.yaml \| kubectl", PAGE, re.MULTILINE)
    words = shlex.split(command.replace("hospital-a", name))
    made = subprocess.run(words, input=text_of(name), capture_output=True, text=True, check=True).stdout
    before, after = documents(name), {one["metadata"]["name"]: one for one in yaml.safe_load_all(made)}
    job, further = before.pop(f"Job {name}"), after.pop(f"{name}-2")
    assert [*after.values()] == [*before.values()]  # claims: of one pod at a time, so one waits for the other
    args = further["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args.pop() == "--run=2"
    assert further | {"metadata": {"name": name}} == job
    options = parser().parse_args([*args, "--run=2"])
    assert options.run == ["2"]


@pytest.mark.parametrize("name", PARTIES)
@pytest.mark.parametrize("further", [False, True])
def test_papers_are_the_nodes_alone_and_where_it_looks_for_them(name: str, further: bool, tmp_path: Path) -> None:
    """By the very command, on files as kubelet mounts them: links to what a group may read."""
    (volume,) = [one for one in pod(name)["volumes"] if one["name"] == "secret"]
    first, second = [one["secret"] for one in volume["projected"]["sources"]]
    assert (first["name"], second["name"], second["optional"]) == (name, f"{name}-2", True)
    mounted = ["identity.key", "invitation.yaml", "tls.crt", "ca.crt"]
    mounted += [one["path"] for one in second["items"]] if further else []
    (secret := tmp_path / "secret").mkdir()
    (party := tmp_path / "party").mkdir()
    for path in mounted:
        (file := secret / "..now" / path).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        file.chmod(volume["projected"]["defaultMode"])
        if not (link := secret / path.partition("/")[0]).is_symlink():
            link.symlink_to(Path("..now") / link.name)
    words = [word.replace("/secret/", f"{secret}/") for word in pod(name)["initContainers"][0]["command"]]
    for _ in range(2):  # a container that is started again does so too
        subprocess.run([word.replace("/party/", f"{party}/") for word in words], check=True)
    there = {str(file.relative_to(party)): file for file in party.rglob("*") if file.is_file()}
    assert sorted(there) == sorted(mounted)
    for path, file in there.items():
        assert (file.read_text(), file.stat().st_mode & 0o777, file.is_symlink()) == (path, 0o600, False)
    chosen = parser().parse_args(node(name)["args"])
    options = PartyOptions(party / chosen.invitation.name, run="2" if further else None, store=chosen.store)
    assert options.file.is_file()


@pytest.mark.parametrize("name", PARTIES)
@pytest.mark.parametrize("place", ["state", "state/runs/2"])
def test_a_status_of_three_minutes_ago_has_the_node_started_again(name: str, place: str, tmp_path: Path) -> None:
    words = [word.replace("/state", f"{tmp_path}/state") for word in node(name)["livenessProbe"]["exec"]["command"]]
    (status := tmp_path / place / "status.json").parent.mkdir(parents=True)
    status.write_text("{}")
    assert subprocess.run(words, check=False).returncode == 0
    os.utime(status, (then := time.time() - 180.0, then))
    assert subprocess.run(words, check=False).returncode != 0


@pytest.mark.parametrize("name", ["broker", *PARTIES])
def test_containers_have_as_few_rights_as_they_can_do_with(name: str) -> None:
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == rights
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert writable <= ({"/party"} if container["name"] == "papers" else {"/state", "/ledger", "/tmp"})


@pytest.mark.parametrize("name", PARTIES)
def test_the_job_ends_where_a_service_would_not_be_started_again(name: str) -> None:
    unit = (DEPLOY / "gossamer-node.service").read_text(encoding="utf-8")
    (never,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    (rule,) = documents(name)[f"Job {name}"]["spec"]["podFailurePolicy"]["rules"]
    ledger = {3} if name == "server" else set()  # which only data have
    assert {*rule["onExitCodes"]["values"]} | ledger == {int(code) for code in never.split()}
    assert rule["onExitCodes"]["containerName"] == node(name)["name"]


@pytest.mark.parametrize("name", ["hospital-a", "server"])
@pytest.mark.parametrize(("ends", "told", "code"), [(0, False, 0), (4, False, 4), (0, True, 143), (3, True, 3)])
def test_a_pod_that_is_told_to_end_has_not_succeeded(
    name: str, ends: int, told: bool, code: int, tmp_path: Path
) -> None:
    """As it is when it is deleted or its machine is drained; a node ends with 0 then, and a job would be complete."""
    # By the time that it is up its parent has set a trap of its own.
    script = f"#!/bin/sh\ntrap 'exit {ends}' TERM\nsleep 0.5\necho up $2 >>{tmp_path}/up\n"
    script += "while :; do sleep 0.05; done\n" if told else f"exit {ends}\n"
    (gossamer := tmp_path / "gossamer").write_text(script)
    gossamer.chmod(0o755)
    found = node(name)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with subprocess.Popen([*found["command"], *found["args"]], env=path) as process:
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        if told:
            process.terminate()
        assert process.wait(30.0) == code
    assert (tmp_path / "up").read_text() == "up --invitation=/party/invitation.yaml\n"


@pytest.mark.parametrize("name", PARTIES)
def test_a_node_is_asked_what_the_image_asks_it(name: str) -> None:
    (asked,) = re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    for probe in ("startupProbe", "readinessProbe"):
        assert node(name)[probe]["exec"]["command"] == yaml.safe_load(asked)
