"""The data owner's policy: a file on the owner's own machine that says what its data may be used for.

    data:
      wards:
        path: /srv/wards.csv
        epsilon: 4
        delta: 1.0e-5
    organisers: [8d0c-...]

Nothing in an invitation can change it, and a run that breaks one of its rules is not joined. What the file does not
speak of follows the defaults of `OwnerPolicy`, which are on the safe side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr, StrictBool, StrictInt, ValidationError, model_validator

from gossamer.algorithms.plan import EXAMPLE as EXAMPLE
from gossamer.algorithms.table import ALGORITHMS, KIND
from gossamer.deployment.founding.federation_spec import ROLES, roles_of
from gossamer.errors import AccountingError, CallerError, SpecError, counted, did_you_mean
from gossamer.files import real_path
from gossamer.mistakes import line_of, place, problems_of
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import row_of
from gossamer.privacy.accounting.filters import RunSeries, SeriesRule, check_parts
from gossamer.privacy.accounting.renyi import renyi_level
from gossamer.privacy.guarantees import refused_delta
from gossamer.privacy.mechanisms import LEAST, Counts, NeighboringRelation, without_late
from gossamer.section import Section
from gossamer.strict_yaml import Key, Lines, read_located

if TYPE_CHECKING:
    from gossamer.keys.identity import PublicKey
    from gossamer.keys.invitations import Member

FINGERPRINT = re.compile(r"([0-9a-f]{4}-){7}[0-9a-f]{4}")
"""As people compare them."""


def _plain(text: Any) -> Any:
    """A fingerprint in the form that keys give it, however it was typed; anything else as it is."""
    if not isinstance(text, str):
        return text
    digits = re.sub(r"[\s:-]", "", text).lower()
    grouped = "-".join(digits[i : i + 4] for i in range(0, len(digits), 4))
    return grouped if FINGERPRINT.fullmatch(grouped) else text


def _fingerprint(text: Any) -> Any:
    found = _plain(text)
    if not (isinstance(found, str) and FINGERPRINT.fullmatch(found)):
        raise ValueError("a fingerprint is eight groups of four hexadecimal digits")
    return found


Fingerprint = Annotated[str, BeforeValidator(_fingerprint)]
NameOrFingerprint = Annotated[str, BeforeValidator(_plain), Field(min_length=1)]


def _check_names(place: str, names: Iterable[str]) -> None:
    """Names of the owner's own are printed."""
    for name in names:
        if not (name.isprintable() and 0 < len(name) <= 100):
            raise ValueError(f"{place}: a name has 1 to 100 printable characters, found {name!r}")


class DataRule(Section):
    """Limits of what one data set may ever spend, over all runs.

    Attributes
    ----------
    path : Path, optional
        The file or folder, from the folder of the policy. It may also be given when a node is started.
    epsilon : float
        The most privacy loss of everything that is ever released from it, whatever is released.
    delta : float
        Probability at which epsilon is proved.
    relation : {"add_or_remove_one", "replace_one"}
        Rule by which data sets count as neighbours. It never changes once something was released.
    order : float, optional
        Order of the Renyi divergences that are added up. By default the whole number that leaves most room within
        epsilon and delta when the data set is first used; it never changes after that.
    accept_weak : bool
        Whether a delta above 0.01 is meant, which says next to nothing.
    series : mapping of str to SeriesRule
        Parts that are set aside for runs which are fixed beforehand, by names of the owner's. They never change once
        the data set was used.
    """

    path: Path | None = None
    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    order: Annotated[float, Field(gt=1.01)] | None = None
    accept_weak: StrictBool = False
    series: dict[str, SeriesRule] = Field(default_factory=dict)

    @property
    def set_aside(self) -> tuple[RunSeries, ...]:
        """The series, by name."""
        return tuple(RunSeries(name=name, **dict(rule)) for name, rule in sorted(self.series.items()))

    @model_validator(mode="after")
    def _proves_something(self) -> DataRule:
        if (problem := refused_delta(self.delta, self.accept_weak, "accept_weak: true")) is not None:
            raise ValueError(problem)
        if self.delta < LEAST:
            raise ValueError(
                f"a delta of {self.delta:g} is less than answers that are late may take; give {LEAST:.2g} or more"
            )
        try:
            check_parts(self.epsilon, self.delta, self.set_aside)
            for one in self.set_aside:
                one.check(self.relation)
        except CallerError as error:
            raise ValueError(str(error)) from None
        if math.fsum(one.delta for one in self.set_aside) >= without_late(self.delta):
            late = self.delta - without_late(self.delta)
            raise ValueError(f"series leave no delta but the {late:.2g} that late answers may take; set less aside")
        if self.order is not None and renyi_level(self.order, self.epsilon, self.delta) == 0:
            raise ValueError(
                f"order {self.order:g} proves no epsilon as small as {self.epsilon:g} at delta {self.delta:g}, "
                "whatever is released; leave order out"
            )
        return self


