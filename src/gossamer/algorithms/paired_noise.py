"""Noise that cancels between neighbours: how it is split, and what is proved of it.

For each of its releases a node i draws z_i alone, and with each neighbour j a z_ij = -z_ji that both make of a secret
of theirs: one adds it and the other takes it off, in its own release of the same number. So the noise of release k is

    Z_i = s (z_i + sqrt(r) sum_j z_ij),    of all nodes together N(0, s^2 (I + r L)),    L the graph's Laplacian,

and independent of that of other releases. In the mean of all models the z_ij cancel, and averaging dampens them in
single models.

**What is proved.** Tell an observer the noise Z_j of all other nodes' releases, past and future. What it does not know
of Z_i is then normal, independent from release to release, and of variance

    v_i = s^2 / ((I + r L)^-1)_ii,

the conditional variance of a normal number. So i's releases are those of the ordinary mechanism with noise of variance
v_i, plus known vectors, and all that others send follows from these, from other data, and from what the observer was
told. Nothing is assumed of gradients, of schedules or of who is honest about models, and samples amplify as they do for
that mechanism. `PairedGaussian.noise_multiplier` is that of the least v_i, and s follows from it.

**Whoever knows secrets** of some nodes, all others' noise included, has less left to guess. Its z_ij are known, so what
is left is the same with the other nodes alone, and with the edges between them: the graph without those nodes. Of one
node that is the worst of all such graphs; of all others together it is z_i alone, s^2.

**Whoever vanishes** and sends nothing tells nothing, so whatever half of a draw its neighbours add, all of the above
holds. What it costs is noise: with d nodes gone, of degree at most D, the sum of all noise of a round has at most d D
draws that do not cancel, of variance s^2 r each.

**Whoever the plan says is gone**, since it makes fewer releases, costs next to nothing. Of a number that nodes A do not
make, the others P have the noise that all have, given that of A: with M = I + r L it has the covariance, over s^2,

    M_PP - M_PA (M_AA)^-1 M_AP    and its inverse is ((M)^-1)_PP,

a Schur complement, so v_i is for each of them what it is with A there. It is made of draws again. With N the graph's
adjacency and H = (M_AA)^-1, two nodes share r N_ij + r^2 (N_PA H N_AP)_ij, so neighbours of who is gone share draws in
its place, and of that with a node j of A there is left r (H 1)_j. All that is left is at most s^2 for each node of A,
and the sum of all noise has s^2 (n - 1' H 1) of n nodes, no more than with nobody gone. The numbers are those of the
plan, which ledgers enforce, and public. One other node knows more draws then, so that guarantee is by the worst number.

**The split.** A larger r lets s fall, to 1/n of v_i in the limit, and makes single models noisier. The default is the
r that leaves the least noise in the models that gradients are taken at, by the end of the run, if gradients do not
depend on models: with P the mean squares by which a round of averaging shrinks, in an eigenbasis, T rounds leave

    s^2 sum over modes of (I + r L)_mm (P_m + P_m^2 + ... + P_m^T) / n,

and where gradients are taken before the newest noise is averaged, 1 + P_m + ... of as many summands.

Where all models are their mean, as in all-reduce, every node shares draws with every other, and r is 1 by default: then
the mean has at most twice the least noise, and a node that is missing from a round unplanned doubles it.

References
----------
Allouah, Koloskova, El Firdoussi, Jaggi and Guerraoui, "The privacy power of correlated noise in decentralized
learning", ICML 2024, arXiv 2405.01031 (DECOR), for the noise; it accounts for (I + r L)^-1 by Renyi divergences,
without samples. Rodio, Chen and Larsson, arXiv 2501.14644, for other covariances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array

from gossamer.algorithms import persons
from gossamer.algorithms.nodes import LearnerSettings
from gossamer.algorithms.plan import EVERYBODY, EXAMPLE, Plan, Problem, Spec, in_common
from gossamer.algorithms.sample_planning import check_samples, guarantee_of, plan_samples
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.files import refusals, words_beside
from gossamer.privacy.clipping import FixedClip
from gossamer.privacy.guarantees import assuming
from gossamer.privacy.mechanisms import Gaussian, PairedGaussian
from gossamer.sides.plan import Partner
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import Matrix

MOST, MOST_NODES = 1e4, 1_000
"""Largest r, and number of nodes, for each of which a matrix of all others is inverted: a minute or two for as many."""
MOST_LEVELS = 16
"""Most numbers after which nodes count as gone; those who make more releases have halves of draws all the same."""
_ROUNDING = 1e-7
"""Share that is added to what is inverted: of 1,000 members of all-reduce with the largest r it is off by 6e-9."""
_WORDS = words_beside(__file__)
ONE_NODE, ALL_OTHERS = "one other node", "all other nodes"
"""Keys of guarantees against those who know secrets."""


class PairedSettings(LearnerSettings):
    """Base of settings of nodes that may share draws of noise with neighbours.

    Attributes
    ----------
    noise : {"independent", "pairwise"}, optional
        Noise of gradients. ``pairwise``: with each neighbour a node shares a draw for each update, which one of them
        adds and the other takes off, beside a draw of its own. By default independent.
    pair_noise : float, optional
        Standard deviation of each draw of ``pairwise`` noise that two nodes share, over that of their own. By default,
        what leaves least noise in models, and 1 in all-reduce.
    """

    noise: Literal["independent", "pairwise"] | None = None
    pair_noise: float | None = Field(default=None, gt=0, le=math.sqrt(MOST))


def check(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from check_samples(settings, spec)
    privacy, paired = spec.privacy, settings.noise == "pairwise"
    several = isinstance(privacy.level, tuple) or (spec.budget is not None and isinstance(spec.budget.epsilon, tuple))
    rules = {
        "not paired": settings.pair_noise is not None and not paired,
        "alone": paired and settings.nodes < 2,
        "many": paired and settings.nodes > MOST_NODES,
        "no law": paired and privacy.mechanism != "gaussian",
        "no fixed clip": paired and privacy.clip is not None and not isinstance(privacy.clip, FixedClip),
        "several": paired and several,
        "whole": paired and spec.terms.unit != EXAMPLE,
    }
    yield from refusals(__file__, rules, s=settings, privacy=privacy, most=MOST_NODES)


@dataclass(frozen=True, eq=False)
class Split:
    """Noise of all nodes that are there, in units of s: I + r L, or what is left of it when others are gone.

    Attributes
    ----------
    graph : Graph
        Graph of those who share draws.
    ratio : float
        r.
    gone : frozenset of int
        Nodes without a release of the number.
    """

    graph: Graph
    ratio: float
    gone: frozenset[int] = frozenset()

    @cached_property
    def pairs(self) -> FloatArray:
        """Variances of the draws that a node has [nodes, nodes] with each other; 0 for those who are gone."""
        found: FloatArray = self.ratio * self.graph.adjacency.toarray().astype(np.float64)
        if gone := sorted(self.gone):
            to = found[:, gone]
            hidden = np.linalg.inv(np.diag(1 + found[gone].sum(axis=1)) - found[np.ix_(gone, gone)])
            found += to @ hidden @ to.T
            found[:, gone] = to * hidden.sum(axis=1)
            found[gone] = 0.0
            np.fill_diagonal(found, 0.0)
        return found

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance of the noise of those who are there."""
        return self._unknown(sorted({*range(self.graph.nodes)} - self.gone))

    def _unknown(self, nodes: list[int], known: int | None = None) -> FloatArray:
        """Covariance of the noise of ``nodes`` for who knows the draws of ``known``."""
        draws = self.pairs[nodes].sum(axis=1) - (0.0 if known is None else self.pairs[nodes, known])
        found: FloatArray = np.diag(1 + draws) - self.pairs[np.ix_(nodes, nodes)]
        return found

    @cached_property
    def own(self) -> float:
        """Standard deviation s of a node's own draw, for a v_i of 1 or more of all nodes."""
        whole = replace(self, gone=frozenset())
        return math.sqrt(float(np.linalg.inv(whole.covariance).diagonal().max()) * (1 + _ROUNDING))

    def left(self, known: int) -> float:
        """Root of the least v_i for one who knows the secrets of node ``known``, where it is 1 or more for others."""
        others = sorted({*range(self.graph.nodes)} - self.gone - {known})
        least = np.linalg.inv(self._unknown(others, known)).diagonal().max(initial=0.0) * (1 + _ROUNDING)
        return self.own / math.sqrt(least) if others else math.inf


