"""The page about federations: its commands run, one after the other, and say what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli import main
from gossamer.cli.main import parser
from gossamer.deployment.owner.policy import read_policy

pytestmark = pytest.mark.usefixtures("called_here")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "federation.md").read_text(encoding="utf-8")
FINGERPRINT = re.compile(r"\b(?:[0-9a-f]{4}-){7}[0-9a-f]{4}\b")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


CONSOLE = [
    (command, said)
    for block in blocks("console")
    for command, _, said in (part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
]


def blurred(text: str) -> list[str]:
    """Lines without what is drawn at random, and without days."""
    text = FINGERPRINT.sub("FINGERPRINT", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "RUN", text)
    text = re.sub(r"\d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d \d\d:\d\d", "DAYS", text)
    return [line.rstrip() for line in text.splitlines() if line.strip() and line != "..."]


def test_every_command_exists() -> None:
    ours = [command for command, _ in CONSOLE if command.startswith("gossamer ")]
    assert len(ours) >= 8
    for command in ours:
        parser().parse_args(shlex.split(command)[1:])


def test_the_walk(capsys: pytest.CaptureFixture[str]) -> None:
    spec, policy = blocks("yaml")
    Path("spec.yaml").write_text(spec)
    Path("second.yaml").write_text(spec.replace("epsilon: 2", "epsilon: 1"))
    Path("keys").mkdir()
    Path("new-keys").mkdir()
    for name in ("hospital-b", "hospital-c", "hospital-d"):
        assert main(["federation", "identity", name]) == 0
        Path(name, f"{name}.pub").rename(Path("new-keys" if name == "hospital-d" else "keys", f"{name}.pub"))
    organiser, steps = "", 0
    for command, said in CONSOLE:
        words = shlex.split(command)
        if words[:2] != ["gossamer", "federation"]:
            continue
        capsys.readouterr()
        assert main([organiser if FINGERPRINT.fullmatch(word) else word for word in words[1:]]) == 0, command
        captured = capsys.readouterr()
        found = blurred(captured.out + captured.err)
        assert [line for line in blurred(said) if line not in found] == [], captured.out
        steps += 1
        if words[2] == "identity":
            Path("hospital-a/hospital-a.pub").rename("keys/hospital-a.pub")
        if words[2:4] == ["new", "stays"]:
            (organiser,) = re.findall(r"organiser +(\S+)", captured.out)
            for file in ("invitation.yaml", "tls.crt", "ca.crt"):
                Path("stays/hospital-a", file).rename(Path("hospital-a", file))
    assert steps == 8
    Path("policy.yaml").write_text(policy)
    assert list(read_policy("policy.yaml").data) == ["stays"]


def test_the_comparison_can_fail() -> None:
    assert blurred("a 1.1\n...\n") == ["a 1.1"]
    assert blurred("plan 90") != blurred("plan 91")
