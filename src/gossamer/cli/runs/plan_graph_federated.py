"""``gossamer plan graph_federated``: noise between servers on a graph, by the disagreement that it causes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.algorithms.graph_noise import Measure, NoiseChoice, NoisePlan, NoiseProblem, plan_noise
from gossamer.cli.option_ranges import (
    COUNT,
    POSITIVE,
    Range,
    add_accept_weak,
    check_delta,
    check_needed,
    check_ranges,
)
from gossamer.cli.printing import print_json, table, warn, wrapped
from gossamer.errors import CallerError, DataError
from gossamer.privacy.claims.gfl import gfl_theorem2_standard_deviation
from gossamer.privacy.graph_bounds import GradientAt, UpdateBound
from gossamer.privacy.graph_guarantees import graph_guarantees
from gossamer.privacy.weakness import remarks
from gossamer.topology import build_graph, metropolis
from gossamer.topology.mixing import Matrix

_DESCRIPTION = """Choose the noise of graph federated learning from public constants. No data is read. For (epsilon,
delta) of all rounds together, every correlation over rounds (independent, random_walk, banded, sqrt_toeplitz) gets the
least Gaussian noise that is proved, and the one with the least expected network disagreement is taken. Between servers
the noise is homomorphic: it cancels in the mean of their models."""

GRAPHS = ("ring", "line", "star", "complete", "exponential", "grid")
"""Graphs that are known by name: those that need no random numbers and no further setting."""

_RANGES: dict[str, Range] = {
    "--epsilon": POSITIVE,
    "--delta": ("from 1e-200 to below 1", lambda value: 1e-200 <= value < 1),
    "--rounds": ("a whole number from 1 to 100000", lambda value: 1 <= value <= 100_000),
    "--step": POSITIVE,
    "--bound": POSITIVE,
    "--size": COUNT,
    "--units": ("a whole number from 2 to 2000", lambda value: 2 <= value <= 2000),
    "--agents-sampled": COUNT,
    "--contraction": ("inside (0, 1]", lambda value: 0 < value <= 1),
}
_NEEDED = ("--epsilon", "--delta", "--rounds", "--step", "--bound", "--size", "--graph")


def add_plan(kinds: Any) -> None:
    """Add the subcommand to ``gossamer plan``."""
    plan = kinds.add_parser(
        "graph_federated",
        help="graph federated learning: the noise that disturbs least, for a guarantee",
        description=_DESCRIPTION,
    )
    plan.add_argument("--epsilon", type=float, metavar="E", help="to be proved of all rounds together")
    plan.add_argument("--delta", type=float, metavar="D", help="to be proved")
    add_accept_weak(plan)
    plan.add_argument("--rounds", type=int, metavar="T", help="messages of a unit")
    plan.add_argument("--step", type=float, metavar="MU", help="mu, step size of a round")
    plan.add_argument("--bound", type=float, metavar="B", help="clip of each gradient, with the regulariser's part")
    plan.add_argument("--size", type=int, metavar="N", help="number of parameters")
    plan.add_argument("--graph", metavar="G", help=f"{', '.join(GRAPHS)}, or a file with a mixing matrix")
    plan.add_argument("--units", type=int, metavar="P", help="servers on the graph; not with a file")
    plan.add_argument("--agents-sampled", type=int, metavar="L", help="agents of a unit in a round; for released")
    plan.add_argument(
        "--gradient-at", choices=[where.value for where in GradientAt], default="released", help="default released"
    )
    plan.add_argument(
        "--contraction",
        type=float,
        default=1.0,
        metavar="R",
        help="of models' differences in a gradient step (default 1)",
    )
    plan.add_argument(
        "--measure", choices=[measure.value for measure in Measure], default="mean", help="of rounds (default mean)"
    )
    plan.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    plan.set_defaults(command=graph_federated_command)


def graph_federated_command(options: argparse.Namespace) -> int:
    """Print the noise that is chosen, and what else was tried."""
    released = options.gradient_at == GradientAt.RELEASED
    check_needed(options, "plan graph_federated", _NEEDED)
    check_ranges(options, _RANGES)
    check_delta(options)
    if released and options.agents_sampled is None:
        raise CallerError("plan graph_federated needs --agents-sampled with --gradient-at released")
    update = UpdateBound(options.step, options.bound, options.agents_sampled or 1, GradientAt(options.gradient_at))
    plan = plan_noise(
        NoiseProblem(
            options.epsilon,
            options.delta,
            options.rounds,
            update,
            options.size,
            _mixing(options),
            options.contraction,
            Measure(options.measure),
        )
    )
    warn(remarks(options.epsilon, options.delta))
    if options.json:
        print_json(_document(plan))
    else:
        _print(plan)
    return 0


def _mixing(options: argparse.Namespace) -> Matrix:
    if options.graph in GRAPHS:
        check_needed(options, f"plan graph_federated --graph {options.graph}", ("--units",))
        return metropolis(build_graph(options.graph, options.units, np.random.default_rng(0)))  # draws nothing
    if options.units is not None and Path(options.graph).exists():
        raise CallerError(f"--units goes with one of {', '.join(GRAPHS)}; the matrix in {options.graph} has its own")
    return _read(Path(options.graph))


def _read(path: Path) -> Matrix:
    try:
        text = path.read_text(encoding="utf-8").replace(",", " ")
        matrix = np.loadtxt(text.splitlines(), ndmin=2) if text.strip() else np.empty((0, 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no table of numbers with rows of one length"
        raise DataError(
            f"--graph is one of {', '.join(GRAPHS)}, or a file with a mixing matrix, a row a line; {path}: {why}"
        ) from None
    if not matrix.size:
        raise DataError(f"--graph: expected a mixing matrix, a row a line, found no number in {path}")
    return matrix


def _row(choice: NoiseChoice) -> dict[str, Any]:
    return {
        "temporal": choice.noise.factorisation.temporal.value,
        "bands": choice.noise.factorisation.bands,
        "sigma": choice.noise.standard_deviation,
        "largest_message_sigma": choice.largest_message_deviation,
        "mu_g": choice.mu_g,
        "disagreement": choice.disagreement[Measure.MEAN],
        "last_disagreement": choice.disagreement[Measure.LAST],
        "centroid": choice.centroid[Measure.MEAN],
        "last_centroid": choice.centroid[Measure.LAST],
    }


def _document(plan: NoisePlan) -> dict[str, Any]:
    asked, best = plan.problem, plan.best
    guarantees = graph_guarantees(best.noise, asked.update, asked.size, asked.delta)
    return {
        **_row(best),
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "rounds": asked.rounds,
        "gradient_at": asked.update.gradient_at.value,
        "measure": asked.measure.value,
        "guarantees": {observer: guarantee.as_dict() for observer, guarantee in guarantees.items()},
        "choices": [_row(choice) for choice in plan.choices],
    }


def _print(plan: NoisePlan) -> None:
    asked, best = plan.problem, plan.best
    rows = [["temporal", "bands", "sigma", "largest of a message", "disagreement", "after the last", "centroid"]]
    for choice in plan.choices:
        row = _row(choice)
        figures = ("sigma", "largest_message_sigma", "disagreement", "last_disagreement", "centroid")
        bands = "" if row["bands"] is None else str(row["bands"])
        rows.append([row["temporal"], bands, *(f"{row[name]:.5g}" for name in figures)])
    print(table(rows))
    print(
        wrapped(
            f"Taken: {best.noise.factorisation.temporal}, the least disagreement "
            f"({'mean over rounds' if asked.measure is Measure.MEAN else 'after the last round'}; expected, of the "
            "noise alone). Sigma is the standard deviation of what is drawn a round, in each coordinate."
        )
    )
    print()
    print(wrapped(str(graph_guarantees(best.noise, asked.update, asked.size, asked.delta)["other_units"])))
    claimed = gfl_theorem2_standard_deviation(asked.rounds, asked.update.step, asked.update.bound, asked.epsilon)
    print(wrapped(f"The paper's Theorem 2 claims this epsilon of independent Laplace noise of sigma {claimed:.5g}."))