class OwnerPolicy(Section):
    """Permissions of a data owner; see `read_policy`.

    Attributes
    ----------
    data : mapping of str to DataRule
        Limits by the name that the owner gives a data set. What was spent is kept under this name.
    smallest_noise_multiplier : float
        Smallest standard deviation of Gaussian noise over the clip, of every release. What the budget
        allows is for `data` to say; this refuses single releases that hide nothing.
    largest_clip : float, optional
        Largest clip of each example's gradient, or of an agent's mean gradients; then a clip that changes while the run
        goes on is refused. By default any clip: the noise is in proportion to it.
    algorithms, roles : tuple of str, optional
        Names that are allowed; by default all.
    peers : tuple of str, optional
        Parties who else may be in a run, by name or fingerprint; by default whomever the organiser invites. Names are
        what the organiser calls somebody, so only fingerprints prove who it is.
    organisers : tuple of str
        Fingerprints of those whose invitations are accepted; by default nobody's.
    trust_own_server : bool
        Whether an agent's own server may see its updates, or sums of them, without noise. By
        default not: then the agent's own noise is what counts.
    smallest_sum : int
        Number of agents' updates that a secure sum that its server sees has to be; 1 lets it see
        single updates.
    trusted_servers : tuple of str
        Fingerprints of servers that may see each update of this data without noise, to add the noise to sums of them;
        by default nobody's. A name would not do: it is the organiser who gives it.
    trusted_clients : tuple of str
        Fingerprints of clients that are trusted to add their noise to masked sums, and to tell nobody what it was; by
        default nobody's, and then a client's own noise alone has to be enough.
    dishonest_clients : int
        Number of those who may do otherwise all the same, whichever they are.
    without_privacy : bool
        Whether runs are allowed for which no epsilon is proved. Such a run spends everything that its data has left.
    modules : tuple of str
        Code that a spec may have run on this machine; by default none. A model (``objective.module``) is allowed as the
        spec has it, an algorithm of another distribution as ``NAME``, ``NAME==VERSION`` or
        ``NAME==VERSION@sha256:HASH`` of its source.
    overview : bool
        Whether the node tells those who watch the federation how it is: what its peers could count, and its problems.
    organiser_may_stop : bool
        Whether the node ends its part in the run once the organiser asks for the end of it (``gossamer federation
        stop``), and waits once asked to (``gossamer federation pause``); by default not.
    ledger : Path, optional
        File of what was spent, which outlives runs; by default beside the policy: ``policy.ledger`` for
        ``policy.yaml``. The policy belongs to this file: take good care of both.
    """

    has_own_names: ClassVar[bool] = True
    data: Annotated[dict[str, DataRule], Field(min_length=1)]
    smallest_noise_multiplier: Annotated[float, Field(ge=0)] = 0.3
    largest_clip: Annotated[float, Field(gt=0)] | None = None
    algorithms: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    peers: tuple[NameOrFingerprint, ...] | None = None
    organisers: tuple[Fingerprint, ...] = ()
    trust_own_server: StrictBool = False
    smallest_sum: Annotated[StrictInt, Field(ge=1)] = 3
    trusted_servers: tuple[Fingerprint, ...] = ()
    trusted_clients: tuple[Fingerprint, ...] = ()
    dishonest_clients: Annotated[StrictInt, Field(ge=0)] = 0
    without_privacy: StrictBool = False
    modules: tuple[str, ...] = ()
    overview: StrictBool = True
    organiser_may_stop: StrictBool = False
    ledger: Path | None = None

    _lines: Lines = PrivateAttr(default_factory=lambda: Lines(Path("policy.yaml"), {(): 1}))

    @model_validator(mode="after")
    def _names_are_known(self) -> OwnerPolicy:
        # What is registered is looked at where a name is not Gossamer's own, and roles only of code that may run.
        found = (
            ("algorithms", self.algorithms, ALGORITHMS, KIND.all_names),
            ("roles", self.roles, ROLES, lambda: ROLES | roles_of(self.modules)),
        )
        for key, names, own, everything in found:
            for name in (name for name in names or () if name not in own and name not in everything()):
                raise ValueError(f"{key}: unknown name {name!r}{did_you_mean(name, everything())}")
        _check_names("data", self.data)
        for name, rule in self.data.items():
            _check_names(f"data.{name}.series", rule.series)
        return self

    @property
    def path(self) -> Path:
        """The file that it was read from."""
        return self._lines.path

    @property
    def ledger_path(self) -> Path:
        """The file in which it is kept what was spent."""
        return self.path.with_suffix(".ledger") if self.ledger is None else self.path.parent / self.ledger

    def place(self, key: Key) -> str:
        """Return the place of a rule, for messages."""
        name = ".".join(map(str, key))
        if key in self._lines:
            return f"{self.path}, line {self._lines.of(key)}, {name}"
        return f"{self.path}, {name} (not in the file, so its default counts)"

    def data_set(self, name: str | None, path: Path | None = None) -> str:
        """The name of a data set: the one that is given, the one at ``path``, or the only one there is.

        Raises
        ------
        SpecError
            If there is no such data set, or more than one may be meant.
        """
        if name is not None:
            if name not in self.data:
                raise SpecError(f"{self.place(('data',))}: no data set {name!r}{did_you_mean(name, self.data)}")
            return name
        there = [known for known in self.data if path is not None and self.data_path(known) == real_path(path)]
        found = there or list(self.data)
        if len(found) > 1:
            raise SpecError(f"{self.place(('data',))}: several data sets may be meant; name one of {', '.join(found)}")
        return found[0]

    def data_path(self, name: str) -> Path | None:
        """Return the file or folder of a data set, if the policy says it."""
        path = self.data[name].path
        return None if path is None else real_path(self.path.parent / path.expanduser())


