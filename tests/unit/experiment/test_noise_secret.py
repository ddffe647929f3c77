"""The noise secret as a value and as a file, and the seed of noise that follows from it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation import secrets
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.preparation.secrets import FILE, KeptSecret, NoiseSecret, mark, secret_seed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.randomness import Stream, derive, digest_of
from gossamer.version import __version__

SECRET = NoiseSecret(bytes(range(16)))
RUN = "0123456789abcdef" * 2
SMALL: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 2, "topology": "line", "updates_per_node": 2},
    "privacy": {"noise_multiplier": 2.0},
}


@pytest.mark.usefixtures("real_secrets")
def test_secrets_are_fresh() -> None:
    """16 bytes each; that two of a thousand are the same has probability 2^-109."""
    found = {NoiseSecret.fresh().value for _ in range(1000)}
    assert len(found) == 1000
    assert {len(value) for value in found} == {16}


def test_the_tests_own_secrets_are_not_those_of_another_test_or_draw() -> None:
    assert len({NoiseSecret.fresh().value for _ in range(100)}) == 100


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17), "0" * 16, bytearray(16), 7], ids=repr)
def test_a_secret_has_16_bytes(value: Any) -> None:
    with pytest.raises(SpecError, match="16 bytes"):
        NoiseSecret(value)


def test_a_secret_does_not_show() -> None:
    assert repr(SECRET) == str(SECRET) == f"{SECRET}" == "NoiseSecret()"


def test_seeds_are_keyed_blake2b() -> None:
    """RFC 7693: the key is the secret, the message names the purpose."""
    hashed = hashlib.blake2b(b'["a", "b"]', digest_size=16, key=SECRET.value, person=b"gossamer noise")
    assert SECRET.derive("a", "b") == int.from_bytes(hashed.digest(), "little")
    assert len({SECRET.derive(*labels) for labels in [("a", "b"), ("ab",), ("a", "", "b"), ("b", "a"), ()]}) == 5


def test_all_128_bits_of_a_secret_count_up_to_the_generator() -> None:
    """Two secrets that differ in one bit, whichever, have other seeds in both halves, and other numbers."""
    flipped = [(int.from_bytes(SECRET.value, "big") ^ (1 << bit)).to_bytes(16, "big") for bit in range(128)]
    seeds = [NoiseSecret(value).derive("x") for value in (SECRET.value, *flipped)]
    assert len({seed >> 64 for seed in seeds}) == len({seed % 2**64 for seed in seeds}) == 129
    assert len({Stream(seed, "node", "noise").at(1).bytes(16) for seed in seeds}) == 129


def test_all_128_bits_of_a_seed_count_in_a_stream() -> None:
    """The generator's key is as long as the seed: no bit of it is left out on the way."""
    seeds = [SECRET.derive("x") ^ (1 << bit) for bit in range(128)]
    keys = {tuple(map(int, Stream(seed, "node", "noise").key)) for seed in seeds}
    assert len({first for first, _ in keys}) == len({second for _, second in keys}) == 128
    assert len({Stream(seed, "node", "noise").at(1).bytes(16) for seed in seeds}) == 128
    assert len({derive(seed, "pairwise noise", "server-0") for seed in seeds}) == 128


