"""Algorithms that other distributions register: found without being imported, hashed, allowed, refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.reference.outside import SOURCES, written

from gossamer.algorithms.table import ALGORITHMS, KIND
from gossamer.deployment.owner.policy import OwnerPolicy, read_policy
from gossamer.errors import SpecError
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.section import Registered

BOOM = "raise RuntimeError('boom')\n"


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(vars(KIND), "loaded", {})
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path."""
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def one(name: str) -> Registered:
    found = KIND.find(name)
    assert found is not None
    return found


def refusal(spec: dict[str, object], **options: object) -> str:
    """The one line with which a spec is refused."""
    with pytest.raises(SpecError) as caught:
        parse_spec(spec, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nobody_registers_one_here() -> None:
    assert KIND.registered() == []
    assert KIND.all_names() == list(KIND.names)
    assert {*KIND.names} == {*ALGORITHMS}
    assert KIND.find("mean") is None


def test_an_unknown_name_lists_what_there_is_and_imports_nothing(site: Path) -> None:
    written(site, "Some_Thing", "2.1", {"surprise": "surprising:ALGORITHM"}, surprising=BOOM)
    expected = "algorithm: unknown name 'nonsense'; expected one of " + ", ".join(sorted([*ALGORITHMS, "surprise"]))
    assert refusal({"algorithm": "nonsense"}) == expected
    assert refusal({"algorithm": "surprize"}) == "algorithm: unknown name 'surprize'; did you mean surprise?"
    assert "surprising" not in sys.modules


def test_one_that_is_broken_is_named_with_its_distribution_and_harms_no_other(site: Path) -> None:
    written(site, "Some_Thing", "2.1", {"surprise": "surprising:ALGORITHM"}, surprising=BOOM)
    assert parse_spec({"algorithm": "allreduce", "privacy": "none"}).algorithm.name == "allreduce"
    assert refusal({"algorithm": "surprise"}) == (
        "algorithm: 'surprise' is registered by some-thing 2.1, and surprising:ALGORITHM cannot be imported: "
        "RuntimeError: boom; mend that distribution, or uninstall it"
    )


SETTINGS = """
from gossamer.algorithms.gossip import box
ALGORITHM = {}
"""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "cannot be imported: AttributeError: module 'surprising' has no attribute 'ALGORITHM'"),
        ("ALGORITHM = 3\n", "surprising:ALGORITHM is 3, expected an Algorithm"),
        (SETTINGS.format("box.ALGORITHM"), 'the settings of surprising:ALGORITHM have no name: Literal["surprise"]'),
    ],
)
def test_what_is_no_algorithm_of_this_name(site: Path, content: str, why: str) -> None:
    written(site, "other", "1", {"surprise": "surprising:ALGORITHM"}, surprising=content)
    found = refusal({"algorithm": "surprise"})
    assert found.startswith("algorithm: 'surprise' is registered by other 1, and ")
    assert why in found


def test_a_name_that_two_distributions_register(site: Path) -> None:
    written(site, "left", "1.0", {"twin": "left_one:ALGORITHM"}, left_one=BOOM)
    written(site, "right", "2.0", {"twin": "right_one:ALGORITHM"}, right_one=BOOM)
    assert refusal({"algorithm": "twin"}) == (
        "algorithm: 'twin' is registered by left 1.0 and by right 2.0; uninstall one of them"
    )


def test_a_name_of_gossamers_own(site: Path) -> None:
    """The name means what it always means; the distribution is refused with all that it registers."""
    written(site, "bold", "1.0", {"gossip": "bold_one:A", "modest": "bold_one:B"}, bold_one=BOOM)
    assert type(parse_spec({"algorithm": "gossip", "privacy": "none"}).algorithm) is ALGORITHMS["gossip"].Settings
    assert refusal({"algorithm": "modest"}) == (
        "algorithm: 'gossip' is an algorithm of gossamer itself, and bold 1.0 registers it too; uninstall bold 1.0"
    )


def test_code_that_is_not_allowed_is_not_imported(site: Path) -> None:
    written(site, "Some_Thing", "2.1", {"surprise": "surprising:ALGORITHM"}, surprising=BOOM)
    code = one("surprise").code
    said = (
        "algorithm: surprise would have code run on this machine, of some-thing 2.1; if that is the algorithm that was "
        f"agreed on and you trust it, allow it (modules: in the policy, or --module {code})"
    )
    changed = code[:-1] + ("0" if code[-1] != "0" else "1")
    for modules in ((), ("surprise", "surprising:ALGORITHM", "some-thing==2", "some-thing==2.1.0", changed)):
        assert refusal({"algorithm": {"name": "surprise", "nodes": 3}}, modules=modules) == said
    for allowed in ("some-thing", "some-thing==2.1", code):
        assert "RuntimeError: boom" in refusal({"algorithm": "surprise"}, modules=[allowed])


