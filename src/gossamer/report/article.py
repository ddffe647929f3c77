"""Means over seeds as an article shows them: a table in CSV and LaTeX, and a figure in PDF, SVG and PNG.

A mean has the 95 % interval of Student's t over seeds. A difference from a baseline is tested in pairs of one seed
each, and p-values of several tests are Holm's [1].

References
----------
[1] Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
"""

from __future__ import annotations

import io
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import DataError, SpecError, counted, did_you_mean, shortened
from gossamer.files import MOST_RECORDS, as_written, read_text, to_csv, write_own
from gossamer.objectives.score_words import LABELS
from gossamer.privacy.guarantees import rounded_up
from gossamer.report.drawing import COLOURS, NOTHING, PageSection, Shown, needed
from gossamer.report.records import SUMMARY, RunRecord, read_record

COSTS = {
    "updates": "updates",
    "messages": "messages sent",
    "bytes": "bytes sent",
    "virtual_seconds": "virtual seconds",
    "epsilon": "epsilon proved",
}
"""Figures that every run has, in words; epsilon where something is proved."""
SWEEP, CSV, LATEX, FIGURE = "sweep.json", "table.csv", "table.tex", "figure"
KINDS = ("pdf", "svg", "png")


def words_of(figure: str) -> str:
    """Words for a figure of runs."""
    if figure in COSTS:
        return COSTS[figure]
    return LABELS[figure].words if figure in LABELS else figure.replace("_", " ")