def least_disturbing(graph: Graph, mixing: Matrix, averages: int, rounds: int, fresh: bool = False) -> float:
    """The r that leaves the least noise in models after so many rounds; for arguments see `paired_plan`."""
    shares, modes = np.linalg.eigh(csr_array(mixing).toarray())
    shares = np.clip(shares, 0.0, 1 - _ROUNDING) ** averages
    sums = (1.0 if fresh else shares) * (1 - shares**rounds) / (1 - shares)

    def left(log: float) -> float:
        split = Split(graph, math.exp(log))
        return split.own**2 * float(sums @ np.einsum("im,ij,jm->m", modes, split.covariance, modes, optimize=True))

    return math.exp(minimize_scalar(left, bounds=(-math.log(MOST), math.log(MOST)), method="bounded").x)


def paired_plan(
    problem: Problem[Any], mixing: Callable[[], Matrix] | None = None, averages: int = 1, fresh: bool = False
) -> Plan:
    """The plan of nodes that release noisy sums, which may have draws in common.

    Parameters
    ----------
    problem : Problem
        Problem that is planned for.
    mixing : callable, optional
        Function that returns E[A'A] of an average A, [nodes, nodes]. By default all models are their mean: each node
        shares draws with every other, as long as its own.
    averages : int
        Averages from one gradient of a node to its next.
    fresh : bool
        Whether the newest noise is not averaged when the next gradient is taken.
    """
    if problem.settings.noise != "pairwise":
        return plan_samples(problem)
    if persons.spread(problem.spec, problem.holdings):
        raise SpecError(_WORDS["spread"])
    found = plan_samples(problem, _WORDS["observers"]["nobody's"])
    law, names = in_common(found.mechanisms), problem.names
    graph = problem.graph if mixing else Graph(len(names), np.stack(np.triu_indices(len(names), 1), axis=1))
    assert isinstance(law, Gaussian)  # the settings are checked, and one amount is for all
    given, rounds = problem.settings.pair_noise, max(found.releases.values())
    best = 1.0 if mixing is None else least_disturbing(graph, mixing(), averages, rounds, fresh)
    ratio = given**2 if given else best
    split = Split(graph, ratio)
    paired = PairedGaussian(law.clip, law.noise_multiplier, split.own, split.own * math.sqrt(ratio))
    proved = {EVERYBODY: found.guarantee}
    counts, splits = [found.releases[name] for name in names], {0: split}
    for count in sorted({*counts})[:-1][:MOST_LEVELS] if problem.spec.away else ():
        splits[count] = replace(split, gone=frozenset(i for i, of in enumerate(counts) if of <= count))
    least = min(one.left(known) for one in splits.values() for known in range(graph.nodes))
    for observer, part in {ONE_NODE: least, ALL_OTHERS: split.own}.items():
        less = Gaussian(law.clip, law.noise_multiplier * part)
        proved[observer] = guarantee_of(problem, found, less, _WORDS["observers"][observer])
    for observer, one in proved.items():
        said = replace(one, proof=f"{one.proof}; {_WORDS['counted'][observer]}")
        proved[observer] = said if observer == ALL_OTHERS else assuming(said, _WORDS["secrets"])
    sides: dict[str, Any] = dict(found.sides)
    lengths = {count: np.sqrt(one.pairs / ratio) for count, one in splits.items()}
    for i, name in enumerate(names):
        shares = [tuple((count, float(length[i, j])) for count, length in lengths.items()) for j in range(graph.nodes)]
        partners = tuple(Partner(names[j], of) for j, of in enumerate(shares) if any(share for _, share in of))
        sides[name] = replace(sides[name], partners=partners)
    return replace(
        found,
        mechanisms=dict.fromkeys(names, paired),
        guarantees=proved,
        sides=sides,
        noise=[paired.describe()],
        figures={**found.figures, "mechanism": paired.describe()},
    )
