"""The page of results of `run.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

Records = Sequence[Mapping[str, Any]]
MOST = {False: 0.02, True: 0.03}
"""Most AUROC, and R2, that is called little."""

HEAD = """# Defaults on real tables

What [`gossamer new`](how-to/your-csv.md) writes without a further word, on {count} tables that Python packages
contain, beside scikit-learn's unregularised fit of the same rows without privacy. *Lost* is the AUROC (of numbers the
R2) of that fit less that of the private model, on a fifth of the rows that neither saw; a mean of {seeds} seeds,
which split the rows and draw the noise. A minus sign: the private model did better. All rows of a table are in one
place. *Doubted* are runs that `gossamer new` and `check` say beforehand [that their budget teaches
little](how-to/choosing.md) of.

What is declared of a table is public knowledge of it: categories as they are, numbers from the first to the last
hundredth, rounded outward, since these tables are published; prevalence to two digits. That is more than a user may
know of private rows: wider ranges cost. Reproduce it with [`benchmarks/tables/run.py`](../benchmarks/tables/run.py);
records with seeds and commit are beside it. The arithmetic behind the rules is in
[`linear_rules.py`](../src/gossamer/experiment/specs/linear_rules.py).

## In short

{short}

What loses most and is not doubted is counts with a long tail, and deaths by a length of stay that has one (medpar),
since ranges leave little of such a column to learn from. The target is learnt within the declared range, and what is
beyond its last hundredth counts as the end, so their means come out low without privacy, too; and at a small budget a
shorter clip, which fits the median, is worth that bias. Declare a wider range of such a target, or spend more.
Without privacy covid_testing loses most, 0.012 to 0.021 in each seed, where the fit itself has 0.56; then indo_rct
(602 rows) and DoctorVisits (counts with a long tail), more or less than nothing as the seed has it.

Rules were found on the tables marked *tune*, {tuned} of them, by simulated noise on other splits, and only tried on
the others; the bound of doubts by the same.

"""


def page(records: Records, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    names = [name for name in tables if any(one["table"] == name for one in records)]
    head = HEAD.format(
        count=len(names),
        seeds=len({one["seed"] for one in records}),
        short=_short(records, tables),
        tuned=sum(tables[name]["set"] == "tune" for name in names),
    )
    parts = [head]
    for number, title, what in ((False, "Two classes", "AUROC"), (True, "Numbers", "R2")):
        kind = [name for name in names if _is_number(tables[name]) == number]
        parts.append(f"## {title}\n\n{_table(records, tables, kind, what)}\n")
    commits = ", ".join(sorted({f"`{one['commit']}`" for one in records}))
    parts.append(f"Made at commit {commits}; the page by `python benchmarks/tables/run.py --page`.\n")
    return "\n".join(parts)


def _is_number(entry: Mapping[str, Any]) -> bool:
    return not {"yes", "above"} & entry.keys()


def _lost(records: Records, name: str, epsilon: float | None) -> float:
    return mean(one["reference"] - one["score"] for one in _of(records, name, epsilon))


def _of(records: Records, name: str, epsilon: float | None) -> Records:
    return [one for one in records if one["table"] == name and one["epsilon"] == epsilon]


def _doubted(records: Records, name: str, epsilon: float | None) -> bool:
    return sum(one["doubted"] for one in _of(records, name, epsilon)) * 2 > len(_of(records, name, epsilon))


def _short(records: Records, tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| | tables | median lost | most lost | lost more than 0.02 (R2: 0.03) |", "|---|---|---|---|---|"]
    for number in (False, True):
        for epsilon in (1, 3, None):
            for doubt in (False, True):
                for which in ("tune", "try"):
                    kind = (number, which, doubt)
                    found = {
                        name: _lost(records, name, epsilon)
                        for name, entry in tables.items()
                        if _of(records, name, epsilon)
                        and (_is_number(entry), entry["set"], _doubted(records, name, epsilon)) == kind
                    }
                    if found:
                        lines.append(_row(found, number, epsilon, doubt, which))
    return "\n".join(lines)


def _row(found: Mapping[str, float], number: bool, epsilon: float | None, doubt: bool, which: str) -> str:
    worst = max(found, key=lambda name: found[name])
    what = f"{'numbers' if number else 'classes'}, {_budget(epsilon)}{', doubted' if doubt else ''}, *{which}*"
    over = sum(lost > MOST[number] for lost in found.values())
    return f"| {what} | {len(found)} | {median(found.values()):.3f} | {found[worst]:.3f} ({worst}) | {over} |"


def _budget(epsilon: float | None) -> str:
    return "without privacy" if epsilon is None else f"epsilon {epsilon:g}"


def _table(records: Records, tables: Mapping[str, Mapping[str, Any]], names: Sequence[str], what: str) -> str:
    header = (
        f"| table | rows | columns | {'share' if what == 'AUROC' else 'set'} | scikit-learn's {what} | "
        "lost at epsilon 1 | "
        "at 3 | without privacy | mean prediction over the mean, at 1 and 3 |"
    )
    sizes = {one["table"]: one["positive"] or one["rows"] for one in records}
    lines = [header, "|" + 9 * "---|"]
    for name in sorted(names, key=lambda one: sizes[one]):
        first = next(one for one in records if one["table"] == name)
        part = f"*{tables[name]['set']}*"
        share = part if first["positive"] is None else f"{first['positive']:.3f}, {part}"
        plain = mean(one["reference"] for one in records if one["table"] == name)
        lost = [
            f"{_lost(records, name, epsilon):.3f}{' (doubted)' if _doubted(records, name, epsilon) else ''}"
            if _of(records, name, epsilon)
            else "-"
            for epsilon in (1, 3, None)
        ]
        means = [f"{mean(one['mean'] for one in _of(records, name, e)):.2f}" for e in (1, 3) if _of(records, name, e)]
        lines.append(
            f"| {name} | {first['rows']:,} | {first['columns']} | {share} | {plain:.3f} | {' | '.join(lost)} | "
            f"{', '.join(means)} |"
        )
    return "\n".join(lines) + "\n"
