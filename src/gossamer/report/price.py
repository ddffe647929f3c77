"""The figure of what privacy costs: scores of a federation against the epsilon that is proved of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair


class Point(NamedTuple):
    """Scores of runs with one epsilon.

    Attributes
    ----------
    epsilon : float
        Proved of each of them.
    mean, low, high : float
        Over seeds.
    """

    epsilon: float
    mean: float
    low: float
    high: float


def price_figure(kind: str, delta: float, points: Sequence[Point], others: Mapping[str, float]) -> Figure:
    """Return the figure.

    Parameters
    ----------
    kind : str
        Name of the score, such as accuracy.
    delta : float
        The largest at which the epsilons are proved.
    points : sequence of Point
        Of the federation with noise, by increasing epsilon.
    others : mapping of str to float
        Mean scores of runs without noise, by what they are called: drawn as lines across.
    """
    alt = altair()
    rows: list[dict[str, Any]] = [{"run": _FEDERATION, **point._asdict()} for point in points]
    rows += [{"run": name, "mean": value} for name, value in others.items()]
    colour = alt.Color("run:N", title=None, sort=[_FEDERATION, *others], legend=alt.Legend(orient="bottom", columns=1))
    across = alt.X("epsilon:Q", title=f"epsilon proved, at delta {delta:.3g}", scale=alt.Scale(type="log", nice=False))
    upwards = alt.Y("mean:Q", title=f"{kind} on test examples", scale=alt.Scale(zero=False, padding=6))
    chart = alt.Chart(alt.Data(values=rows))
    noisy, clean = chart.transform_filter("isValid(datum.epsilon)"), chart.transform_filter("!isValid(datum.epsilon)")
    layers = [
        noisy.mark_area(opacity=0.25).encode(x=across, y="low:Q", y2="high:Q", color=colour),
        noisy.mark_line(point=True).encode(
            x=across, y=upwards, color=colour, tooltip=["epsilon:Q", "mean:Q", "low:Q", "high:Q"]
        ),
        clean.mark_rule(strokeDash=[6, 3], size=2).encode(y=upwards, color=colour, tooltip=["run:N", "mean:Q"]),
    ]
    spec = alt.layer(*layers).properties(width="container", height=280).to_dict()
    title = f"Price of privacy: {kind} against proved epsilon"
    return Figure("price", title, _words(title, points, others), Shown.PRIVATE, spec, rows)


_FEDERATION = "federation with noise"


def _words(title: str, points: Sequence[Point], others: Mapping[str, float]) -> str:
    said = [f"{point.mean:.3g} at epsilon {point.epsilon:.3g}" for point in points]
    lines = [f"{name}: {value:.3g}" for name, value in others.items()]
    beside = f" Beside it, {'; '.join(lines)}." if lines else ""
    return f"{title}. The federation with noise comes to {', '.join(said)}.{beside}"