def test_the_source_is_that_of_all_files_whoever_lists_them(site: Path) -> None:
    """Any change of a byte, a name or a file shows; bytecode and metadata do not."""
    parts = site / "parts"
    (parts / "inner").mkdir(parents=True)
    (parts / "__init__.py").write_text("")
    (parts / "inner" / "__init__.py").write_text("")
    (parts / "helper.py").write_text("x = 1\n")
    written(site, "whole", "1.0", {"whole": "parts.inner:ALGORITHM"}, beside="y = 1\n")

    def source() -> str:
        return one("whole").source

    found = [source()]
    (parts / "__pycache__").mkdir()
    (parts / "__pycache__" / "helper.pyc").write_text("compiled")
    (site / "whole-1.0.dist-info" / "INSTALLER").write_text("somebody")
    assert source() == found[0]
    for file, content in (
        ("parts/helper.py", "x = 2\n"),
        ("beside.py", "y = 2\n"),
        ("parts/inner/table.csv", "1"),
        ("parts/inner/more.py", ""),
    ):
        (site / file).write_text(content)
        found.append(source())
    (parts / "helper.py").rename(parts / "helped.py")
    assert len({*found}) == len(found)
    assert "parts" not in sys.modules


def test_the_source_of_a_package_in_a_namespace_is_its_own(site: Path) -> None:
    """The namespace is shared with others, and has no code."""
    for name in ("mine", "theirs"):
        (site / "shared_space" / name).mkdir(parents=True)
        (site / "shared_space" / name / "__init__.py").write_text(BOOM)
    written(site, "mine", "1.0", {"mine": "shared_space.mine:ALGORITHM"})
    (site / "mine-1.0.dist-info" / "RECORD").unlink()  # as of an installation that lists nothing
    before = one("mine").source
    (site / "shared_space" / "theirs" / "__init__.py").write_text("")
    assert one("mine").source == before
    (site / "shared_space" / "mine" / "__init__.py").write_text("")
    assert one("mine").source != before


def test_source_that_is_nowhere(site: Path) -> None:
    written(site, "empty", "1.0", {"empty": "not_there:ALGORITHM"})
    assert refusal({"algorithm": "empty"}) == (
        "algorithm: 'empty' is registered by empty 1.0, and no source of not_there is found; "
        "mend that distribution, or uninstall it"
    )


def test_the_same_source_has_the_same_hash_wherever_it_is(site: Path, tmp_path: Path) -> None:
    text = (SOURCES / "mean_of_gradients" / "mean_of_gradients.py").read_text()
    written(site, "mean-of-gradients", "1.0", {"mean": "mean_of_gradients:ALGORITHM"}, mean_of_gradients=text)
    with_record = one("mean").source
    (site / "mean-of-gradients-1.0.dist-info" / "RECORD").unlink()  # an editable installation lists no source
    assert one("mean").source == with_record


def test_a_policy_knows_names_that_are_registered_and_roles_of_code_that_it_allows(site: Path, tmp_path: Path) -> None:
    """Of what it does not allow nothing is imported, whatever it speaks of."""
    text = (SOURCES / "mean_of_gradients" / "mean_of_gradients.py").read_text()
    text = text.replace("mean.", "policed.").replace('"client"', '"reader"').replace('"mean"', '"policed"')
    written(site, "policed", "1.0", {"policed": "policed_mean:ALGORITHM"}, policed_mean=text)
    file = tmp_path / "policy.yaml"

    def read(**rules: object) -> OwnerPolicy:
        file.write_text(yaml.safe_dump({"data": {"wards": {"epsilon": 4, "delta": 1e-5}}, **rules}))
        return read_policy(file)

    assert read(algorithms=["policed"]).algorithms == ("policed",)
    with pytest.raises(SpecError, match=r"algorithms: unknown name 'policd'; did you mean policed\?"):
        read(algorithms=["policd"])
    with pytest.raises(SpecError, match="roles: unknown name 'reader'"):
        read(roles=["reader"], modules=["policed==2.0"])
    assert "policed_mean" not in sys.modules
    assert read(roles=["reader"], modules=["policed==1.0"]).roles == ("reader",)
