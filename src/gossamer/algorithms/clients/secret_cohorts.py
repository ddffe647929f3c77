"""Settings that do not go with cohorts that a server draws in secret.

What `sides.client_plans` proves of them is proved of sums of all who were drawn, and of as many sums as planned. How
long a round takes depends on who is in it. So whoever is cut off by the clock, or away by it, is missing for a reason
that depends on who was drawn before; and a run that ends by the clock shows in how many sums there are how long they
took. Such cohorts amplify nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gossamer.algorithms.problem import Spec


def shown(spec: Spec, timeout: float | None) -> Iterator[str]:
    """The settings of a private run by which secret coins decide who is missing in a sum, or how many sums there are.

    Parameters
    ----------
    spec : Spec
        Of the run.
    timeout : float or None
        Seconds after which a round goes on without those who have not answered.

    Yields
    ------
    str
        A line for each.
    """
    if timeout is not None:
        yield (
            "algorithm.timeout: who is too late in a round depends on who was drawn before, and secret cohorts must "
            "not show it; leave it out, or take cohorts: public"
        )
    if spec.disturbed:
        yield (
            "algorithm.cohorts: secret needs all clients there whenever they are drawn, found faults.absences, "
            "faults.availability or links.partitions; leave these out, or take cohorts: public"
        )
    if spec.stop.epochs is not None:
        yield (
            "stop.epochs: when clients have had enough shows how often they were drawn; leave it out with cohorts: "
            "secret, and say rounds"
        )
    if spec.ends_by_clock:
        yield (
            "stop: a run that ends by the clock shows how long its rounds took, and so who was in them; with cohorts: "
            "secret leave out stop.virtual_seconds, and evaluation.every_seconds where stop.accuracy is said"
        )
