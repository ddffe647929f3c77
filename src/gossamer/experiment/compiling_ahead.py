"""Compiling a network's kernels while its data are read."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from gossamer.data.declared import declared_form
from gossamer.experiment.spec import Experiment
from gossamer.objectives.glm_losses import LOSSES
from gossamer.objectives.loss_settings import said_of


def compile_ahead(experiment: Experiment) -> None:
    """Start to compile what the network of ``experiment`` will ask for, where its examples' shape is known beforehand.

    Only for networks of the library: building one of a person's own would run that person's code a second time.
    Whatever goes wrong here goes wrong again where the network is built, and is said there.
    """
    settings = experiment.objective
    if settings.module is not None or settings.name is None or settings.name in LOSSES:
        return
    if experiment.compute.strategy not in ("auto", "compiled") or experiment.compute.device is not None:
        return
    with suppress(Exception):
        from gossamer.objectives.models import build_model
        from gossamer.objectives.torch_ahead import kernel_ahead

        form = declared_form(experiment.dataset)
        usual = "cross_entropy" if form.classes else "mse"
        loss = usual if settings.loss is None else said_of(settings.loss)
        if not isinstance(loss, str):  # there are no kernels for it
            return
        shape, outputs, name = form.shape, form.classes or 1, settings.name
        exact = experiment.compute.rounding == "exact"
        work = kernel_ahead(lambda: build_model(name, shape, outputs), shape, loss, exact)
        # No daemon: a compiler must not be cut off when the process ends.
        Thread(target=work, name="kernels ahead").start()
