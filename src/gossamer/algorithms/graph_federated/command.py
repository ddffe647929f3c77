"""``gossamer plan graph_federated``: noise between servers on a graph, by the disagreement that it causes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from gossamer.algorithms.command import AcceptWeak, Answer, Command, Doing, Option, Rows
from gossamer.algorithms.graph_federated import guarantees as proofs
from gossamer.algorithms.graph_federated.noise import Measure, NoiseChoice, NoiseProblem, plan_noise
from gossamer.errors import CallerError, DataError
from gossamer.files import read_text
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.streams.correlated_noise import Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, UpdateBound
from gossamer.topology.mixing import Matrix, metropolis, rho
from gossamer.topology.topologies import build_graph

_DESCRIPTION = """Choose the noise of graph federated learning from public constants. No data is read. For (epsilon,
delta) of all rounds together, every correlation over rounds (independent, random_walk, banded, sqrt_toeplitz) gets the
least Gaussian noise that is proved, and the one with the least expected network disagreement is taken. Between servers
the noise is homomorphic: it cancels in the mean of their models."""

GRAPHS = ("ring", "line", "star", "complete", "exponential", "grid")
"""Graphs that are known by name: those that need no random numbers and no further setting."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command; bounds are those of planning."""

    epsilon: Annotated[float, Option("to be proved of all rounds together", "E", gt=0)]
    delta: Annotated[float, Option("to be proved", "D", ge=1e-200, lt=1)]
    accept_weak: AcceptWeak = False
    rounds: Annotated[int, Option("messages of a unit", "T", ge=1, le=100_000)]
    step: Annotated[float, Option("mu, step size of a round", "MU", gt=0)]
    bound: Annotated[float, Option("clip of each gradient, with the regulariser's part", "B", gt=0)]
    size: Annotated[int, Option("number of parameters", "N", ge=1)]
    graph: Annotated[str, Option(f"{', '.join(GRAPHS)}, or a file with a mixing matrix", "G")]
    units: Annotated[int | None, Option("servers on the graph; not with a file", "P", ge=2, le=2000)] = None
    agents_sampled: Annotated[int | None, Option("agents of a unit in a round; for released", "L", ge=1)] = None
    gradient_at: Annotated[GradientAt, Option("models that gradients are taken at")] = GradientAt.RELEASED
    contraction: Annotated[float, Option("of models' differences in a gradient step", "R", gt=0, le=1)] = 1.0
    measure: Annotated[Measure, Option("of the disagreement over rounds")] = Measure.MEAN
    strong_convexity: Annotated[float | None, Option("of risks, for what the paper's theorems claim", "NU", gt=0)] = (
        None
    )
    smoothness: Annotated[float | None, Option("of the loss of every example", "DELTA", gt=0)] = None
    gradient_square: Annotated[
        float | None, Option("mean squared norm of examples' gradients at the best model", "S", ge=0)
    ] = None


def answer(options: Options, doing: Doing) -> Answer:
    """Return the noise that is chosen, and what else was tried."""
    if options.gradient_at is GradientAt.RELEASED and options.agents_sampled is None:
        raise CallerError("plan graph_federated needs --agents-sampled with --gradient-at released")
    update = UpdateBound(options.step, options.bound, options.agents_sampled or 1, options.gradient_at)
    of, mixing = (options.epsilon, options.delta, options.rounds, update, options.size), _mixing(options)
    choices = plan_noise(NoiseProblem(*of, mixing, options.contraction, options.measure))
    guarantees = proofs.graph_guarantees(choices[0].noise, update, options.size, options.delta)
    claimed = _claimed(options, choices, mixing)
    document = {
        **_row(choices[0]),
        "epsilon": options.epsilon,
        "delta": options.delta,
        "rounds": options.rounds,
        "gradient_at": options.gradient_at.value,
        "measure": options.measure.value,
        "guarantees": {observer: guarantee.as_dict() for observer, guarantee in guarantees.items()},
        "choices": [_row(choice) for choice in choices],
    }
    if claimed is not None:
        document["claimed_errors"] = {name: most if math.isfinite(most) else None for name, most in claimed.items()}
    rounds = "mean over rounds" if options.measure is Measure.MEAN else "after the last round"
    sigma = proofs.theorem2_product(options.rounds, options.step, options.bound) / options.epsilon
    text: list[str | Rows] = [
        _table(choices),
        f"Taken: {choices[0].noise.factorisation.temporal}, the least disagreement ({rounds}; expected, of the noise "
        "alone). Sigma is the standard deviation of what is drawn a round, in each coordinate.",
        "",
        str(guarantees["other_units"]),
        f"The paper's Theorem 2 claims this epsilon of independent Laplace noise of sigma {sigma:.5g}.",
    ]
    return Answer(document, [*text, *_errors(claimed)], remarks(options.epsilon, options.delta))


