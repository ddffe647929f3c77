"""``gossamer up``: a whole federation on one machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.commands import FileName, add_spec, read_experiment, settings_of
from gossamer.cli.logs import LOG, add_live, add_log, door_for, live, logged
from gossamer.cli.printing import epsilon, print_json, say, table, warn, wrapped
from gossamer.errors import GossamerError, SpecError
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.experiment.specs.spec import Experiment
    from gossamer.report.serving import Door


def up_options(command: argparse.ArgumentParser) -> None:
    """Deal the data of a spec out to its nodes, found a federation of them, and run each on this machine.

    Each is a process of its own, and they meet over a broker here. For trying out: parties of real federations hold
    their own data.
    """
    add_spec(command)
    command.add_argument(
        "--out",
        action=FileName,
        help="folder of the federation (default: runs/<spec>-up-seed<seed>,<what --set says>)",
    )
    command.add_argument("--broker", choices=("embedded", "mosquitto"), default="embedded", help="default: embedded")
    command.add_argument(
        "--trace", action="store_true", help="each party also writes every event and effect to trace.bin"
    )
    add_live(command, "show the parties' report to a browser on this machine while they run")
    add_log(command)
    # Not offered: who knows it from other commands is told why a federation has none.
    command.add_argument("--reproducible", action="store_true", help=argparse.SUPPRESS)
    command.set_defaults(command=up_command)


def up_command(options: argparse.Namespace) -> int:
    """Run the federation, and say what came of it."""
    experiment = read_experiment(options)
    out = options.out or default_folder(options.spec, "up", experiment.seed, settings_of(options))
    with logged(options, out.name), door_for(options) as door:
        return _up(options, experiment, out, door)


def _up(options: argparse.Namespace, experiment: Experiment, out: Path, door: Door | None) -> int:
    # Both need what is optional, so they are imported only here.
    from gossamer.cli.federation.local_federation import STATE, LocalFederation
    from gossamer.deployment.founding.federation_spec import left_out
    from gossamer.experiment.results.observing import fit_warnings
    from gossamer.experiment.results.results_folder import to_json
    from gossamer.experiment.results.summarising import all_finite, card_of, initial_loss, troubles, worse
    from gossamer.files import write_own
    from gossamer.runtimes.mqtt.broker import EmbeddedBroker, Mosquitto
    from gossamer.trained.card import ARRAYS, saved
    from gossamer.trained.card import FILE as CARD

    broker = EmbeddedBroker() if options.broker == "embedded" else Mosquitto()
    with broker:
        try:
            federation = LocalFederation.found(experiment, out, broker.url)
        except SpecError as error:
            raise SpecError(f"{options.spec}: {error}") from None
        _tell(f"{len(federation.members)} parties in {out}, over {broker.url}")
        _tell(f"plan: {federation.plan}")
        warn([*left_out(experiment), *federation.plan.guarantee.remarks])
        # Many processes on one machine are slow to answer each other, and heartbeats are a twentieth of this apart.
        parties = len(federation.members)
        more = ("--gone-after", str(30 + 2 * parties), "--wait", str(60 + parties))
        traced = {name: ("--trace", str(out / name / "trace.bin")) for name in federation.members if options.trace}
        with live(door, [out / name / STATE for name in federation.members]):
            found = federation.run(_tell, more={n: (*more, *traced.get(n, ())) for n in federation.members})
    document: dict[str, Any] = {"folder": str(out), "metrics": dict(found.metrics), "parties": dict(found.summaries)}
    ended = worse(initial_loss(federation.prepared), found.metrics["test_loss"]) if found.metrics else {}
    warn([*troubles(ended, experiment.private), *fit_warnings(found.metrics)])
    if found.model is not None:
        card = card_of(federation.prepared)
        write_own(out / CARD, card.to_json(indent=2) + "\n")
        write_own(out / ARRAYS, saved(found.model, card))
    document |= ended | {"failed": dict(found.failed)}
    write_own(out / "summary.json", to_json(all_finite(document), indent=2) + "\n")
    report = _report(document)
    write_own(out / "summary.txt", report.lstrip("\n") + "\n")
    if options.json:
        print_json(document)
    else:
        print(report)
    for name, why in found.failed.items():
        say(f"gossamer: {name} {why}")
        LOG.error("%s failed", name)
    return GossamerError.exit_code if found.failed else 0


def _tell(line: str) -> None:
    """Say a line, and log it: none has a party's last words, which may quote its data."""
    say(line)
    LOG.info("%s", line)


def _report(document: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [("party", "role", "finished", "releases", "epsilon planned")]
    rows += [_row(summary) for summary in document["parties"].values()]
    rows += [(name, "-", "failed", "-", "-") for name in document["failed"]]
    metrics = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in document["metrics"].items())
    metrics = metrics or "none, since not every party has finished"
    privacy = [summary["privacy"] for summary in document["parties"].values()]
    said = dict.fromkeys(line for found in privacy for line in found.get("said", ()))
    guarantees = "\n".join(wrapped(text) for text in said)
    return f"\n{table(rows)}\n\nmodel of the run: {metrics}\n\n{guarantees}\n\nFolder: {document['folder']}"


def _row(summary: Mapping[str, Any]) -> tuple[str, ...]:
    privacy = summary["privacy"]
    return (
        summary["node"],
        summary["role"],
        summary["finished"] or "-",
        str(privacy.get("releases", "-")),
        epsilon(privacy["epsilon"]) if "epsilon" in privacy else "-",
    )