def figures_of(summary: Mapping[str, Any], shared: bool) -> dict[str, float]:
    """Figures of a finished run, by name: of the run's model where ``shared``, and of nodes' own otherwise.

    Those of the run's model have the ends of their 95 % intervals beside them, by ``NAME_low`` and ``NAME_high``.
    """
    metrics, scores = summary.get("metrics") or {}, summary.get("scores") or {}
    if shared or summary["nodes"] == 1:
        judged = scores.get("figures", {})
        found = {name: one["value"] for name, one in judged.items()}
        for name, one in judged.items():
            found[f"{name}_low"], found[f"{name}_high"] = one.get("interval") or (None, None)
    else:
        found = {"auroc": scores.get("nodes", {}).get("auroc")}
    kind = "mean_model_test_" if shared else "test_"
    found |= {name: metrics.get(kind + name) for name in ("accuracy", "loss")}
    found |= {name: summary.get(name) for name in COSTS} | {"epsilon": summary["privacy"]["guarantee"].get("epsilon")}
    return {name: float(value) for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Mean:
    """Mean of a figure over the seeds of a setting.

    Attributes
    ----------
    labels : mapping of str to str
        Values of the setting as people call them, by key.
    values : mapping of int to float
        Figure of each finished run that has one, by seed.
    epsilon : float or None
        Largest epsilon that is proved of its runs; None where one has none.
    unit : str or None
        Unit that it is of; None where no run has ended.
    p : float or None
        p-value of the difference from the baseline; None where none is tested.
    """

    labels: Mapping[str, str]
    values: Mapping[int, float]
    epsilon: float | None = None
    unit: str | None = None
    p: float | None = None

    @property
    def mean(self) -> float:
        """The mean; no number where there is no value."""
        return float(np.mean([*self.values.values()])) if self.values else math.nan

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean; None of fewer than two seeds, and of values that are all alike."""
        from scipy import stats

        if len({*self.values.values()}) < 2:
            return None
        half = stats.t.ppf(0.975, len(self.values) - 1) * stats.sem([*self.values.values()])
        return self.mean - float(half), self.mean + float(half)


def of_several(units: Iterable[str | None]) -> bool:
    """Whether guarantees of settings are of different units, so that their epsilons do not compare as they stand."""
    return len({unit for unit in units if unit}) > 1


def against(means: Sequence[Mean], key: str, label: str) -> dict[int, float]:
    """Return p-values, by place in ``means``, of those whose ``key`` is not the baseline's ``label``.

    Each is of a paired t-test, by seed, against the setting that differs from it in the key alone, and then Holm's.
    Where fewer than two seeds are common to both, or each differs by the same but for rounding, there is none.
    """
    from scipy import stats

    found: dict[int, float] = {}
    for place, one in enumerate(means):
        partner = next(other for other in means if other.labels == {**one.labels, key: label})
        seeds = sorted(one.values.keys() & partner.values.keys())
        pairs = np.array([(one.values[seed], partner.values[seed]) for seed in seeds])
        # Differences that are equal but for rounding would have a p-value of nearly 0.
        if partner is not one and len(seeds) > 1 and np.ptp(pairs[:, 0] - pairs[:, 1]) > 1e-9 * np.abs(pairs).max():
            found[place] = float(stats.ttest_rel(*pairs.T).pvalue)
    ordered = sorted(found, key=found.__getitem__)
    raw = [(len(ordered) - rank) * found[place] for rank, place in enumerate(ordered)]
    return dict(zip(ordered, np.minimum(1, np.maximum.accumulate(raw)).tolist(), strict=True))


@dataclass(frozen=True)
class Axes:
    """Figure that ``--figure`` asks for.

    Attributes
    ----------
    x : str
        Key of the grid that lies across.
    y : str
        Figure of the runs.
    hue : str, optional
        Key of the grid whose values are a line each.
    """

    x: str
    y: str
    hue: str | None = None

    @classmethod
    def read(cls, text: str, keys: Sequence[str]) -> Axes:
        """Read ``x=KEY,y=FIGURE,hue=KEY``, where the grid has ``keys``.

        Raises
        ------
        SpecError
            If it is not like that, or leaves out a key of the grid.
        """
        pairs = [part.partition("=")[::2] for part in text.split(",")]
        given = {name.strip(): value.strip() for name, value in pairs}
        if unknown := [name for name in given if name not in ("x", "y", "hue")]:
            raise SpecError(f"--figure: unknown key {shortened(unknown[0])}; expected x=KEY,y=FIGURE,hue=KEY")
        if len(given) < len(pairs) or not all(given.values()) or not {"x", "y"} <= given.keys():
            raise SpecError(f"--figure: expected x=KEY,y=FIGURE,hue=KEY, each once, found {shortened(text)}")
        for name in ("x", "hue"):
            if name in given and given[name] not in keys:
                hint = did_you_mean(given[name], keys) or "; give a --grid"
                raise SpecError(f"--figure: {name}={given[name]} is no key of the grid{hint}")
        if left := [key for key in keys if key not in (given["x"], given.get("hue"))]:
            raise SpecError(f"--figure: {left[0]} of the grid is neither x nor hue, and a figure has no third; drop it")
        return cls(**given)


@dataclass(frozen=True)
class Article:
    """Means of a sweep, and what is made of them.

    Attributes
    ----------
    figure : str
        Name of the figure that they are of.
    means : sequence of Mean
        A mean for each setting.
    axes : Axes, optional
        Axes of the figure to draw.
    baseline : str
        What differences were tested against; empty where they were not.
    delta : float, optional
        Largest delta of the guarantees.
    lacking : int
        Number of runs that do not have the figure.
    """

    figure: str
    means: Sequence[Mean]
    axes: Axes | None = None
    baseline: str = ""
    delta: float | None = None
    lacking: int = 0

    @property
    def caption(self) -> str:
        """Sentences on what means, intervals and p-values are."""
        seeds = sorted({len(one.values) for one in self.means if one.values}) or [0]
        many = counted(seeds[-1], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        words, where = words_of(self.figure), "" if self.figure in COSTS else " on test examples"
        said = f"{words[0].upper()}{words[1:]}{where}, mean over {many}"
        said += " with its 95 % interval (Student's t)." if seeds[-1] > 1 else "."
        if self.lacking:
            said += f" Without {counted(self.lacking, 'run')} that failed or diverged and have no such figure."
        tested = sum(one.p is not None for one in self.means)
        holm = f", with Holm's correction for {tested} tests" if tested > 1 else ""
        said += "" if self.delta is None else f" Epsilon is at delta {self.delta:.3g}."
        said += self._units()
        return said + (f" p: paired t-test by seed against {self.baseline}{holm}." if tested else "")

    def _units(self) -> str:
        """The sentence on what epsilons are of, where that differs; settings are called by one key if that will do."""
        if not of_several(one.unit for one in self.means):
            return ""
        keys = [*self.means[0].labels]
        for naming in (*([key] for key in keys), keys):
            called: dict[str, dict[str, None]] = {}
            for one in self.means:
                if one.unit:
                    called.setdefault(one.unit, {})[" ".join(one.labels[key] for key in naming)] = None
            if len(set().union(*called.values())) == sum(map(len, called.values())):
                break
        each = ", ".join(f"of each {unit} for {', '.join(names)}" for unit, names in called.items())
        return f" Epsilons do not compare as they stand: {each}."

    def rows(self) -> list[dict[str, str]]:
        """Rows of a table for people: a setting each."""
        form = LABELS[self.figure].form if self.figure in LABELS else ".4g"
        tested = any(one.p is not None for one in self.means)
        return [
            {
                **{key.replace(".", " ").replace("_", " "): label for key, label in one.labels.items()},
                words_of(self.figure): format(one.mean, form) if one.values else NOTHING,
                "95 % interval": " to ".join(format(end, form) for end in one.interval or ()) or NOTHING,
                "seeds": str(len(one.values)),
                **({"p": _p(one.p)} if tested else {}),
                COSTS["epsilon"]: NOTHING if one.epsilon is None else rounded_up(one.epsilon),
            }
            for one in self.means
        ]

    @property
    def files(self) -> list[str]:
        """Names of what `write` writes."""
        return [CSV, LATEX, *([f"{FIGURE}.{kind}" for kind in KINDS] if self.axes else [])]

    def write(self, folder: Path) -> None:
        """Write tables, and the figure, into ``folder``; where none is drawn, one of an earlier call goes."""
        write_own(folder / CSV, self._csv())
        write_own(folder / LATEX, self._latex())
        if self.axes is None:
            for kind in KINDS:
                (folder / f"{FIGURE}.{kind}").unlink(missing_ok=True)
            return
        with _drawn(self.means, self.axes) as drawn:
            for kind in KINDS:
                out = io.BytesIO()
                drawn.savefig(out, format=kind, dpi=300, metadata=UNDATED.get(kind))
                write_own(folder / f"{FIGURE}.{kind}", out.getvalue())

    def _latex(self) -> str:
        rows = self.rows()
        cells = [[*rows[0]], *(row.values() for row in rows)]
        heading, *lines = (" & ".join(map(_tex, row)) + r" \\" for row in cells)
        heading = re.sub(r"\w+", lambda word: _SIGNS.get(word[0], word[0]), heading)
        columns = "l" * (keys := len(self.means[0].labels)) + "r" * (len(rows[0]) - keys)
        begin = [r"\begin{table*}", r"\centering", rf"\caption{{{_tex(self.caption)}}}", r"\label{tab:sweep}"]
        body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", heading, r"\midrule", *lines, r"\bottomrule"]
        return "\n".join([*begin, *body, r"\end{tabular}", r"\end{table*}", ""])

    def _csv(self) -> str:
        tested, rows = any(one.p is not None for one in self.means), list[dict[str, Any]]()
        several = of_several(one.unit for one in self.means)
        for one in self.means:
            low, high = one.interval or (None, None)
            mean = {"mean": one.mean if one.values else None, "low": low, "high": high, "seeds": len(one.values)}
            p = {"p": one.p} if tested else {}
            of = {"epsilon_of": one.unit} if several else {}
            rows.append({**one.labels, "figure": self.figure, **mean, **p, "epsilon": one.epsilon, **of})
        return to_csv(rows)


UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


_TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: f"${letter}$" for letter in "<>|"}  # which are others in TeX's own letters
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)

_SIGNS = {"epsilon": r"$\varepsilon$", "delta": r"$\delta$", "p": "$p$"}


def _tex(text: str) -> str:
    text = re.sub(r"(?<![\w.+-])(-?\d+\.?\d*)[eE]([+-]?\d+)(?!\w|\.\d)", _power, text.translate(_TEX))
    return re.sub(r"(?<!\S)-(?=\d)", "$-$", text)  # a sign, and no hyphen


def _power(found: re.Match[str]) -> str:
    factor = "" if float(found[1]) == 1 else rf"{found[1]} \cdot "
    return f"${factor}10^{{{int(found[2])}}}$"


def _p(value: float | None) -> str:
    return NOTHING if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


# The figure: as wide as two columns of an article, in letters like those around it, told apart without colour.

_WIDE, _HIGH = 7.0, 2.7  # inches
LOOKS = Path(__file__).with_name("article.mplstyle")
_MARKS, _LINES = "osD^vPX", ("-", "--", "-.", (0, (1, 1.2)))
_WORDS = {"budget.epsilon": "privacy budget $\\epsilon$", "budget.delta": "$\\delta$ of the budget"}
_SHARES = [name for name, label in LABELS.items() if label.form == "z.3f" and name != "r2"]
_OVER = 0.02  # of a share's axis, beyond 0 and 1, where no mean can be, but an interval may reach
_DECADE = 8.0  # a scale whose ends are further apart than this factor is logarithmic
_BESIDE = 0.012  # of the width: lines beside each other, so that no bar hides another
_LINE_HEIGHT = 0.085  # of the height: from one direct label to the next


@contextmanager
def _drawn(means: Sequence[Mean], axes: Axes) -> Iterator[Any]:
    """Draw the figure; it has to be saved inside the block."""
    figure_class = needed("matplotlib.figure", "figures", "a figure").Figure
    ticker, rc = needed("matplotlib.ticker", "figures"), needed("matplotlib", "figures").rc_context
    with rc(fname=LOOKS):
        figure = figure_class(figsize=(_WIDE, _HIGH), layout="constrained")
        plot = figure.add_subplot()
        labels = list(dict.fromkeys(one.labels[axes.x] for one in means))
        at = _numbers(labels)
        places = dict(zip(labels, range(len(labels)) if at is None else at, strict=True))
        logarithmic = at is not None and min(at) > 0 and max(at) >= _DECADE * min(at)
        if logarithmic:
            plot.set_xscale("log")
        plot.set_xticks([*places.values()], labels, parse_math=False)
        plot.xaxis.set_minor_locator(ticker.NullLocator())
        plot.set_xlabel(_WORDS.get(axes.x, _last(axes.x)))
        plot.set_ylabel(words_of(axes.y) + ("" if axes.y in COSTS else " (test)"))
        plot.grid(axis="y", linewidth=0.4, alpha=0.4)
        plot.set_axisbelow(True)
        lines = list(dict.fromkeys(one.labels[axes.hue] if axes.hue else "" for one in means))
        named = f"{_last(axes.hue or '')} " if _numbers(lines) else ""
        ends = []
        for number, line in enumerate(lines):
            own = [one for one in means if one.values and (not axes.hue or one.labels[axes.hue] == line)]
            if not own:
                continue
            own.sort(key=lambda one: places[one.labels[axes.x]])
            aside = (number - (len(lines) - 1) / 2) * _BESIDE
            x = [_moved(places[one.labels[axes.x]], aside, [*places.values()], logarithmic) for one in own]
            y = [one.mean for one in own]
            bars = [(0, 0) if one.interval is None else (one.mean - one.interval[0],) * 2 for one in own]
            colour = COLOURS[number % len(COLOURS)]
            looks = {"color": colour, "marker": _MARKS[number % len(_MARKS)], "capsize": 2, "elinewidth": 0.9}
            style = "none" if at is None else _LINES[number % len(_LINES)]
            plot.errorbar(x, y, np.array(bars).T, linestyle=style, **looks)
            ends.append((x[-1], y[-1], f"{named}{line}", colour))
        plot.margins(x=0.04, y=0.08)
        if axes.y in _SHARES:
            low, high = plot.get_ylim()
            plot.set_ylim(max(low, -_OVER), min(high, 1 + _OVER))
        if axes.hue:
            _label(plot, ends)
        yield figure


def _label(plot: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each line's name at its end, as near as the names of others let it be."""
    from scipy.optimize import isotonic_regression

    rgb = needed("matplotlib.colors", "figures", "a figure").to_rgb
    low, high = plot.get_ylim()
    plot.set_ylim(low, high)
    ordered = sorted(ends, key=lambda end: end[1])
    apart = _LINE_HEIGHT * np.arange(len(ordered))
    heights = isotonic_regression([(y - low) / (high - low) for _, y, _, _ in ordered] - apart).x + apart
    for (x, y, line, colour), height in zip(ordered, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkB": 4}
        place = {"textcoords": plot.transAxes, "va": "center", "arrowprops": leader}
        dark = [0.75 * part for part in rgb(colour)]  # letters need more contrast than lines
        plot.annotate(line, (x, y), (1.03, height), parse_math=False, color=dark, **place)


def _moved(place: float, aside: float, places: Sequence[float], logarithmic: bool) -> float:
    if logarithmic:
        return float(place * (max(places) / min(places)) ** aside)
    return place + aside * float((max(places) - min(places)) or 1)


def _numbers(labels: Sequence[str]) -> list[float] | None:
    """The labels as numbers; None where one is none."""
    try:
        found = [float(label) for label in labels]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _last(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


# The page's first part


def means_section(rows: Sequence[Mapping[str, str]], caption: str, folder: Path) -> PageSection:
    """Return the part of a report with the means of a sweep in ``folder``, and its figure if it has one."""
    picture = folder / f"{FIGURE}.svg"
    shown = f"data:image/svg+xml;base64,{b64encode(picture.read_bytes()).decode()}" if picture.is_file() else ""
    values = {"rows": rows, "caption": caption, "picture": shown, "shown": Shown.PRIVATE}
    return PageSection("means", "Means over seeds", (), "means.html", values)


def read_sweep(folder: Path) -> tuple[list[RunRecord], PageSection]:
    """Return a sweep's finished runs, called as it calls them, and the part of a report with its means.

    Raises
    ------
    DataError
        If its ``sweep.json`` is not what a sweep writes, or no run is there.
    """
    with as_written(folder / SWEEP, "what gossamer sweep wrote", "give the command again"):
        found = json.loads(read_text(folder / SWEEP, MOST_RECORDS))
        made = [(Path(one["folder"]).name, str(one.get("called", ""))) for one in found["runs"] if "error" not in one]
        rows = [{str(name): str(cell) for name, cell in row.items()} for row in found["means"]]
        caption = str(found["caption"])
    if not (there := [read_record(folder / run, name) for run, name in made if (folder / run / SUMMARY).exists()]):
        raise DataError(f"{folder}: no run of this sweep is finished, so there is nothing to report; sweep again")
    return there, means_section(rows, caption, folder)
