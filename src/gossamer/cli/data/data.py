"""``gossamer data``: what an owner's data have spent, what they consist of, and copies of that."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import closing

from gossamer.cli.printing import answered, say, table
from gossamer.deployment.owner.owned_data import OwnedData, Spending, back_up, key_path, spendings
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import counted
from gossamer.privacy.guarantees import rounded_up


def show_command(options: argparse.Namespace) -> int:
    """Print what was spent."""

    policy = read_policy(options.policy)
    found = spendings(policy)
    if not (options.json or policy.ledger_path.exists()):
        say(f"no ledger at {policy.ledger_path} yet: nothing was spent")
    document = {"ledger": str(policy.ledger_path), "data_sets": [one.describe() for one in found]}
    return answered(options, document, "\n\n".join("\n".join(_lines(one)) for one in found))


def update_command(options: argparse.Namespace) -> int:
    """Accept a data set as it is."""

    policy = read_policy(options.policy)
    key = key_path(policy.ledger_path)
    there = key.exists()
    with closing(OwnedData.open(policy, options.name, options.data, new_key=options.new_key)) as data:
        if options.new_key and there:
            say(f"{key} is there and belongs to the ledger, so --new-key has made no other")
        difference = data.update(renamed_from=options.renamed_from, adds_up=options.adds_up)
        warnings = data.check()
        accepted = data.file.contents.history(data.name)[-1]
    for warning in warnings:
        say(warning)
    changed = None if difference is None else difference._asdict()
    how = f" ({difference})" if difference is not None else ""
    renamed = "" if options.renamed_from is None else f", renamed from {options.renamed_from}"
    text = f"{data.name}: {counted(accepted.examples, 'example', form=',')} accepted{how}{renamed}"
    document = {"name": data.name, "examples": accepted.examples, "difference": changed}
    return answered(options, document, f"{text}; what was spent stays spent")


def backup_command(options: argparse.Namespace) -> int:
    """Copy the ledger and its key."""

    ledger, copy = read_policy(options.policy).ledger_path, options.out
    back_up(ledger, copy)
    text = f"{copy} and {key_path(copy)}: all that {ledger} has, by now; whatever is charged later is not in it"
    return answered(options, {"ledger": str(ledger), "copy": str(copy), "key": str(key_path(copy))}, text)


def _lines(spending: Spending) -> Iterator[str]:
    yield spending.name
    yield f"  {_budget(spending)}"
    yield from (f"  but {remark}" for remark in spending.remarks)
    for one, begun in spending.series.items():
        aside = f"epsilon {one.epsilon:g} at delta {one.delta:g}"
        runs = counted(one.runs, "run was", "runs were", form=",")
        yield f"  set aside for series {one.name!r}: {aside}; {begun:,} of its {runs} begun"
    yield f"  spent: {_spent(spending)}"
    yield from (f"    {line}" for line in _counted(spending))
    if spending.runs:
        yield from (f"    {line}" for line in table(_run_rows(spending)).splitlines())
    for run in spending.witnessed:
        yield f"  receipts of {run.run}: {run.receipts:,}"
        for signed in run.countersigned:
            seen = f"{signed.releases:,}, head {signed.head[:16]}, noted {signed.noted}"
            yield f"    {signed.witness} has countersigned {seen}"
    for number, content in enumerate(spending.contents):
        how = f" ({content.added:,} new, {content.gone:,} gone)" if number else ""
        fingerprint = content.fingerprint.hex()[:16]
        examples = counted(content.examples, "example", form=",")
        yield f"  content: {examples}, accepted {content.accepted}, fingerprint {fingerprint}{how}"
    for other, count in spending.overlaps.items():
        shared = counted(count, "example is", "examples are", form=",")
        yield f"  {shared} also in {other!r}; what both spend adds up for them"


def _run_rows(spending: Spending) -> list[tuple[str, ...]]:
    """Rows of what each run has spent, in the unit of each filter."""
    found: list[tuple[str, ...]] = [("run", "divergence", "mu", "releases")]
    for run in spending.runs:
        costs = f"{run.divergence:.4g}", f"{run.mu:.4g}"
        if run.series is not None:
            costs = f"in {run.series!r}", ""
        found.append((run.run, *costs, f"{run.releases:,}"))
    return found


def _budget(spending: Spending) -> str:
    budget = spending.budget
    if budget is None:
        return "not in the policy any more, so nothing may be released from it; what was spent is kept"
    return f"allowed: epsilon {budget.epsilon:g} at delta {budget.delta:g} ({budget.relation.value})"


def _spent(spending: Spending) -> str:

    budget, shares, epsilon = spending.budget, spending.shares, spending.epsilon
    if budget is None or shares is None or epsilon is None:
        return f"divergence {spending.divergence:.4g}"
    if not epsilon < math.inf:
        return "everything: a run without privacy released from it"
    share = min(shares)
    rest = f", so {100 * (1 - share):.0f} % is left" if share <= 1 else ", so nothing is left"
    return f"{_percent(share)}{rest} (epsilon charged to the policy {rounded_up(epsilon)} at delta {budget.delta:g})"


def _counted(spending: Spending) -> Iterator[str]:
    """Lines on what each filter has counted; the one with more left is the one that counts."""
    filters, shares = spending.filter, spending.shares
    if filters is None or shares is None:
        return
    spent = f"{spending.divergence:.4g} of {spending.level:.4g} at order {filters.order:g}"
    yield f"as Renyi divergence {spent}: {_percent(shares[0])}"
    level = math.sqrt(filters.gaussian.level)
    mu = math.sqrt(spending.total.squared)
    yield f"as Gaussian privacy mu {mu:.4g} of {level:.4g}: {_percent(shares[1])} of its square"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share <= 1 else "more than all"
