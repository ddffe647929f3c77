"""The owner's policy: what its file may say, and every rule that a run can break."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.deployment.owner.owned_data import budget_of
from gossamer.deployment.owner.policy import Asked, OwnerPolicy, read_policy, refusals, relies
from gossamer.errors import BudgetSpent, SpecError
from gossamer.keys.identity import PublicKey
from gossamer.keys.invitations import Member
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.filters import EitherFilter, FilterTotal, widest_order_of
from gossamer.privacy.accounting.planner import calibrate, gaussian_family
from gossamer.privacy.mechanisms import (
    BatchSampling,
    Counts,
    FixedSize,
    Gaussian,
    L2Laplace,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.runtimes.storage.ledger import LedgerFile

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
KEYS = [PublicKey(bytes([number]) * 32) for number in range(2, 6)]
ORGANISER, B, C, OTHER = KEYS
PEERS = (Member("b", "worker", B, examples=10), Member("c", "worker", C, examples=10))

DATA = "data:\n  wards:\n    epsilon: 4\n    delta: 1e-5\n"
SMALL = f"{DATA}organisers: [{ORGANISER.fingerprint}]\n"


def series(name: str = "monthly", **plan: str) -> str:
    """A policy with a series of one plan, which fits where nothing else is said."""
    values = {"runs": "1", "releases": "10", "sampling_rate": "0.01", "noise_multiplier": "4", **plan}
    text = ", ".join(f"{key}: {value}" for key, value in values.items())
    return f"{DATA}    series: {{{name}: {{epsilon: 1, delta: 1e-6, plans: [{{{text}}}]}}}}\n"


ASKED = Asked(
    algorithm="gossip",
    role="worker",
    name="a",
    peers=PEERS,
    organiser=ORGANISER,
    private=True,
    clip=1.0,
    noise_multiplier=1.0,
    epsilon=3.0,
    delta=1e-5,
    relation=ADD,
)
AGENT = replace(ASKED, role="agent", algorithm="graph_federated", unit="agent", relation=REPLACE, noise_multiplier=None)


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    def write(text: str) -> OwnerPolicy:
        path = tmp_path / "policy.yaml"
        path.write_text(text, encoding="utf-8")
        return read_policy(path)

    return write


# The file


def test_a_small_policy_has_safe_defaults(policy: Any, tmp_path: Path) -> None:
    found = policy(DATA)
    rule = found.data["wards"]
    assert (rule.epsilon, rule.delta, rule.relation, rule.order, rule.path) == (4.0, 1e-5, ADD, None, None)
    assert (found.organisers, found.algorithms, found.roles, found.peers) == ((), None, None, None)
    assert (found.without_privacy, found.trust_own_server, found.smallest_sum) == (False, False, 3)
    assert (found.smallest_noise_multiplier, found.largest_clip) == (0.3, None)
    assert (found.path, found.ledger_path) == (tmp_path / "policy.yaml", tmp_path / "policy.ledger")


def test_paths_are_taken_from_the_policys_folder(policy: Any, tmp_path: Path) -> None:
    found = policy(f"{DATA}    path: sub/wards.csv\nledger: kept/all.ledger\n")
    assert found.data_path("wards") == (tmp_path / "sub/wards.csv").resolve()
    assert found.ledger_path == tmp_path / "kept/all.ledger"
    assert policy(f"{DATA}    path: /srv/wards.csv\n").data_path("wards") == Path("/srv/wards.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected rules such as data: and organisers:, found None"),
        ("- data", "expected rules such as data:"),
        ("data: {}", "line 1: data: expected 1 or more of them, found 0"),
        (
            "organisers: []",
            "line 1: data is missing: expected keys with their values, found {organisers: []}; add data",
        ),
        ("data:\n  wards:\n    epsilon: 4\n", "line 2: data.wards.delta is missing"),
        (f"{DATA}algorithm: [gossip]", "line 5: unknown key algorithm; did you mean algorithms?"),
        (f"{DATA}    epsilom: 4", "line 5: unknown key data.wards.epsilom; did you mean epsilon?"),
        (f"{DATA}algorithms: [gosip]", "algorithms: unknown name 'gosip'; did you mean gossip?"),
        (
            f"{DATA}roles: [worker, king]",
            "roles: unknown name 'king'; expected one of agent, aggregator, client,",
        ),
        (f"{DATA}roles: [workr]", "roles: unknown name 'workr'; did you mean worker?"),
        (f"{DATA}algorithms: gossip", "line 5: algorithms: expected a list"),
        (DATA.replace("4", ".nan"), "line 3: data.wards.epsilon: input should be a finite number"),
        (DATA.replace("4", ".inf"), "line 3: data.wards.epsilon: input should be a finite number"),
        (DATA.replace("4", "nan"), "line 3: data.wards.epsilon: input should be a finite number"),
        (DATA.replace("4", "0"), "line 3: data.wards.epsilon: input should be greater than 0, found 0"),
        (DATA.replace("4", "yes"), "line 3: data.wards.epsilon: input should be a number, found true"),
        (DATA.replace("4", "a lot"), "line 3: data.wards.epsilon: input should be a valid number"),
        (DATA.replace("1e-5", "1"), "line 4: data.wards.delta: input should be less than 1"),
        (
            DATA.replace("1e-5", "8e-16"),
            "line 2: data.wards: a delta of 8e-16 is less than answers that are late may take",
        ),
        (f"{DATA}    order: 1", "line 5: data.wards.order: input should be greater than 1.01"),
        (f"{DATA}    order: 1.5", "line 2: data.wards: order 1.5 proves no epsilon as small as 4 at delta 1e-05"),
        (f"{DATA}    relation: add", "line 5: data.wards.relation: input should be 'add_or_remove_one' or 'replace"),
        (f"{DATA}without_privacy: 'no'", "line 5: without_privacy: input should be a valid boolean"),
        (f"{DATA}without_privacy: 0", "line 5: without_privacy: input should be a valid boolean"),
        (f"{DATA}smallest_sum: yes", "line 5: smallest_sum: input should be a number, found true"),
        (f"{DATA}smallest_sum: 0", "line 5: smallest_sum: input should be greater than or equal to 1"),
        (f"{DATA}smallest_noise_multiplier: .nan", "line 5: smallest_noise_multiplier: input should be a finite"),
        (f"{DATA}largest_clip: -1", "line 5: largest_clip: input should be greater than 0"),
        (f"{DATA}organisers:\n- 8d0c", "line 6: organisers.0: a fingerprint is eight groups of four hexadecimal"),
        (f"{DATA}peers: [a, 3]", "line 5: peers.1: input should be a valid string, found 3"),
        (f"{DATA}roles: [worker]\nroles: [agent]", "line 6: 'roles' is given twice, first in line 5"),
        (f"{DATA}roles: [", "line 5: not YAML"),
        (f"{DATA}? [a]\n: b", "line 5: expected a key, found a list"),
        ("data: &d {wards: *d}", "an alias stands for what it is in"),
        ("data: {'[key]': {epsilon: 4, delta: 1e-5, foo: 1}}", "line 1: unknown key data.[key].foo"),
        (series(runs="1000000000000"), "plans.0.runs: input should be less than or equal to 1000000000"),
        (series(releases="9" * 30), "plans.0.releases: input should be less than or equal to 1000000000"),
        (series(runs="100000", releases="100000"), "series 'monthly': expected at most 10^9 releases in all runs"),
        (series(noise_multiplier="1e-200"), "plans.0.noise_multiplier: input should be greater than or equal to 0.01"),
        (series(noise_multiplier="1e300"), "plans.0.noise_multiplier: input should be less than or equal to 1000000"),
        (series(name="''"), "data.wards.series: a name has 1 to 100 printable characters, found ''"),
        (series(name='"a\\e[2Jb"'), "data.wards.series: a name has 1 to 100 printable characters, found 'a\\x1b[2Jb'"),
    ],
)
def test_a_mistake_names_line_and_key(policy: Any, text: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        policy(text)
    line = str(caught.value)
    assert "policy.yaml" in line
    assert expected in line
    assert "\n" not in line


def test_a_plan_that_is_wrong_is_not_said_to_be_missing_as_well(policy: Any) -> None:
    with pytest.raises(SpecError) as caught:
        policy(series(runs="0"))
    assert str(caught.value).count("line ") == 1


def test_every_mistake_is_named(policy: Any) -> None:
    with pytest.raises(SpecError, match=r"line 3: .*; line 4: .*; line 5: "):
        policy(f"{DATA.replace('4', '-1').replace('1e-5', '2')}roles: 3\n")


def test_what_cannot_be_read_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_policy(tmp_path / "policy.yaml")
    (tmp_path / "policy.yaml").write_bytes(b"data: \xff")
    with pytest.raises(SpecError, match="it is not UTF-8 text"):
        read_policy(tmp_path / "policy.yaml")


def test_fingerprints_are_read_however_they_are_typed(policy: Any) -> None:
    typed = B.fingerprint.replace("-", " ").upper()
    found = policy(f"{DATA}organisers: ['{typed}', {C.fingerprint.replace('-', '')}]\npeers: ['{typed}', b]\n")
    assert found.organisers == (B.fingerprint, C.fingerprint)
    assert found.peers == (B.fingerprint, "b")


def test_which_data_set_is_meant(policy: Any, tmp_path: Path) -> None:
    one = policy(DATA)
    assert one.data_set(None) == "wards" == one.data_set(None, tmp_path / "anything.csv")
    two = policy(f"{DATA}    path: wards.csv\n  beds: {{epsilon: 1, delta: 1e-6, path: beds.csv}}\n")
    assert two.data_set("beds") == "beds" == two.data_set(None, tmp_path / "beds.csv")
    for path in (None, tmp_path / "others.csv"):
        with pytest.raises(SpecError, match="several data sets may be meant; name one of wards, beds"):
            two.data_set(None, path)
    with pytest.raises(SpecError, match=r"line 1, data: no data set 'bed'; did you mean beds\?"):
        two.data_set("bed")


# Runs


def test_what_the_policy_allows_is_allowed(policy: Any) -> None:
    assert refusals(policy(SMALL), ASKED) == []
    everything = (
        f"{SMALL}algorithms: [gossip]\nroles: [worker]\npeers: [{B.fingerprint}, c]\nlargest_clip: 1\n"
        "smallest_noise_multiplier: 1\nsmallest_sum: 1\n"
    )
    assert refusals(policy(everything), replace(ASKED, epsilon=4.0, data="wards")) == []


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (
            DATA,
            ASKED,
            f"organisers (not in the file, so its default counts): the run asks for an invitation by "
            f"{ORGANISER.fingerprint} to be accepted; allowed: invitations by nobody",
        ),
        (
            f"{DATA}organisers: [{OTHER.fingerprint}]",
            ASKED,
            f"line 5, organisers: the run asks for an invitation by {ORGANISER.fingerprint} to be accepted; allowed: "
            f"invitations by {OTHER.fingerprint}",
        ),
        (f"{SMALL}algorithms: [audp, mapa]", ASKED, "line 6, algorithms: the run asks for gossip; allowed: audp, mapa"),
        (f"{SMALL}roles: []", ASKED, "line 6, roles: the run asks for worker; allowed: none"),
        (
            f"{SMALL}peers:\n- b\n",
            ASKED,
            f"line 6, peers: the run asks for c ({C.fingerprint}) as peers; allowed: b",
        ),
        (
            f"{SMALL}peers: [{B.fingerprint}, {OTHER.fingerprint}]",
            # A name that looks like the fingerprint of somebody who is allowed.
            replace(ASKED, peers=(PEERS[0], Member(OTHER.fingerprint, "worker", C, examples=1))),
            f"line 6, peers: the run asks for {OTHER.fingerprint} ({C.fingerprint}) as peers",
        ),
        (SMALL, replace(ASKED, private=False), "the run asks for no noise at all (privacy: none); allowed: runs with"),
        (SMALL, replace(ASKED, epsilon=math.inf), "the run asks for noise for which no epsilon is proved"),
        (SMALL, replace(ASKED, epsilon=math.nan), "the run asks for noise for which no epsilon is proved"),
        (
            f"{SMALL}without_privacy: no",
            replace(ASKED, private=False, epsilon=math.inf),
            "line 6, without_privacy: the run asks for no noise at all",
        ),
        (
            SMALL,
            replace(ASKED, noise_multiplier=0.29),
            "smallest_noise_multiplier (not in the file, so its default counts): the run asks for a noise multiplier "
            "of 0.29; allowed: 0.3 and more",
        ),
        (f"{SMALL}smallest_noise_multiplier: 2", replace(ASKED, noise_multiplier=math.nan), "multiplier of nan"),
        (f"{SMALL}largest_clip: 0.5", ASKED, "line 6, largest_clip: the run asks for a clip of 1; allowed: up to 0.5"),
        (f"{SMALL}largest_clip: 0.5", replace(ASKED, clip=None), "the run asks for no fixed clip; allowed: up to 0.5"),
        (
            SMALL,
            replace(ASKED, relation=REPLACE),
            "data.wards.relation (not in the file, so its default counts): the run asks for a guarantee under "
            "replace_one; allowed: add_or_remove_one",
        ),
        (
            SMALL,
            replace(ASKED, epsilon=4.1),
            "line 3, data.wards.epsilon: the run asks for epsilon 4.1 at delta 1e-05; allowed: 4 at 1e-05, over all",
        ),
        (SMALL, replace(ASKED, epsilon=4.1, delta=1e-4), "line 3, data.wards.epsilon"),
        (
            f"{SMALL}trust_own_server: no\nsmallest_sum: 1",
            AGENT,
            "line 6, trust_own_server: the run asks for single updates to be shown to the own server without agents' "
            "noise; allowed: agents' own noise (privacy.agent_noise), or trust_own_server: yes",
        ),
        (
            f"{SMALL}trust_own_server: yes",
            AGENT,
            "smallest_sum (not in the file, so its default counts): the run asks for single updates to be shown",
        ),
        (
            f"{SMALL}trust_own_server: yes\nsmallest_sum: 5",
            replace(AGENT, smallest_sum=4),
            "line 7, smallest_sum: the run asks for sums of 4 agents' updates to be shown to the own server; allowed: "
            "sums of 5 and more",
        ),
    ],
)
def test_a_broken_rule_is_one_line(policy: Any, text: str, asked: Asked, expected: str) -> None:
    (line,) = refusals(policy(text), asked)
    assert re.match(r".*/policy\.yaml, ", line)
    assert expected in line
    assert "\n" not in line


def test_every_broken_rule_is_named(policy: Any) -> None:
    found = policy(f"{DATA}algorithms: [audp]\nroles: [server]\npeers: []\nlargest_clip: 0.1\n")
    lines = refusals(found, replace(ASKED, noise_multiplier=0.1, epsilon=9.0))
    keys = [re.search(r"policy\.yaml, (?:line \d+, )?([\w.]+)", line) for line in lines]
    assert [key and key[1] for key in keys] == [
        "organisers",
        "algorithms",
        "roles",
        "peers",
        "smallest_noise_multiplier",
        "largest_clip",
        "data.wards.epsilon",
    ]


def test_only_the_ledger_can_judge_an_epsilon_at_a_smaller_delta(policy: Any) -> None:
    """(4.1, 1e-6) may well be (4, 1e-5)."""
    assert refusals(policy(SMALL), replace(ASKED, epsilon=4.1, delta=1e-6)) == []


def test_an_owner_may_allow_runs_without_privacy(policy: Any) -> None:
    bare = replace(ASKED, private=False, epsilon=math.inf, noise_multiplier=None, clip=None)
    assert refusals(policy(f"{SMALL}without_privacy: yes\nlargest_clip: 1"), bare) == []
    # Noise of which nothing is proved is judged like any other.
    (line,) = refusals(policy(f"{SMALL}without_privacy: yes"), replace(ASKED, epsilon=math.inf, noise_multiplier=0.1))
    assert "smallest_noise_multiplier" in line


def test_agents_with_noise_of_their_own_need_no_trust(policy: Any) -> None:
    noisy = replace(AGENT, smallest_sum=3, agent_noise=0.5)
    assert refusals(policy(SMALL), noisy) == []
    assert len(refusals(policy(SMALL), replace(noisy, agent_noise=None))) == 1
    trusting = policy(f"{SMALL}trust_own_server: yes\nsmallest_sum: 1")
    assert refusals(trusting, AGENT) == []


def test_other_roles_have_no_server_that_sees_updates(policy: Any) -> None:
    assert refusals(policy(SMALL), replace(ASKED, smallest_sum=None, agent_noise=None)) == []


CLIENT = replace(
    ASKED, role="client", algorithm="fedavg", unit="client", relation=REPLACE, shown_to=(Member("server", "server", C),)
)


def test_a_server_that_sees_updates_is_named_by_its_fingerprint(policy: Any) -> None:
    (line,) = refusals(policy(SMALL), CLIENT)
    assert "trusted_servers (not in the file, so its default counts): the run asks for single updates without" in line
    assert f"noise to be shown to server ({C.fingerprint}); allowed: them to be shown to nobody (list a" in line
    assert "\n" not in line
    (line,) = refusals(policy(f"{SMALL}trusted_servers: [{B.fingerprint}]"), CLIENT)
    assert f"allowed: them to be shown to {B.fingerprint} (list" in line
    assert refusals(policy(f"{SMALL}trusted_servers: [{C.fingerprint}]"), CLIENT) == []


def test_an_epsilon_of_clients_that_come_or_go_is_not_that_of_an_example(policy: Any) -> None:
    """One example moves a whole update by up to 2 C: what counts is the epsilon of a replacement."""
    kinds = {ReleaseKind(Gaussian(1.0, 4.0), Poisson(1.0), 3): 10}
    trusting = policy(f"{SMALL}trusted_servers: [{C.fingerprint}]")
    asked = replace(CLIENT, relation=ADD, planned=kinds, epsilon=epsilon(kinds, 1e-5, ADD).epsilon)
    replaced = epsilon(kinds, 1e-5, REPLACE).epsilon
    assert asked.epsilon < 4 < replaced
    (line,) = refusals(trusting, asked)
    assert f"epsilon {replaced:.4g} at delta 1e-05 under replace_one; allowed: 4 at 1e-05, over all runs" in line
    assert refusals(trusting, replace(asked, planned={next(iter(kinds)): 2})) == []


SHARING = replace(
    CLIENT,
    shown_to=(),
    counted_on=((Member("b", "client", B, examples=9), Member("c", "client", C, examples=9)),),
    dishonest=0,
)


@pytest.mark.parametrize(
    ("listed", "dishonest", "allowed", "found"),
    [
        ([], 0, 0, 2),
        ([B], 0, 0, 1),
        ([B], 0, 1, 1),
        ([B, C], 0, 0, 0),
        ([B, C, OTHER], 0, 0, 0),
        ([OTHER], 0, 1, 2),
        ([B, C], 1, 0, 1),
        ([B, C], 1, 1, 1),
        ([B], 1, 1, 2),
        ([B, C], 7, 1, 2),
        ([], 7, 2, 2),
    ],
)
def test_others_noise_counts_as_far_as_the_owner_knows_them(
    policy: Any, listed: list[PublicKey], dishonest: int, allowed: int, found: int
) -> None:
    """Those who are not listed may all be dishonest, and of those who are so many as the policy says."""
    rules = policy(
        f"{SMALL}trusted_clients: [{', '.join(key.fingerprint for key in listed)}]\ndishonest_clients: {dishonest}"
    )
    asked = replace(SHARING, dishonest=allowed)
    broken = refusals(rules, asked)
    assert relies(rules, asked) == (not broken) == (found <= allowed)
    if broken:
        (line,) = broken
        assert "line 6, trusted_clients: the run asks for noise of others to be counted on in sums with 2 other" in line
        assert f"clients, of whom at most {allowed} may be dishonest; allowed: that where it is true" in line
        assert f"here {found} may be" in line
        assert ("b (" in line, "c (" in line) == (B not in listed, C not in listed)
        assert "\n" not in line


def test_others_noise_is_judged_in_every_sum(policy: Any) -> None:
    """One with strangers alone is enough: public coins can be known beforehand."""
    sums = (SHARING.counted_on[0], (Member("d", "client", OTHER, examples=9), SHARING.counted_on[0][0]))
    rules = policy(f"{SMALL}trusted_clients: [{B.fingerprint}, {C.fingerprint}]")
    assert refusals(rules, SHARING) == []
    (line,) = refusals(rules, replace(SHARING, counted_on=sums))
    assert f"here 1 may be, d ({OTHER.fingerprint}) among them" in line


def test_who_counts_on_nobody_needs_no_trust(policy: Any) -> None:
    assert refusals(policy(SMALL), replace(SHARING, counted_on=())) == []
    trusting = policy(f"{SMALL}trust_own_server: yes\ntrusted_servers: [{B.fingerprint}, {C.fingerprint}]")
    assert len(refusals(trusting, SHARING)) == 1  # which is another trust


def test_what_protects_all_that_an_agent_has_protects_each_example(policy: Any) -> None:
    noisy = replace(AGENT, smallest_sum=3, agent_noise=0.5)
    assert noisy.relation is REPLACE
    for relation in ("add_or_remove_one", "replace_one"):
        assert refusals(policy(SMALL.replace("    delta", f"    relation: {relation}\n    delta")), noisy) == []


def test_rules_are_those_of_the_data_set_that_is_asked_for(policy: Any) -> None:
    found = policy(f"{DATA}  beds: {{epsilon: 1, delta: 1e-5}}\norganisers: [{ORGANISER.fingerprint}]\n")
    assert refusals(found, replace(ASKED, data="wards")) == []
    (line,) = refusals(found, replace(ASKED, data="beds"))
    assert "line 5, data.beds.epsilon: the run asks for epsilon 3" in line


# A guarantee under the other relation

POISSON = {ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.05), 3): 200}
FIXED = {ReleaseKind(Gaussian(1.0, 2.0), FixedSize(1000, 50), 3): 200}
UNDER = {"add_or_remove_one": ADD, "replace_one": REPLACE}


@pytest.mark.parametrize("mine", UNDER)
def test_a_run_under_the_other_relation_is_accounted_under_mine(policy: Any, mine: str) -> None:
    """Neither is the epsilon of the other, nor twice it: the plan's own under the policy's relation counts."""
    (other,) = set(UNDER.values()) - {UNDER[mine]}
    found = {relation: epsilon(POISSON, 1e-5, relation).epsilon for relation in UNDER.values()}
    assert 1.5 < found[REPLACE] / found[ADD] < 2.5
    asked = replace(ASKED, relation=other, epsilon=found[other], planned=POISSON)
    for factor, lines in ((1.01, 0), (0.99, 1)):
        text = SMALL.replace("epsilon: 4", f"epsilon: {factor * found[UNDER[mine]]}\n    relation: {mine}")
        broken = refusals(policy(text), asked)
        assert len(broken) == lines
        assert all(f"asks for epsilon {found[UNDER[mine]]:.4g} at delta 1e-05 under {mine}" in line for line in broken)


def test_samples_that_nobody_accounts_for_under_mine_are_refused_with_the_reason(policy: Any) -> None:
    (line,) = refusals(policy(SMALL), replace(ASKED, relation=REPLACE, planned=FIXED))
    assert "the run asks for a guarantee under replace_one; allowed: add_or_remove_one, under which this data" in line
    assert "no accountant here is proved for Gaussian on FixedSize batches under add_or_remove_one" in line
    laplace = {ReleaseKind(L2Laplace(1.0, 0.1, REPLACE), Poisson(0.05), 30): 5}
    assert refusals(policy(SMALL), replace(ASKED, relation=REPLACE, epsilon=0.1, planned=laplace)) == []


# Series

SERIES = (
    f"{DATA}    series:\n      monthly:\n        epsilon: 2\n        delta: 5e-6\n        plans:\n"
    "        - {runs: 12, releases: 3000, sampling_rate: 0.01, noise_multiplier: 4}\n"
)


def test_a_series_is_read(policy: Any) -> None:
    (series,) = policy(SERIES).data["wards"].set_aside
    assert (series.name, series.epsilon, series.delta, series.runs) == ("monthly", 2.0, 5e-6, 12)
    assert series.plans[0].kind == ReleaseKind(Gaussian(1.0, 4.0), Poisson(0.01), 1)
    budget = budget_of(policy(SERIES).data["wards"], None, "wards")
    assert isinstance(budget, EitherFilter)
    assert budget.series == (series,)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "runs: 12",
            "runs: 13",
            r"data.wards: series 'monthly': its 13 runs come to epsilon 2\.0",
        ),
        ("runs: 12", "runs: 0", "runs: input should be greater than or equal to 1, found 0"),
        ("runs: 12", "runs: 1.5", "runs: input should be a valid integer, found 1.5"),
        ("runs: 12", "runs: yes", "runs: input should be a number, found true"),
        ("runs: 12", "run: 12", "unknown key data.wards.series.monthly.plans.0.run; did you mean runs"),
        ("plans:", "plan:", "unknown key data.wards.series.monthly.plan; did you mean plans"),
        ("sampling_rate: 0.01", "sampling_rate: 0", "sampling_rate: input should be greater than 0"),
        ("sampling_rate: 0.01", "sampling_rate: .nan", "sampling_rate: input should be a finite number"),
        (
            "noise_multiplier: 4",
            "noise_multiplier: -4",
            "noise_multiplier: input should be greater than or equal to 0.01, found -4",
        ),
        (
            "noise_multiplier: 4",
            "noise_multiplier: 4, sampling: fixed_size",
            "no accountant here is proved for Gaussian",
        ),
        ("epsilon: 2", "epsilon: 5", "series have epsilon 5 and delta 5e-06 set aside, of 4 and 1e-05"),
        ("delta: 5e-6", "delta: 1e-5", "some delta has to be left"),
        (
            "delta: 5e-6",
            "delta: 9.9999995e-6",
            r"data.wards: series leave no delta but the 9.1e-13 that late answers may take; set less aside",
        ),
        ("epsilon: 2", "epsilon: .inf", "epsilon: input should be a finite number"),
    ],
)
def test_a_series_that_is_none_is_refused_with_its_line(policy: Any, old: str, new: str, expected: str) -> None:
    assert old in SERIES
    with pytest.raises(SpecError, match=expected) as caught:
        policy(SERIES.replace(old, new))
    assert re.search(r"policy\.yaml: line \d+: ", str(caught.value))


# The page


def the_page() -> str:
    return (Path(__file__).resolve().parents[4] / "docs" / "how-to" / "policy.md").read_text(encoding="utf-8")


def test_the_pages_example_is_a_policy_with_every_key(policy: Any) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", the_page(), re.DOTALL | re.MULTILINE)
    found = policy(block)
    assert set(OwnerPolicy.model_fields) == set(found.model_fields_set)
    # Two keys are shown as comments, since they are best left out.
    assert {"order", "accept_weak"} == set(type(found.data["wards"]).model_fields) - found.data[
        "wards"
    ].model_fields_set
    assert policy(block.replace("# order: 6", "order: 6")).data["wards"].order == 6
    assert policy(block.replace("# accept_weak: yes", "accept_weak: yes")).data["wards"].accept_weak
    assert found.peers == ("91c3-02aa-5be7-64d8-1f09-ee32-b7a6-4c15", "hospital-c")


def test_the_pages_defaults_are_those_of_a_small_policy(policy: Any) -> None:
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", the_page(), re.MULTILINE)
    described = {key: default for keys, default in rows for key in re.findall(r"`(\w+)`", keys)}
    fields = {"data", "epsilon", "delta"}  # which have none
    assert set(described) == {*OwnerPolicy.model_fields, "relation", "order", "path", "series", "accept_weak"} - fields
    found = policy(DATA)
    values = {
        "relation": found.data["wards"].relation.value,
        "smallest_noise_multiplier": f"{found.smallest_noise_multiplier:g}",
        "smallest_sum": str(found.smallest_sum),
        "dishonest_clients": str(found.dishonest_clients),
        "trust_own_server": {False: "no"}[found.trust_own_server],
        "without_privacy": {False: "no"}[found.without_privacy],
        "accept_weak": {False: "no"}[found.data["wards"].accept_weak],
    }
    for key, value in values.items():
        assert described[key].replace("`", "").partition(":")[0] == value


def one_run_fits(plan: Counts, epsilon: float, relation: NeighboringRelation) -> bool:
    """Whether a policy at delta 1e-5 admits one run."""
    found = EitherFilter(epsilon, 1e-5, relation, widest_order_of(epsilon, 1e-5))
    return found.covers(found.renyi.spent(plan), FilterTotal().plus(found.gaussian.entry(plan, FilterTotal())))


ROOM = re.findall(r"^\| (\d+) releases, sampling rate (\S+) \| (.*) \|$", the_page(), re.MULTILINE)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("steps", "rate", "room"), [pytest.param(*row, marks=[pytest.mark.slow] * (int(row[0]) >= 1000)) for row in ROOM]
)
def test_so_much_room_as_the_page_says_is_enough(steps: str, rate: str, room: str) -> None:
    """By the order that is taken for a policy; and 0.97 of it is not enough."""
    allowed = [float(cell) for cell in room.split(" | ")]
    for target, enough in zip((1, 2, 4, 8), allowed, strict=True):
        mechanism = calibrate(target, 1e-5, ADD, [{Poisson(float(rate)): int(steps)}], gaussian_family()).mechanism
        kind = ReleaseKind(mechanism.unit(), Poisson(float(rate)), 1)

        def admits(epsilon: float, kind: ReleaseKind = kind) -> bool:
            return one_run_fits({kind: int(steps)}, epsilon, ADD)

        assert admits(enough), target
        assert not admits(0.97 * enough), target


def test_the_tables_are_read() -> None:
    assert len(ROOM) == 5
    assert len(FIT) == 4


FIT = re.findall(r"^\| (\d+) releases, rate (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", the_page(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("row", FIT)
def test_so_many_runs_fit_as_the_page_says(row: tuple[str, ...]) -> None:
    """By opening them, one after the other, in a ledger; and all at once by the accountant."""
    steps, rate, *numbers = row
    sampling = Poisson(float(rate))
    mechanism = calibrate(1.0, 1e-5, ADD, [{sampling: int(steps)}], gaussian_family()).mechanism
    plan = {ReleaseKind(mechanism.unit(), sampling, 1): int(steps)}
    budget = EitherFilter(4.0, 1e-5, ADD, widest_order_of(4.0, 1e-5))
    (kind,) = plan
    by_renyi = int(budget.renyi.level / budget.renyi.spent(plan))
    total, by_gaussian = FilterTotal(), 0
    while budget.gaussian.covers(total := total.plus(budget.gaussian.entry(plan, total))):
        by_gaussian += 1
    file, opened = LedgerFile(":memory:"), 0
    while True:
        try:
            file.open("a", "wards", f"run {opened}", budget, plan)
        except BudgetSpent:
            break
        opened += 1
    file.close()
    at_once = next(n for n in itertools.count(1) if epsilon({kind: (n + 1) * int(steps)}, 1e-5, ADD).epsilon > 4)
    assert [by_renyi, by_gaussian, opened, at_once] == list(map(int, numbers))


GENERATOR = np.random.default_rng(7)
GENERATED = [
    (round(10 ** GENERATOR.uniform(1, 4)), 10 ** GENERATOR.uniform(-3, 0), target)
    for target in (1.0, 4.0)
    for _ in range(10)
]
SAMPLES: list[tuple[Callable[[float], BatchSampling], NeighboringRelation]] = [
    (Poisson, ADD),
    (Poisson, REPLACE),
    (lambda rate: FixedSize(10_000, math.ceil(10_000 * rate)), REPLACE),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "relation"), SAMPLES)
@pytest.mark.parametrize(
    ("steps", "rate", "target"),
    [(n, q, e) for n, q in ((20, 1.0), (3000, 0.01), (100, 0.01), (3000, 0.001)) for e in (1.0, 4.0)] + GENERATED,
)
def test_one_run_needs_hardly_more_than_it_states(
    sample: Callable[[float], BatchSampling], relation: NeighboringRelation, steps: int, rate: float, target: float
) -> None:
    sampling = sample(rate)
    mechanism = calibrate(target, 1e-5, relation, [{sampling: steps}], gaussian_family()).mechanism
    assert one_run_fits({ReleaseKind(mechanism.unit(), sampling, 1): steps}, 1.35 * target, relation)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "rate", "target"), GENERATED)
def test_a_series_needs_hardly_more_than_its_runs(policy: Any, steps: int, rate: float, target: float) -> None:
    """Three runs, with 1.01 of what the accountant says of all of them, and nothing for others."""
    mechanism = calibrate(target, 1e-5, ADD, [{Poisson(rate): steps}], gaussian_family()).mechanism
    assert isinstance(mechanism, Gaussian)
    plan = {ReleaseKind(mechanism.unit(), Poisson(rate), 1): steps}
    tight = epsilon({kind: 3 * n for kind, n in plan.items()}, 0.9e-5, ADD).epsilon
    found = policy(
        f"data:\n  wards:\n    epsilon: {1.01 * tight!r}\n    delta: 1e-5\n    series:\n      three:\n"
        f"        epsilon: {1.01 * tight!r}\n        delta: 0.9e-5\n        plans:\n        - {{runs: 3, "
        f"releases: {steps}, sampling_rate: {rate!r}, noise_multiplier: {mechanism.noise_multiplier!r}}}\n"
    )
    file, budget = LedgerFile(":memory:"), budget_of(found.data["wards"], None, "wards")
    for number in range(3):
        file.open("a", "wards", f"run {number}", budget, plan)
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "run 3", budget, plan)
    file.close()
