"""Words of errors about specs: the nearest right name, what a key takes, and what was found instead."""

from __future__ import annotations

import json
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gossamer.errors import did_you_mean
from gossamer.section import kinds_of

_SCHEDULE = "algorithm.learning_rate: {schedule: cosine, initial: 0.1, total: 100}"

_WRITTEN: Mapping[tuple[str, ...], str] = {
    ("algorithm.learning_rate", "algorithm.step_size"): (
        "lr learning_rate eta step_size base_lr server_lr server_learning_rate global_lr"
    ),
    (_SCHEDULE,): (
        "scheduler lr_scheduler learning_rate_scheduler schedule lr_schedule lr_decay warmup warmup_steps cosine "
        "step_lr gamma annealing"
    ),
    (
        "algorithm.optimizer: {name: momentum, momentum: 0.9}",
        "algorithm.server_optimizer: {name: momentum, momentum: 0.9}",
    ): "momentum nesterov server_momentum heavy_ball",
    ("algorithm.optimizer: adam", "algorithm.server_optimizer: adam"): "adam betas beta1 beta2 adamw amsgrad",
    ("algorithm.optimizer", "algorithm.server_optimizer"): "optimizer optim opt server_optimizer",
    ("algorithm.local_learning_rate", "algorithm.learning_rate"): "client_lr local_lr client_learning_rate",
    ("algorithm.local_epochs",): "local_epochs client_epochs epochs_per_round",
    ("algorithm.local_steps",): "local_steps client_steps local_updates",
    ("algorithm.proximal",): "mu proximal_mu prox fedprox_mu",
    ("algorithm.nodes", "algorithm.agents"): (
        "nodes num_clients n_clients clients total_clients num_nodes n_nodes num_workers workers world_size "
        "num_supernodes num_parties parties"
    ),
    ("algorithm.clients_per_round", "algorithm.agents_sampled"): (
        "clients_per_round fraction fraction_fit participation participation_rate min_fit_clients sample_clients"
    ),
    ("algorithm.rounds", "algorithm.updates_per_node"): (
        "rounds num_rounds n_rounds num_server_rounds communication_rounds comm_rounds global_epochs global_rounds"
    ),
    ("stop.epochs",): "epochs num_epochs n_epochs max_epochs max_epoch",
    ("stop.updates",): "steps num_steps max_steps iterations num_iterations max_iter n_iter updates",
    ("stop.virtual_seconds",): "time_limit max_time timeout duration",
    ("algorithm.batch_size",): (
        "batch_size batch bs minibatch_size mini_batch_size train_batch_size local_batch_size lot_size "
        "expected_batch_size sample_rate sampling_rate sampling_probability"
    ),
    ("algorithm.topology",): "topology graph network_topology neighbours neighbors adjacency",
    ("algorithm.masking",): "secure_aggregation secagg masking secure_sum",
    ("algorithm.name",): "strategy aggregator aggregation method",
    ("privacy.noise_multiplier",): "noise_multiplier sigma noise noise_scale dp_noise",
    ("privacy.clip",): (
        "clip max_grad_norm clip_norm clipping_norm l2_norm_clip max_norm clipping_threshold grad_clip "
        "gradient_clipping clipping clipping_bound"
    ),
    ("privacy.mechanism",): "mechanism dp_mechanism noise_type",
    ("budget.epsilon",): "epsilon target_epsilon eps max_epsilon privacy_budget",
    ("budget.delta",): "delta target_delta",
    ("privacy: none",): "disable_dp no_dp dp use_dp differential_privacy",
    ("objective.l2",): "weight_decay l2_reg l2_regularization regularization reg_lambda wd l2_penalty l2",
    ("objective.pretrained",): (
        "pretrained checkpoint ckpt init initial initial_model init_model initial_weights init_weights "
        "initial_parameters warm_start resume resume_from load_from pretrained_weights model_path"
    ),
    ("objective.name", "objective.module"): "model net network architecture arch backbone module",
    ("objective.loss",): "loss loss_fn criterion loss_function",
    ("dataset.path",): "data data_path data_dir train_data train_path csv_path root",
    ("dataset.target",): "target label label_column target_column y_column",
    ("dataset.test_fraction",): "test_size test_split val_split validation_split val_fraction test_ratio",
    ("dataset.scale",): "normalize normalization standardize standardization scaler scaling scale",
    ("dataset.target_range",): "target_scale target_scaler y_range y_scale scale_target normalize_target",
    ("partition: {name: dirichlet, alpha: 0.5}",): "dirichlet alpha non_iid noniid split data_distribution",
    ("seed",): "random_seed random_state rng rng_seed manual_seed",
}
"""Keys here, of which an algorithm may have the first or another, and words for them elsewhere."""

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    word: written for written, words in _WRITTEN.items() for word in words.split()
}
"""A key of another framework -> what is written for it here."""
_ELSEWHERE = frozenset({"personalisation"})
"""Sections about something of their own, for which the run's keys are no advice."""


