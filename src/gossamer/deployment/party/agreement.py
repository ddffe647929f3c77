"""Terms that an invitation settles: public facts that every party derives alike, before it opens its own data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.interface import SYNTHETIC
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import allowing
from gossamer.data.datasets import blank_dataset
from gossamer.data.examples import Split
from gossamer.deployment.founding.federation_spec import check_deployed, check_no_files, with_start
from gossamer.deployment.founding.roster import roster
from gossamer.errors import SpecError
from gossamer.experiment.preparation.objective import estimates_on, needs_estimates
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, assemble, nodes_of, servers
from gossamer.experiment.specs.reading import read_text
from gossamer.experiment.specs.spec import Experiment
from gossamer.keys.errors import InvitationError
from gossamer.keys.membership import Invitation, Member
from gossamer.protocol.messages import may_hear
from gossamer.protocol.node import Node
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import Step
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.store import SqliteStore

LARGEST_FRAME = 512 << 10
"""Most bytes of a frame; longer messages travel in chunks."""
_ROOM = 1 << 20  # of a message, for all that is no vector
_ROOM_A_MEMBER = 1 << 12  # keys and shares of secret sums


@dataclass(frozen=True)
class RunTerms:
    """The public facts of a run.

    Attributes
    ----------
    invitation : Invitation
        Verified.
    experiment : Experiment
        The spec.
    sizes : mapping of str to int
        Declared training examples of each party with data, in the order of the invitation.
    servers : tuple of str
        The parties without data.
    """

    invitation: Invitation
    experiment: Experiment
    sizes: Mapping[str, int]
    servers: tuple[str, ...]

    @classmethod
    def of(cls, invitation: Invitation, modules: Collection[str] = (), start: Path | None = None) -> RunTerms:
        """The terms of a verified invitation.

        Parameters
        ----------
        invitation : Invitation
            Verified.
        modules : collection of str
            Models that the spec may name by ``objective.module``, and distributions whose algorithms it may name: to
            build one is to run whatever code is called so on this machine, and who signed the invitation is not who
            decides on that.
        start : Path, optional
            This party's copy of the model that all start from, where the spec has its hash (``objective.pretrained``).

        Raises
        ------
        CallerError
            If its spec is not sound, or its members are not those that the spec's algorithm has.
        """
        try:
            experiment = read_text(invitation.spec, modules=modules)
        except SpecError as error:
            raise InvitationError(f"the spec of the invitation: {error}") from None
        if (module := experiment.objective.module) is not None and module not in modules:
            raise InvitationError(
                f"its spec would have code of its own run on this machine, objective.module: {module}; "
                f"{allowing(module, 'model')}"
            )
        check_no_files(experiment)
        check_deployed(experiment)
        experiment = with_start(experiment, path=start)
        sizes = {m.name: m.examples for m in invitation.members if m.examples is not None}
        named = servers(experiment)
        _check_members(invitation, experiment, sizes, named)
        if needs_estimates(experiment) and estimates_on(experiment) != SYNTHETIC:
            raise InvitationError(
                "the spec of the invitation has constants to be estimated on public examples, which parties may not "
                "have; the organiser writes them out (`gossamer plan`)"
            )
        return cls(invitation, experiment, sizes, named)

    @property
    def me(self) -> Member:
        """The party itself."""
        return self.invitation.me

    @property
    def start(self) -> Path | None:
        """This party's copy of the model that all start from, if there is one."""
        start = self.experiment.objective.pretrained
        return None if start is None else start.path

    @property
    def names(self) -> tuple[str, ...]:
        """The parties with data, in the order of their numbers."""
        return tuple(self.sizes)

    @property
    def holds_data(self) -> bool:
        """Whether this party has examples."""
        return self.me.name in self.sizes

    def prepared(self) -> Prepared:
        """Prepare the run but for all examples: of each shard there is the length alone."""
        blank = blank_dataset(self.experiment.dataset)
        prepared = assemble(self.experiment, self.names, blank, tuple(map(_placeholder, self.sizes.values())))
        return replace(prepared, run=self.invitation.run)


