"""The verifier on strange numbers: a verdict that holds, or one line and exit code 2; no traceback and no warning.

Each number of a receipt and of a guarantee is replaced: once by each value of a list, and by generated ones. What is
said to follow is computed again by the library, from what the file says now.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sampling import examples
from tests.unit.verify.chains import Written, card, chained, stored

from gossamer.cli import main
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import EXAMPLE, OTHER_NODES
from gossamer.privacy.mechanisms import FixedSize, Gaussian, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.streams.correlated_noise import Factorisation, Temporal
from gossamer.verify.gossamer_verify import PROTECTED

STRANGE: list[Any] = [0, 0.0, -1, -0.5, math.inf, -math.inf, math.nan, 1e308, -1e308, 10**30, 10**400, 1e-320, 1e-90]
STRANGE += [True, False, None, "1", "", [], {}, [1.0]]
FIRST = {"receipts": 3, "run": "5e" * 32, "key": None}
RELATIONS = {"poisson": "add_or_remove_one", "fixed": "replace_one", "stream": "replace_one"}
UNITS = {unit: observer for observer, unit in PROTECTED.items()}
UNIT = {"unit": "federated unit", "observer": UNITS["federated unit"]}
NODE = {"unit": EXAMPLE, "observer": OTHER_NODES}
LAWS: dict[str, dict[str, Any]] = {
    "poisson": {"mechanism": "Gaussian", "noise_multiplier": 2.0, "sampling": "Poisson", "probability": 0.1, "size": 5},
    "fixed": {
        "mechanism": "Gaussian",
        "noise_multiplier": 4.0,
        "sampling": "FixedSize",
        "dataset_size": 50,
        "batch_size": 5,
        "size": 5,
    },
    "stream": {
        "mechanism": "stream",
        "law": "gaussian",
        "standard_deviation": 0.5,
        "temporal": "banded",
        "rounds": 3,
        "bands": 2,
        "records": 3,
        "size": 5,
    },
}
LINES = {"receipts": 0, "most": 2, "moved": 2, "number": 3, "law": 3, "clip": 3, "time": 3}
"""Lines that a number is in; those of laws are in line 1."""
ENTRY = ("epsilon", "delta", "mu", "best_guess", "rows_per_person", "profile.epsilons", "profile.deltas")
CASES = [
    *((kind, name) for kind, law in LAWS.items() for name, value in law.items() if not isinstance(value, str)),
    *(("poisson", name) for name in (*LINES, "format", "end.releases", "card.releases", *ENTRY) if name != "moved"),
    ("stream", "moved"),
    ("stream", "most"),
]


def made(kind: str, name: str, value: Any) -> tuple[list[dict[str, Any]], Written, dict[str, Any]]:
    """Lines of a chain with one number replaced, the chain, and its guarantee."""
    law, stream = dict(LAWS[kind]), kind == "stream"
    most: Any = {"0": 3}
    plan: dict[str, Any] = {"party": "a", "most": most, **(UNIT if stream else NODE)}
    plan |= {"moved": 0.1} if stream else {}
    receipt = {"of": "a", "number": 1, "query": "Q", "law": 0, "clip": None if stream else 1.0, "time": 0.5}
    lines = [dict(FIRST), {"law": law}, plan, receipt]
    if name in law:
        law[name] = value
    elif name == "most":
        most["0"] = value
    elif name in LINES:
        lines[LINES[name]][name] = value
    chain = chained(lines)
    said = card(chain.head, 30.0, mu=8.0)
    entry = said["guarantees"][0]
    entry |= {"best_guess": 1.0, "profile": {"epsilons": [0.0], "deltas": [1.0]}}
    entry["neighboring_relation"] = RELATIONS[kind]
    if stream:
        entry |= {**UNIT, "rows_per_person": None}
    if name == "format":
        said["format"] = value
    elif name == "card.releases":
        said["receipts"]["releases"] = value
    elif name == "end.releases":
        last = json.loads(chain.lines[-1]) | {"releases": value}
        chain = chain._replace(lines=[*chain.lines[:-1], json.dumps(last) + "\n"])
    elif name.startswith("profile."):
        entry["profile"][name.partition(".")[2]] = [value]
    elif name in entry and name not in law:
        entry[name] = value
    return lines, chain, said


def own_epsilon(kind: str, lines: list[dict[str, Any]], delta: float) -> float:
    """Epsilon of the plan, or an error, by the library; true is 1, and bands as wide as all records are all of them."""
    law, plan = {name: int(value) if value is True else value for name, value in lines[1]["law"].items()}, lines[2]
    if kind == "stream":
        records = math.ceil(law["records"])
        narrow = law["bands"] < records
        temporal = Temporal.BANDED if narrow else Temporal.SQRT_TOEPLITZ
        factorisation = Factorisation(temporal, records, math.ceil(law["bands"]) if narrow else None)
        return gaussian_epsilon(plan["moved"] / law["standard_deviation"] * factorisation.sensitivity, delta)
    sampling = (
        Poisson(law["probability"])
        if kind == "poisson"
        else FixedSize(int(law["dataset_size"]), int(law["batch_size"]))
    )
    counts = {ReleaseKind(Gaussian(1.0, law["noise_multiplier"]), sampling, 5): plan["most"]["0"]}
    return epsilon(counts, delta, NeighboringRelation(RELATIONS[kind])).epsilon


def check(folder: Path, kind: str, name: str, value: Any) -> int:
    """The exit code, once it is seen that what was said fits it, and that what follows does."""
    lines, chain, said = made(kind, name, value)
    place, out, err = stored(folder, chain.text, said), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["verify", str(place)])
    assert (err.getvalue().count("\n"), out.getvalue() == "") == ((1, True) if code == 2 else (0, False))
    assert "Traceback" not in err.getvalue()
    if code == 0:
        entry = said["guarantees"][0]
        promised = math.inf if entry["epsilon"] is None else entry["epsilon"]
        assert own_epsilon(kind, lines, entry["delta"]) <= promised * (1 + 2e-3)
    return code


def test_the_cases_themselves_follow(tmp_path: Path) -> None:
    for kind in LAWS:
        assert check(tmp_path / "a", kind, "", None) == 0


def test_plans_that_nobody_can_compute_end_at_once(tmp_path: Path) -> None:
    # Rounding errors of so many releases are larger than what is bounded; so many records would not fit into memory.
    assert [check(tmp_path / "a", "poisson", "most", most) for most in (10**13, 10**30)] == [2, 2]
    assert check(tmp_path / "a", "stream", "records", 10**9) == 2


@pytest.mark.some(6)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_strange_numbers_are_refused_or_judged(kind: str, name: str, tmp_path: Path) -> None:
    codes = {repr(value)[:20]: check(tmp_path / "a", kind, name, value) for value in STRANGE}
    assert set(codes.values()) <= {0, 1, 2}
    for never in ("inf", "-inf", "nan", "1e+308", "-1e+308", "1e-320", "-1", "-0.5"):
        assert codes[never] == 2, never


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from(CASES),
    value=st.one_of(
        st.floats(), st.floats(1e-6, 1e3), st.integers(), st.integers(0, 300), st.text(max_size=3), st.booleans()
    ),
)
def test_generated_numbers_are_refused_or_judged(case: tuple[str, str], value: Any, tmp_path: Path) -> None:
    check(tmp_path / "a", *case, value)
