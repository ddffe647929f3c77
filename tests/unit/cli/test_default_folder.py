"""The default folder for results: readable, the same for the same settings, another for others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gossamer.experiment.specs.folder_names import default_folder

SPEC = Path("examples/digits-gossip.yaml")


@pytest.mark.parametrize(
    ("kind", "seed", "settings", "name"),
    [
        ("", 0, [], "digits-gossip-seed0"),
        ("up", 3, [], "digits-gossip-up-seed3"),
        ("", 0, ["algorithm.batch_size=8"], "digits-gossip-seed0,algorithm.batch_size=8"),
        ("", 0, ["b.c=2", "a.b = 1e-4"], "digits-gossip-seed0,a.b=1e-4,b.c=2"),
        ("", 0, ["a.b=1", "a.b=2"], "digits-gossip-seed0,a.b=2"),
        ("", 0, ["reproducible", "a.b=1"], "digits-gossip-seed0,a.b=1,reproducible"),
        ("", 7, ["seed=7"], "digits-gossip-seed7"),
    ],
)
def test_the_name_says_what_was_set(kind: str, seed: int, settings: list[str], name: str) -> None:
    assert default_folder(SPEC, kind, seed, settings) == Path("runs") / name


@pytest.mark.parametrize("value", ["../../etc", "[a, b]", "x" * 33, "a b", "ä", "", "$(reboot)", "\udcff"])
def test_what_no_name_may_hold_is_hashed(value: str) -> None:
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:8]
    assert default_folder(SPEC, "", 0, [f"a={value}"]).name == f"digits-gossip-seed0,a=sha-{digest}"


def test_many_settings_stay_a_name_of_a_file() -> None:
    many = [f"section.key{number}=value{number}" for number in range(100)]
    names = {default_folder(SPEC, "", 0, settings).name for settings in (many, many[::-1], [*many[:-1], "b=1"])}
    assert len(names) == 2
    assert all(len(name) < 60 and "100-settings-" in name for name in names)