def meant(found: str, section: str, options: Collection[str]) -> str | None:
    """Return what is written here for a key that is not one of its section's; None if nobody knows.

    Parameters
    ----------
    found : str
        The key.
    section : str
        The section it stands in; empty at the top of a spec.
    options : collection of str
        The keys of that section.
    """
    known = SYNONYMS.get(found.lower().replace("-", "_"), ())
    if section in _ELSEWHERE:
        return None
    if section == "algorithm":
        known = tuple(one for one in known if not one.startswith("algorithm.") or key_of(one) in options)
    here = [one for one in known if one != f"{section}.{found}" and one != found]
    return here[0] if here else None


def key_of(written: str) -> str:
    """The key in its section: ``optimizer`` of ``algorithm.optimizer: adam``."""
    return written.partition(":")[0].partition(".")[2]


_KEYS: Mapping[str, tuple[str, ...]] = {
    "clients": ("nodes",),
    "num_clients": ("nodes",),
    "fraction": ("clients_per_round",),
    "fraction_fit": ("clients_per_round",),
    "min_fit_clients": ("clients_per_round",),
    "rounds": ("updates_per_node",),
    "num_rounds": ("rounds", "updates_per_node"),
    "epochs": ("local_epochs",),
    "lr": ("local_learning_rate", "learning_rate"),
    "client_learning_rate": ("local_learning_rate",),
    "server_learning_rate": ("learning_rate",),
    "mu": ("proximal",),
    "proximal_mu": ("proximal",),
    "buffer_size": ("buffer",),
}
"""Names of keys in other frameworks and papers, and the keys that are meant, of which a section may have some."""

_ALGORITHMS: Mapping[str, str] = {
    "fedprox": "fedavg with proximal: MU",
    "fedopt": "fedavg with server_optimizer",
    "fedadam": "fedavg with server_optimizer: adam",
    "fedavgm": "fedavg with server_optimizer: momentum",
    "fedsgd": "fedavg with local_steps: 1",
    "dpfedavg": "fedavg with noise_by: server",
    "secagg": "fedavg with masking: secure",
}
"""Names of algorithms that are settings of one here, in small letters without strokes."""

_KINDS: Mapping[Any, str] = {int: "a whole number", float: "a number", str: "a text", Path: "a file"}
_MOST = 60
"""Characters of what was found."""


def nearest_key(found: str, section: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown key of a ``section``.

    It names the key of ``options`` that is meant, what is written elsewhere for it, the nearest one, or all.
    """
    here = [key for key in _KEYS.get(found, ()) if key in options]
    if here:
        return f"; did you mean {here[0]}?"
    elsewhere = meant(found, section, options)
    return did_you_mean(found, options) if elsewhere is None else f"; here it is {elsewhere}"


def nearest_name(key: str, found: str, options: Sequence[str]) -> str:
    """The end of an error about an unknown name at ``key``: of an algorithm also what it is called here."""
    meant = _ALGORITHMS.get(found.lower().replace("-", "").replace("_", ""))
    return f"; take {meant}" if key == "algorithm" and meant else did_you_mean(found, options)


def expected_of(models: Iterable[type[BaseModel]], key: str) -> str:
    """Return what ``key`` takes, in words, in the settings that have it."""
    fields = [model.model_fields[key] for model in models if key in model.model_fields]
    names = [
        name
        for field in fields
        if typing.get_origin(field.annotation) is typing.Literal
        for name in typing.get_args(field.annotation)
    ]
    if names:
        return f"one of {', '.join(map(str, names))}"
    if any(typing.get_origin(field.annotation) in (tuple, list) for field in fields):
        return "a list"
    kinds = [_KINDS[kind] for field in fields for kind in kinds_of(field.annotation) if kind in _KINDS]
    return kinds[0] if kinds else "keys with their values"


def tags_of(models: Sequence[type[BaseModel]]) -> str:
    """Return the names by which kinds of settings are told apart; nothing where they are not, or there is one alone."""
    fields = [model.model_fields["name"] for model in models if "name" in model.model_fields]
    tags = [str(tag) for field in fields for tag in typing.get_args(field.annotation)]
    return ", ".join(tags) if len(models) > 1 else ""


def found_in(value: Any) -> str:
    """Return what was found, in short."""
    if value is None or value in ({}, []):
        return "nothing"
    if not isinstance(value, Mapping | list | tuple):
        return repr(value)
    text = json.dumps(value, default=str).replace('"', "")
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