def read_policy(path: str | Path) -> OwnerPolicy:
    """The policy in a YAML file.

    Raises
    ------
    SpecError
        If it cannot be read or is no policy; the message names line and key of each mistake.
    """
    path = Path(path)
    content, lines = read_located(path)
    if not isinstance(content, Mapping):
        raise SpecError(f"{path}: expected rules such as data: and organisers:, found {content!r}")
    try:
        policy = OwnerPolicy.model_validate(content)
    except ValidationError as error:
        problems = [_describe(problem, lines) for problem in problems_of(error)]
        raise SpecError(f"{path}: {'; '.join(problems)}") from None
    policy._lines = lines
    return policy


def _describe(problem: Any, lines: Lines) -> str:
    at = place(problem)
    return f"line {lines.of(at[:-1] if at[-1:] == ('[key]',) else at)}: {line_of(problem, OwnerPolicy)}"


# Rules of a policy that an invitation may break by what it asks for: one line a rule.


@dataclass(frozen=True)
class Asked:
    """Requests of a run to one party's data.

    Attributes
    ----------
    algorithm, role, name : str
        Names of the run's algorithm, and of this party and its role.
    peers : tuple of Member
        The others.
    organiser : PublicKey
        Party who signed the invitation.
    private : bool
        Whether the spec adds noise at all.
    clip : float or None
        C, the largest of the run; None if there is none, or if it changes while the run goes on.
    noise_multiplier : float or None
        The smallest of the plan's Gaussian noise, standard deviation over C; None for other laws.
    epsilon, delta : float
        Guarantee that is proved for this party's whole plan, of one `unit`, by the run's own accountant; an infinite
        epsilon proves nothing.
    relation : NeighboringRelation
        Relation under which that epsilon is proved.
    unit : str
        Unit that it protects: ``example``, or more.
    smallest_sum : int or None
        Number of agents' updates that the sums are that its server sees; None if it sees single
        updates.
    agent_noise : float or None
        Noise that an agent adds itself, against its own server.
    shown_to : tuple of Member
        Members that see its updates, if it is no agent, without noise.
    counted_on : tuple of tuple of Member
        Others in a sum with this party whose noise is counted on to hide its update, of each sum with other members
        once; empty where its own noise alone is counted.
    dishonest : int
        Number of those in a sum who may leave their noise out, or tell it.
    data : str or None
        Name of the data set; None if the policy has one only.
    planned : mapping of ReleaseKind to int, or None
        The releases of this party's whole plan, where the ledger counts them by kind: what they reveal is then known
        under every relation that has a proof.
    """

    algorithm: str
    role: str
    name: str
    peers: tuple[Member, ...]
    organiser: PublicKey
    private: bool
    clip: float | None
    noise_multiplier: float | None
    epsilon: float
    delta: float
    relation: NeighboringRelation
    unit: str = EXAMPLE
    smallest_sum: int | None = None
    agent_noise: float | None = None
    shown_to: tuple[Member, ...] = ()
    counted_on: tuple[tuple[Member, ...], ...] = ()
    dishonest: int = 0
    data: str | None = None
    planned: Counts | None = None

    @property
    def proved(self) -> bool:
        """Whether there is an epsilon."""
        return self.private and math.isfinite(self.epsilon)