@dataclass(frozen=True)
class Agreed:
    """Plan and nodes that follow from the terms.

    Attributes
    ----------
    terms : RunTerms
        Terms of the run.
    prepared : Prepared
        Run with this party's own examples, if it has any and they were given.
    plan : Plan
        Plan of the whole run: fixed before the first release, and the same at every party.
    """

    terms: RunTerms
    prepared: Prepared
    plan: Plan

    @classmethod
    def on(cls, terms: RunTerms) -> Agreed:
        """Work out what the terms come to.

        Raises
        ------
        CallerError
            If the spec does not fit together, or no noise meets the budget.
        """
        prepared = terms.prepared()
        return cls(terms, prepared, plan_run(prepared))

    def of(self, name: str) -> Agreed:
        """The same for another party."""
        invitation = replace(self.terms.invitation, invited=name)
        return replace(self, terms=replace(self.terms, invitation=invitation))

    def with_data(self, train: Split, test: Split | None = None) -> Agreed:
        """The same with this party's own examples, all of them its shard."""
        prepared, me = self.prepared, self.terms.me.name
        dataset = replace(prepared.dataset, train=train, test=test or prepared.dataset.test, source="a party's own")
        own = np.arange(len(train.targets))
        shards = tuple(own if name == me else shard for name, shard in zip(prepared.names, prepared.shards))
        return replace(self, prepared=replace(prepared, dataset=dataset, shards=shards))

    def nodes(self) -> dict[str, Node]:
        """Fresh nodes of the run, by name."""
        return nodes_of(self.prepared, self.plan)

    def host(self, store: SqliteStore, watch: Callable[[Step], None] | None = None) -> Host:
        """This party's node as its store has it."""
        node = self.nodes()[self.terms.me.name]
        return Host(node, self.session, store, watch=watch, may_hear=self.may_hear)

    @cached_property
    def session(self) -> SessionSettings:
        """Settings by which messages are retried; the same at every party."""
        links, size = self.prepared.experiment.links, self.prepared.objective.size
        members = len(self.terms.invitation.members)
        return SessionSettings(
            retry_after=links.retry_after,
            longest_retry=8 * links.retry_after,
            silence=links.silence,
            largest_frame=LARGEST_FRAME,
            # A few vectors of eight bytes a number.
            largest_message=4 * 8 * size + _ROOM + _ROOM_A_MEMBER * members,
            learns=True,
        )

    def may_hear(self, to: str) -> bool:
        """Whether the party ``to`` may be sent what is raw of this one."""
        return may_hear(self.prepared.units, self.terms.me.name, to)


def _placeholder(size: int) -> npt.NDArray[np.int64]:
    """Rows as many as those of another party's shard, with nothing in them."""
    return np.broadcast_to(np.int64(0), size)


def _check_members(
    invitation: Invitation, experiment: Experiment, sizes: Mapping[str, int], named: tuple[str, ...]
) -> None:
    """The members with examples are as many as the spec wants, and the others are the algorithm's servers."""
    wanted, others = experiment.algorithm.nodes, {m.name for m in invitation.members} - set(sizes)
    if len(sizes) != wanted:
        raise InvitationError(
            f"the spec of the invitation wants algorithm.nodes = {wanted} parties with data, and {len(sizes)} members "
            "have a number of examples; ask the organiser for a new one"
        )
    if others != set(named):
        raise InvitationError(
            f"the spec of the invitation wants {', '.join(named) or 'no members'} without data, and the members "
            f"without examples are {', '.join(sorted(others)) or 'none'}; ask the organiser for a new one"
        )
    # A policy goes by roles and units, so they are not the organiser's to choose.
    keys = {member.name: member.key for member in invitation.members}
    for expected in roster(experiment, sizes, keys):
        found = next(member for member in invitation.members if member.name == expected.name)
        if found != expected:
            raise InvitationError(
                f"by its spec {expected.name} is {_part(expected)}, and the invitation says {_part(found)}; ask the "
                "organiser for a new one"
            )


def _part(member: Member) -> str:
    return member.role if member.unit is None else f"{member.role} of {member.unit}"
