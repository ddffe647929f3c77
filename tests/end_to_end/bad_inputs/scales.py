"""Papers of a scale that parties find together: none, others', damaged ones, and commands that have nothing to do."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.bad_inputs.case import Case, Make
from tests.end_to_end.bad_inputs.paths import a_folder, called, pipe

PARTY = "scaled/node-0"
NODE = f"node --invitation {PARTY}/invitation.yaml --quiet --connect-timeout 0.1 --policy {PARTY}/policy.yaml"
SCALE = f"federation scale {PARTY}/invitation.yaml --policy {PARTY}/policy.yaml"
COMBINE = "federation combine scaled"
HEAD = "format: '1'\nrun: {}\nspec_sha256: {}\n".format("0" * 32, "0" * 64)
RELEASE = f"{HEAD}party: node-0\nvalues: AAAA\nsignature: AAAA\n"
PAPER = f"{HEAD}releases: []\nranges: {{}}\nsignature: AAAA\n"

_HEADER = "expected the scale of a run, in YAML of format 1"

PAPERS: tuple[tuple[str, str | bytes | Make, str], ...] = (
    ("bytes", bytes(range(256)), _HEADER),
    ("nothing", "", _HEADER),
    ("a list", "[1, 2]\n", _HEADER),
    ("brackets", "format: " + "[" * 20_000, _HEADER),
    ("aliases", "format: &a '1'\nrun: *a\n", _HEADER),
    ("a release", RELEASE, _HEADER),
    ("another format", PAPER.replace("'1'", "'2'"), _HEADER),
    ("another run", PAPER, "found that of another run, or of another spec"),
    ("a folder", called(a_folder, f"{PARTY}/scale.yaml"), "cannot read the scale that this run starts with"),
    ("a pipe", called(pipe, f"{PARTY}/scale.yaml"), "cannot read the scale that this run starts with"),
)
"""Files in the place of ``scale.yaml`` beside an invitation."""

RELEASES: tuple[tuple[str, str | bytes, str], ...] = (
    ("bytes", bytes(range(256)), "sent.scale: expected a party's release for the scale"),
    ("nothing", "", "sent.scale: expected a party's release for the scale"),
    ("the scale", PAPER, "sent.scale: expected a party's release for the scale"),
    ("another run", RELEASE, "sent.scale: expected a party's release for the scale of run"),
)
"""Files that ``gossamer federation combine`` is called with."""


def _own(content: bytes) -> Make:
    """Something else in the place of a party's own release."""

    def make(folder: Path) -> None:
        (folder / PARTY / "node-0.scale").write_bytes(content)

    return make


def _paper(id: str, content: str | bytes | Make, says: str) -> Case:
    given = {"make": content} if callable(content) else {"files": {f"{PARTY}/scale.yaml": content}}
    leaves = f"{PARTY}/state"
    return Case(f"scale: {id}", KIND, NODE, says, of="scaled", leaves=leaves, **given)  # type: ignore[arg-type]


KIND = "paper"
CASES: tuple[Case, ...] = (
    Case("scale: none", KIND, NODE, "cannot read the scale that this run starts with", of="scaled", leaves=PARTY),
    *(_paper(*one) for one in PAPERS),
    *(
        Case(f"combine: {id}", KIND, f"{COMBINE} sent.scale", says, {"sent.scale": content}, of="scaled")
        for id, content, says in RELEASES
    ),
    Case("combine: no file", KIND, f"{COMBINE} sent.scale", "sent.scale: cannot read", of="scaled"),
    Case("combine: no federation", KIND, "federation combine . sent.scale", "federation.yaml", {"sent.scale": RELEASE}),
    Case(
        "combine: a run without a private scale",
        KIND,
        "federation combine federation sent.scale",
        "there is nothing to combine",
        {"sent.scale": RELEASE},
        of="federation",
    ),
    Case(
        "release: a run without a private scale",
        KIND,
        "federation scale federation/node-0/invitation.yaml --policy federation/node-0/policy.yaml",
        "there is nothing to release",
        of="federation",
    ),
    Case("release: another file there", KIND, SCALE, "node-0.scale: expected a party's", make=_own(b"x"), of="scaled"),
    Case("release: no invitation", KIND, "federation scale x.yaml --policy y.yaml", "x.yaml: cannot read"),
    Case(
        "release: no policy", KIND, SCALE.replace("policy.yaml", "none.yaml"), "none.yaml: cannot be read", of="scaled"
    ),
)