class Refusal(NamedTuple):
    """A broken rule: its key, what a run asked for, and what the policy allows."""

    key: str
    asked: str
    allowed: str


def _of_parties(policy: OwnerPolicy, asked: Asked) -> Iterator[Refusal]:
    signer = asked.organiser.fingerprint
    if signer not in policy.organisers:
        yield Refusal(
            "organisers",
            f"an invitation by {signer} to be accepted",
            f"invitations by {_listed(policy.organisers, 'nobody')} (list a fingerprint that the organiser told you by "
            "another way than the file came)",
        )
    named = (("algorithms", asked.algorithm, policy.algorithms), ("roles", asked.role, policy.roles))
    for key, found, allowed in named:
        if allowed is not None and found not in allowed:
            yield Refusal(key, found, _listed(allowed))
    if policy.peers is not None:
        others = [peer for peer in asked.peers if not _is_listed(peer, policy.peers)]
        if others:
            yield Refusal("peers", f"{_with_keys(others)} as peers", _listed(policy.peers))


def _of_noise(policy: OwnerPolicy, asked: Asked) -> Iterator[Refusal]:
    if not (policy.without_privacy or asked.proved):
        what = "noise for which no epsilon is proved" if asked.private else "no noise at all (privacy: none)"
        yield Refusal("without_privacy", what, "runs with a proved epsilon")
    least, noise = policy.smallest_noise_multiplier, asked.noise_multiplier
    if asked.private and not (noise is None or noise >= least):
        yield Refusal("smallest_noise_multiplier", f"a noise multiplier of {noise:g}", f"{least:g} and more")
    most, clip = policy.largest_clip, asked.clip
    if asked.private and most is not None and not (clip is not None and clip <= most):
        found = "no fixed clip" if clip is None else f"a clip of {clip:g}"
        yield Refusal("largest_clip", found, f"up to {most:g}")


def _of_trust(policy: OwnerPolicy, asked: Asked) -> Iterator[Refusal]:
    size = asked.smallest_sum or 1
    if asked.role == "agent" and not (policy.trust_own_server or asked.agent_noise):
        updates = f"{'sums of' if asked.smallest_sum else 'single'} updates"
        yield Refusal(
            "trust_own_server",
            f"{updates} to be shown to the own server without agents' noise",
            "agents' own noise (privacy.agent_noise), or trust_own_server: yes",
        )
    if asked.role == "agent" and size < policy.smallest_sum:
        what = "single updates" if size == 1 else f"sums of {size} agents' updates"
        yield Refusal(
            "smallest_sum", f"{what} to be shown to the own server", f"sums of {policy.smallest_sum} and more"
        )
    others = [peer for peer in asked.shown_to if peer.key.fingerprint not in policy.trusted_servers]
    if others:
        yield Refusal(
            "trusted_servers",
            f"single updates without noise to be shown to {_with_keys(others)}",
            f"them to be shown to {_listed(policy.trusted_servers, 'nobody')} (list a fingerprint that the server's "
            "operator told you, or ask for noise_by: client)",
        )