def test_a_seed_takes_all_that_decides_gradients_and_the_secret() -> None:
    prepared = prepare(parse_spec(SMALL))
    noise = plan_run(prepared).noise
    others = [{**SMALL, "seed": 1}, {**SMALL, "privacy": {"noise_multiplier": 2.0, "clip": 2.0}}]
    seeds = [
        secret_seed(prepared, noise, secret=SECRET),
        secret_seed(prepared, noise, secret=NoiseSecret(bytes(16))),
        secret_seed(prepared, noise, "another purpose", SECRET),
        secret_seed(prepared, [{"other": "noise"}], secret=SECRET),
        *(secret_seed(prepare(parse_spec(other)), noise, secret=SECRET) for other in others),
        secret_seed(prepared, noise),
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(seed.bit_length() > 64 for seed in seeds)  # of seven, one is shorter with probability 4e-19
    assert len({mark(seed) for seed in seeds} | {f"{seed:032x}" for seed in seeds}) == 2 * len(seeds)


def test_the_seed_of_reproducible_noise_is_what_it_was_before_there_were_secrets() -> None:
    """The key `privacy.noise_secret` is new, and not among what the seed is made of."""
    prepared = prepare(parse_spec({**SMALL, "privacy": {"noise_multiplier": 2.0, "noise_secret": "reproducible"}}))
    noise = plan_run(prepared).noise
    content = prepared.experiment.model_dump(mode="json", exclude={"compute", "evaluation", "deployment"})
    before = {**content, "privacy": {k: v for k, v in content["privacy"].items() if k != "noise_secret"}}
    settings = json.dumps([secrets._deciding(before), list(noise)], sort_keys=True)
    assert "noise_secret" not in settings
    parts = digest_of(secrets._parts(prepared)).hex()
    expected = derive(0, "secret", settings, parts, secrets.REPRODUCIBLE, "run")
    assert secret_seed(prepared, noise) == expected
    assert secret_seed(prepare(parse_spec(SMALL)), noise) == expected


@pytest.mark.filterwarnings("ignore:mapa. the run ends")
def test_a_setting_that_is_gone_changes_no_run() -> None:
    """MAPA's constants were estimated on ``estimate_on``, by default synthetic examples."""
    spec = {**SMALL, "algorithm": {"name": "mapa", "nodes": 4, "gradient_sd": 1.0, "smoothness": 1.0, "loss_gap": 1e-3}}
    prepared = prepare(parse_spec({**spec, "privacy": {"mechanism": "none"}}))
    noise = plan_run(prepared).noise
    content = prepared.experiment.model_dump(mode="json", exclude=secrets._UNDECIDING)
    del content["privacy"]["noise_secret"]
    content["algorithm"]["estimate_on"] = "synthetic"
    settings = json.dumps([secrets._deciding(content), list(noise)], sort_keys=True)
    parts = digest_of(secrets._parts(prepared)).hex()
    expected = derive(0, "secret", settings, parts, secrets.REPRODUCIBLE, "run")
    assert secret_seed(prepared, noise) == expected


# The file


def test_the_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KeptSecret.of(SECRET, RUN).write(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert KeptSecret.read(tmp_path) == KeptSecret.of(SECRET, RUN, "run")


def test_the_file_has_its_mode_before_it_has_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no moment at which others could open it."""
    made: list[tuple[int, int]] = []
    really = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        made.append((flags, mode))
        return really(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    KeptSecret.of(SECRET, RUN).write(tmp_path)
    assert [mode for flags, mode in made if flags & os.O_CREAT] == [0o600]
    assert all(flags & os.O_EXCL for flags, _ in made if flags & os.O_CREAT)


def test_a_secret_never_replaces_another(tmp_path: Path) -> None:
    KeptSecret.of(SECRET, RUN).write(tmp_path)
    with pytest.raises(DataError, match="exists already"):
        KeptSecret.of(NoiseSecret(bytes(16)), RUN).write(tmp_path)
    assert KeptSecret.read(tmp_path).secret == SECRET


SOUND = {"noise_secret": SECRET.value.hex(), "run": RUN, "made_by": "run", "gossamer": __version__, "tested": ""}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 4000,
        b"[]",
        b"null",
        json.dumps({**SOUND, "noise_secret": SECRET.value.hex()[:-1]}).encode(),
        json.dumps({**SOUND, "noise_secret": SECRET.value.hex().upper()}).encode(),
        json.dumps({**SOUND, "noise_secret": list(SECRET.value)}).encode(),
        json.dumps({**SOUND, "noise_secret": SECRET.value.hex() + "\n"}).encode(),
        json.dumps({**SOUND, "run": "x"}).encode(),
        json.dumps({**SOUND, "more": ""}).encode(),
        json.dumps({key: value for key, value in SOUND.items() if key != "gossamer"}).encode(),
        json.dumps(SOUND).encode()[:-3],
        json.dumps(SOUND).encode() + b" " * 5000,
    ],
    ids=range(14),
)
def test_a_malformed_file_gets_one_line_without_its_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(DataError) as caught:
        KeptSecret.read(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert SECRET.value.hex()[:8] not in str(caught.value)


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    """The one that the malformed ones are made of."""
    (tmp_path / FILE).write_text(json.dumps(SOUND))
    (tmp_path / FILE).chmod(0o600)
    assert KeptSecret.read(tmp_path).secret == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    KeptSecret.of(SECRET, RUN).write(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(DataError, match=f"others may use this noise secret .mode {mode:04o}, expected 0600") as caught:
        KeptSecret.read(tmp_path)
    # A new secret would not be this run's.
    assert "chmod 600 it, or count the run as one without a guarantee if anyone may have read it" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the noise secret: No such file"):
        KeptSecret.read(tmp_path)


# Which runs have one


@pytest.mark.parametrize(
    ("sections", "secretive"),
    [
        ({"privacy": {"noise_multiplier": 2.0}}, True),
        ({"privacy": {"mechanism": "l2_laplace", "epsilon": 1.0, "norm": "exponential"}}, True),
        ({"privacy": {"noise_multiplier": 2.0, "noise_secret": "reproducible"}}, False),
        ({"privacy": "none"}, False),
        ({"privacy": {"mechanism": "none", "noise_secret": "reproducible"}}, False),
        (
            {"privacy": {"mechanism": "none", "clip": 1.0}, "algorithm": {"name": "graph_federated", "noise": "none"}},
            False,
        ),
        (
            {
                "privacy": {"mechanism": "none", "clip": 1.0},
                "algorithm": {"name": "graph_federated", "noise": "none", "masking": "secure"},
            },
            True,
        ),
    ],
    ids=["noise", "a paper's noise", "reproducible", "none", "none, reproducible", "units", "masks"],
)
def test_runs_that_draw_what_nobody_may_guess_have_secrets(sections: dict[str, Any], secretive: bool) -> None:
    assert parse_spec(sections).secretive is secretive


def test_a_run_without_a_secret_takes_none() -> None:
    with pytest.raises(SpecError, match="same spec gives the same bytes"):
        gs.run(parse_spec({**SMALL, "privacy": "none"}), secret=SECRET)