def _claimed(options: Options, choices: Sequence[NoiseChoice], mixing: Matrix) -> dict[str, float] | None:
    """Claims of the theorems on convergence for independent noise that meets the guarantee; None without constants."""
    given = options.strong_convexity, options.smoothness, options.gradient_square
    if all(value is None for value in given):
        return None
    convexity, smoothness, gradient = given
    hidden = options.gradient_at is GradientAt.HIDDEN
    if convexity is None or smoothness is None or gradient is None or options.agents_sampled is None or not hidden:
        raise CallerError(
            "plan graph_federated: what the theorems claim of errors needs --strong-convexity, --smoothness, "
            "--gradient-square, --agents-sampled and --gradient-at hidden; give all of them, or none of the first three"
        )
    (independent,) = (one.noise for one in choices if one.noise.factorisation.temporal is Temporal.INDEPENDENT)
    return proofs.limits(
        proofs.Constants(
            step=options.step,
            strong_convexity=convexity,
            smoothness=smoothness,
            gradient_square=gradient,
            agents_sampled=options.agents_sampled,
            mixing=rho(mixing),
            message_noise=proofs.homomorphic_noise(mixing, independent.standard_deviation**2, options.size),
        )
    )


def _errors(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return []
    if not math.isfinite(found["centroid"]):
        return ["Its Theorems 1 and 3 claim nothing of the errors: the step is too large for these constants."]
    return [
        "Of independent noise with this guarantee, one local step and gradients at hidden states its Theorems 1 and 3 "
        f"claim squared errors of {found['centroid']:.4g} (centroid) and {found['individual']:.4g} (own models) at "
        f"most in the long run, and Lemma 3 a disagreement of {found['disagreement']:.4g}. These are claims."
    ]


def _mixing(options: Options) -> Matrix:
    path, known = Path(options.graph), ", ".join(GRAPHS)
    if options.graph in GRAPHS:
        if options.units is None:
            raise CallerError(f"plan graph_federated --graph {options.graph} needs --units")
        return metropolis(build_graph(options.graph, options.units, np.random.default_rng(0)))  # draws nothing
    if options.units is not None and path.exists():
        raise CallerError(f"--units goes with one of {known}; the matrix in {path} has its own")
    try:
        text = read_text(path).replace(",", " ")
        matrix = np.loadtxt(text.splitlines(), ndmin=2) if text.strip() else np.empty((0, 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no table of numbers with rows of one length"
        raise DataError(
            f"--graph is one of {known}, or a file with a mixing matrix, a row a line; {path}: {why}"
        ) from None
    if not matrix.size:
        raise DataError(f"--graph: expected a mixing matrix, a row a line, found no number in {path}")
    return matrix


def _row(choice: NoiseChoice) -> dict[str, Any]:
    return {
        "temporal": choice.noise.factorisation.temporal.value,
        "bands": choice.noise.factorisation.bands,
        "sigma": choice.noise.standard_deviation,
        "largest_message_sigma": float(choice.noise.message_standard_deviations.max()),
        "mu_g": choice.mu_g,
        **choice.figures,
    }


def _table(choices: Sequence[NoiseChoice]) -> Rows:
    rows = [["temporal", "bands", "sigma", "largest of a message", "disagreement", "after the last", "centroid"]]
    for row in map(_row, choices):
        figures = ("sigma", "largest_message_sigma", "disagreement", "last_disagreement", "centroid")
        bands = "" if row["bands"] is None else str(row["bands"])
        rows.append([row["temporal"], bands, *(f"{row[name]:.5g}" for name in figures)])
    return rows


COMMAND = Command(
    Options,
    answer,
    help="graph federated learning: the noise that disturbs least, for a guarantee",
    description=_DESCRIPTION,
)