def _of_clients(policy: OwnerPolicy, asked: Asked) -> Iterator[Refusal]:
    """Clients that the owner does not know may all be the server's; of those that it trusts so many as it says."""
    worst = max(asked.counted_on, key=lambda others: _dishonest(policy, others), default=())
    found = _dishonest(policy, worst)
    if worst and found > asked.dishonest:
        unknown = _unknown(policy, worst)
        rest = f" and {len(unknown) - 3} more" if unknown[3:] else ""
        more = f", {_with_keys(unknown[:3])}{rest} among them" if unknown else ""
        yield Refusal(
            "trusted_clients",
            f"noise of others to be counted on in sums with {counted(len(worst), 'other client')}, of whom at most "
            f"{asked.dishonest} may be dishonest",
            f"that where it is true as far as this policy knows, and here {found} may be{more} (list fingerprints that "
            "clients' operators told you, or ask for masking without honest, where your own noise alone counts)",
        )


def relies(policy: OwnerPolicy, asked: Asked) -> bool:
    """Whether the policy lets others' noise be counted on, wherever it is; if it is not counted on anywhere, it does.

    A sum of which more may be dishonest than the run counts with has less noise for certain than is planned.
    """
    return not any(_of_clients(policy, asked))


def _dishonest(policy: OwnerPolicy, others: Collection[Member]) -> int:
    """The most clients of a sum that may be dishonest, as far as the policy knows."""
    unknown = len(_unknown(policy, others))
    return unknown + min(policy.dishonest_clients, len(others) - unknown)


def _unknown(policy: OwnerPolicy, others: Collection[Member]) -> list[Member]:
    return [other for other in others if other.key.fingerprint not in policy.trusted_clients]


def _of_data(policy: OwnerPolicy, asked: Asked) -> Iterator[Refusal]:
    """Rules of the data set that is asked for."""
    rule = policy.data[policy.data_set(asked.data)]
    if not asked.proved:
        return
    # What protects all that a party has protects one example more or less, and one replaced.
    if asked.unit == EXAMPLE and asked.relation != rule.relation:
        unproved = _unproved(asked.planned, rule.relation)
        if unproved is not None:
            allowed = f"{rule.relation}, under which this data is accounted for{unproved}"
            yield Refusal("relation", f"a guarantee under {asked.relation}", allowed)
            return
    # An epsilon at a smaller delta is larger than the one that counts; then only the ledger can tell.
    if asked.delta < rule.delta:
        return
    # An example that comes or goes moves a whole update as far as one that is replaced.
    relation = rule.relation if asked.unit == EXAMPLE else NeighboringRelation.REPLACE_ONE
    found, under = asked.epsilon, ""
    if asked.relation != relation:
        if asked.planned is None:
            return
        found, under = accountants.epsilon(asked.planned, asked.delta, relation).epsilon, f" under {relation}"
    if not found <= rule.epsilon:
        most = f"{rule.epsilon:g} at {rule.delta:g}, over all runs"
        yield Refusal("epsilon", f"epsilon {found:.4g} at delta {asked.delta:g}{under}", most)


def _unproved(planned: Counts | None, relation: NeighboringRelation) -> str | None:
    """Reason why nothing is proved of a plan under a relation, in brackets if it is known; None if something is."""
    try:
        for kind in planned or ():
            row_of(kind, relation)
    except AccountingError as error:
        return f" ({error})"
    return "" if planned is None else None


def refusals(policy: OwnerPolicy, asked: Asked) -> list[str]:
    """Every rule that a run breaks, one line each; an empty list allows it.

    The budget of the data is the ledger's to keep: a run that breaks no rule is refused still if its plan does not fit
    into what is left.
    """
    name = policy.data_set(asked.data)
    broken: list[tuple[Key, Refusal]] = []
    for rules in (_of_parties, _of_noise, _of_trust, _of_clients):
        broken += [((found.key,), found) for found in rules(policy, asked)]
    broken += [(("data", name, found.key), found) for found in _of_data(policy, asked)]
    return [f"{policy.place(key)}: the run asks for {found.asked}; allowed: {found.allowed}" for key, found in broken]


def _is_listed(peer: Member, allowed: tuple[str, ...]) -> bool:
    """By fingerprint, or by a name; a name that looks like a fingerprint is nobody's."""
    key = peer.key.fingerprint
    return key in allowed or (peer.name in allowed and not FINGERPRINT.fullmatch(peer.name))


def _with_keys(members: Iterable[Member]) -> str:
    return ", ".join(f"{member.name} ({member.key.fingerprint})" for member in members)


def _listed(names: tuple[str, ...], nobody: str = "none") -> str:
    return ", ".join(names) or nobody
