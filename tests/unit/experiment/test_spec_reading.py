"""Specs: what is accepted, and one clear line for what is not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import gossamer as gs
import gossamer.deployment.owner.policy  # its settings are among those that are looked at
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.specs.spec_file import override, parse_spec, read_spec, read_text, write_spec
from gossamer.mistakes import TRUTH_VALUE, place
from gossamer.privacy.clipping import FixedClip, QuantileClip, StageClip
from gossamer.section import Section

PRIVATE = {"budget": {"epsilon": 5}}


def spec(**sections: object) -> gs.Experiment:
    return parse_spec({**PRIVATE, **sections})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"algoritm": "gossip"}, "unknown key algoritm; did you mean algorithm?"),
        ({"algorithm": {"name": "gossip", "nodez": 3}}, "unknown key algorithm.nodez; did you mean nodes?"),
        ({"algorithm": "gosip"}, "algorithm: unknown name 'gosip'; did you mean gossip?"),
        ({"algorithm": {"name": "gossip", "topology": "rign"}}, "algorithm.topology: unknown name 'rign'"),
        ({"algorithm": {"name": "gossip", "topology": {"name": "grid", "row": 2}}}, "did you mean rows?"),
        ({"partition": {"name": "dirichlet", "alfa": 1}}, "unknown key partition.alfa; did you mean alpha?"),
        ({"speeds": {"scenario": "one_slo"}}, "speeds.scenario: unknown name 'one_slo'; did you mean one_slow?"),
        ({"algorithm": {"nodes": 3}}, "algorithm.name is missing; expected one of gossip, allreduce"),
        ({"privacy": {"sampling": "shuffled"}}, "privacy.sampling: unknown name 'shuffled'"),
        (
            {"privacy": {"clip": -1}},
            "privacy.clip.bound: input should be greater than or equal to 1e-09, found -1",
        ),
        ({"privacy": {"clip": float("nan")}}, "privacy.clip.bound: input should be a finite number"),
        ({"privacy": {"sensitivity": 1e-4}}, "unknown key privacy.sensitivity"),
        *(
            (
                {"deployment": {"release_deadline": value}},
                f"release_deadline: expected auto, on, off, {rest}",
            )
            for value, rest in (
                (0, "or seconds above 0 and at most 86400, found 0"),
                (float("nan"), "or seconds above 0 and at most 86400, found nan"),
                ("soon", "or seconds above 0 and at most 86400, found 'soon'"),
                (1e9, "or seconds above 0 and at most 86400, found 1000000000.0"),
                (None, "or seconds above 0 and at most 86400"),
                (10**400, "or seconds above 0 and at most 86400, found 1000"),
            )
        ),
        ({"dataset": {"name": "d", "path": "d.csv", "person": ""}}, "dataset.person: string should have at least 1"),
        ({"dataset": {"name": "d", "path": "d.csv", "owner": ""}}, "dataset.owner: string should have at least 1"),
        ({"budget": {"epsilon": True}}, "budget.epsilon: input should be a number, found true"),
        ({"budget": {"epsilon": [True, 2]}}, "budget.epsilon: input should be a number, found [true, 2]"),
        ({"seed": False}, "seed: input should be a number, found false"),
        ({"privacy": {"clip": True}}, "privacy.clip.bound: input should be a number, found true"),
        (
            {"dataset": {"name": "d", "path": "d.csv", "labels": [True, False]}},
            "dataset.labels: input should be a number, or a text in quotes, found [true, false]",
        ),
        ({"algorithm": {"name": "graph_federated", "masking": 3}}, "masking: expected keys with their values, found 3"),
        ({"budget": {"epsilon": 0}}, "budget.epsilon: input should be greater than 0, found 0"),
        ({"budget": {"epsilon": [1, -1]}}, "budget.epsilon.1: input should be greater than 0, found -1"),
        ({"privacy": {"clip": "quantil"}}, "privacy.clip: unknown name 'quantil'; did you mean quantile?"),
        ({"privacy": {"mechanism": "l2_laplace", "epsilon": -1}}, "privacy.epsilon: input should be greater than 0"),
        ({"privacy": {"mechanism": "l2_laplace", "noise_multiplier": 1}}, "noise_multiplier is for gaussian noise"),
        ({"privacy": {"epsilon": 1}}, "epsilon is that of one release of l2_laplace"),
        ({"privacy": {"norm": "exponential"}}, "norm and noise_scope are for l2_laplace"),
        (
            {"privacy": {"mechanism": "l2_laplace", "clip": "quantile"}},
            "the quantile policy counts with gaussian noise",
        ),
        ({"privacy": {"mechanism": "l2_laplace", "norm": "exponential", "epsilon": 1}}, "meet no budget"),
        ({"algorithm": {"name": "mapa", "kappa": 1.5}}, "algorithm.kappa: input should be less than 1, found 1.5"),
        ({"algorithm": {"name": "mapa", "reduction": 0}}, "algorithm.reduction: input should be greater than 0"),
        ({"algorithm": {"name": "csgd", "nodes": 3}}, "algorithm: csgd is centralised, so nodes must be 1, found 3"),
        ({"algorithm": "asgd"}, "asgd adds no noise: say privacy: none, or take audp"),
        ({"algorithm": {"name": "audp", "staleness": {"on_stale": "wait"}}}, "on_stale: wait needs a bound"),
        ({"budget": {"epsilon": 1, "delta": 1}}, "budget.delta: input should be less than 1"),
        ({"privacy": "none"}, "privacy: none meets no budget"),
        ({"budget": None}, "give a budget, or privacy.noise_multiplier, or say privacy: none"),
        ({"stop": {"accuracy": 0.9}}, "stop.accuracy depends on data"),
        ({"objective": {"name": "softmax", "module": "a:B"}}, "found both 'softmax' and 'a:B'"),
        ({"faults": {"absences": [{"node": 1, "start": 5, "end": 5}]}}, "end must come after start"),
        (
            {"faults": {"absences": [{"node": 1, "start": 1, "end": 9}, {"node": 1, "start": 5}]}},
            "node 1 is away twice at virtual second 5",
        ),
        ({"links": {"partitions": [{"start": 2, "end": 1, "group": [0]}]}}, "end must come after start"),
        ({"speeds": {"seconds": float("inf")}}, "speeds.seconds: input should be a finite number"),
        ({"algorithm": {"name": "gossip", "learning_rate": float("inf")}}, "finite number"),
        ({"stop": {"accuracy": 0.9, "updates": 9}, "evaluation": "off"}, "stop.accuracy needs evaluation"),
        ({"partition": {"name": "sizes", "sizes": [-1]}}, "partition.sizes.0"),
        ("gossip", "expected sections such as dataset: and algorithm:"),
        (
            {"algorithm": {"name": "fedavg", "learning_rate": {"schedule": "cosine", "initial": 1, "total": 3}}},
            "algorithm.learning_rate: expected one number, as this rate stays what it is, found schedule: cosine; give",
        ),
        (
            {"algorithm": {"name": "fedasync", "local_learning_rate": {"schedule": "constant", "initial": 1}}},
            "algorithm.local_learning_rate: expected one number, as this rate stays what it is, found schedule: con",
        ),
        (
            {"personalisation": {"steps": 3, "learning_rate": {"initial": 1}}},
            "personalisation.learning_rate: expected one number, as this rate stays what it is, found keys with their",
        ),
        ({"algorithm": {"name": "fedavg", "timeout": [1]}}, "timeout: input should be a valid number, found [1]"),
        (
            {"algorithm": {"name": "gossip", "learning_rate": {"schedule": "cosine", "initial": 1}}},
            "algorithm.learning_rate.total is missing: expected a number, found {schedule: cosine, initial: 1}; add",
        ),
        (
            {"personalisation": {}},
            "personalisation.steps is missing: expected a whole number, found nothing; add",
        ),
        (
            {"algorithm": {"name": "fedasync", "staleness_weight": 1.5}},
            "staleness_weight: expected constant, hinge, polynomial, or one of them with its keys, found 1.5; name one",
        ),
        ({"algorithm": {"name": "gossip", "learning_rate": [1]}}, "expected keys with their values, found [1]"),
        ({"algorithm": {"name": "fedavg", "clients": 3}}, "unknown key algorithm.clients; did you mean nodes?"),
        ({"algorithm": {"name": "fedbuff", "clients": 3}}, "unknown key algorithm.clients; did you mean nodes?"),
        ({"algorithm": {"name": "fedavg", "fraction_fit": 0.1}}, "did you mean clients_per_round?"),
        ({"algorithm": {"name": "fedbuff", "rounds": 3}}, "algorithm.rounds; did you mean updates_per_node?"),
        ({"algorithm": {"name": "fedbuff", "num_rounds": 3}}, "num_rounds; did you mean updates_per_node?"),
        ({"algorithm": {"name": "fedavg", "num_rounds": 3}}, "num_rounds; did you mean rounds?"),
        ({"algorithm": {"name": "fedprox", "nodes": 3}}, "unknown name 'fedprox'; take fedavg with proximal: MU"),
        ({"algorithm": "Fed-Prox"}, "algorithm: unknown name 'Fed-Prox'; take fedavg with proximal: MU"),
        ({"partition": "fedprox"}, "partition: unknown name 'fedprox'; expected one of"),
        *(
            ({"algorithm": {"name": "fedavg", key: 1.1e6}}, f"{key}: input should be less than or equal to 1000000")
            for key in ("learning_rate", "local_learning_rate")
        ),
        (
            {"compute": {"rounding": "exact", "strategy": "vmap"}},
            "compute: strategy: vmap rounds a gradient by what is computed beside it, which rounding: exact rules out; "
            "choose strategy: auto",
        ),
        (
            {"personalisation": {"steps": 3, "learning_rate": 1e300}},
            "personalisation.learning_rate: input should be less than or equal to 1000000",
        ),
    ],
)
def test_a_mistake_gets_one_line_that_names_the_key(content: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**PRIVATE, **content} if isinstance(content, dict) else content)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_section_may_be_a_bare_name() -> None:
    assert spec(dataset="digits", algorithm="allreduce", partition="iid") == spec(
        dataset={"name": "digits"}, algorithm={"name": "allreduce"}, partition={"name": "iid"}
    )
    assert parse_spec({"privacy": "none"}).privacy.mechanism == "none"


def test_the_python_object_and_the_yaml_say_the_same() -> None:
    by_hand = gs.Experiment(
        dataset="digits",
        algorithm=gs.Gossip(topology="complete", nodes=5, learning_rate=0.25),
        budget=gs.Budget(epsilon=5),
    )
    text = "algorithm: {name: gossip, topology: complete, nodes: 5, learning_rate: 0.25}\nbudget: {epsilon: 5}\n"
    assert parse_spec(yaml.safe_load(text)) == by_hand


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    rate = {"schedule": "step", "initial": 0.4, "epochs": [160, 240]}
    experiment = spec(algorithm={"name": "gossip", "learning_rate": rate}, speeds={"scenario": "random_slow"})
    path = tmp_path / "spec.yaml"
    path.write_text(write_spec(experiment))
    assert read_spec(path) == experiment


def test_numbers_may_be_written_as_yaml_misreads_them(tmp_path: Path) -> None:
    """YAML 1.1 takes 1e-4 for a string."""
    path = tmp_path / "spec.yaml"
    path.write_text("budget: {epsilon: 5, delta: 1e-4}\n")
    assert read_spec(path).budget == gs.Budget(epsilon=5, delta=1e-4)


def test_overrides_reach_into_bare_names() -> None:
    content = override({"algorithm": "gossip", "privacy": "gaussian"}, ["algorithm.nodes=3", "privacy.clip=0.5"])
    assert content == {
        "algorithm": {"name": "gossip", "nodes": 3},
        "privacy": {"mechanism": "gaussian", "clip": 0.5},
    }


FEDAVG = {"name": "fedavg", "nodes": 6, "rounds": 7, "batch_size": 128, "local_steps": 2, "local_learning_rate": 0.2}


def test_another_algorithm_keeps_the_keys_that_both_have_and_names_the_others() -> None:
    """Batches of 128 stay such: with those by default, 32, a run of as many passes has four times the updates."""
    spec = yaml.safe_dump({**PRIVATE, "algorithm": {**FEDAVG, "timeout": 9}})
    with pytest.warns(RunWarning) as told:
        found = read_text(spec, ["algorithm=gossip"]).algorithm
    assert (found.name, found.nodes, found.batch_size) == ("gossip", 6, 128)
    assert [str(one.message) for one in told] == [
        "algorithm=gossip leaves behind what the spec says of fedavg: local_learning_rate, local_steps, rounds, "
        "timeout; the other keys stay"
    ]
    found = read_text(spec, ["algorithm=fedavg"]).algorithm  # the same name is no other
    assert (found.rounds, found.timeout) == (7, 9)
    left = "algorithm=fedbuff leaves behind what the spec says of fedavg: rounds, timeout; "
    with pytest.warns(RunWarning, match=left):
        found = read_text(spec, ["algorithm.batch_size=50", "algorithm=fedbuff"]).algorithm
    assert (found.batch_size, found.local_steps, found.local_learning_rate) == (50, 2, 0.2)
    spec = yaml.safe_dump({**PRIVATE, "algorithm": {"name": "gossip", "updates_per_node": 300, "nodes": 6}})
    with pytest.warns(
        RunWarning, match="algorithm=fedavg leaves behind what the spec says of gossip: updates_per_node;"
    ):
        assert read_text(spec, ["algorithm=fedavg"]).algorithm.nodes == 6  # which ends after rounds


@pytest.mark.parametrize(
    ("section", "setting", "stays", "behind"),
    [
        ({"objective": {"name": "softmax", "l2": 0.1}}, "objective=hinge", {"name": "hinge", "l2": 0.1}, ""),
        ({"objective": {"module": "a:B", "l2": 0.1}}, "objective=mlp", {"name": "mlp", "l2": 0.1}, ": module; the "),
        (
            {"privacy": {"mechanism": "l2_laplace", "epsilon": 0.1, "clip": 3.0, "noise_secret": "reproducible"}},
            "privacy=gaussian",
            {"mechanism": "gaussian", "clip": 3.0, "noise_secret": "reproducible"},
            "privacy=gaussian leaves behind what the spec says of l2_laplace: epsilon; the other keys stay",
        ),
        ({"privacy": {"clip": 3.0}}, "privacy=none", "none", "privacy=none leaves behind what the spec says: clip$"),
        (
            {"dataset": {"name": "mine", "path": "mine.csv", "target": "y", "task": "classification"}},
            "dataset=digits",
            "digits",
            "dataset=digits leaves behind what the spec says of mine: path, target$",
        ),
        (
            {"partition": {"name": "dirichlet", "alpha": 0.1}},
            "partition=iid",
            "iid",
            "partition=iid leaves behind what the spec says of dirichlet: alpha$",
        ),
        ({"evaluation": {"name": "on", "nodes": 2}}, "evaluation=off", {"name": "off", "nodes": 2}, ""),
        (
            {"algorithm": {"name": "gossip", "topology": {"name": "regular", "degree": 4}}},
            "algorithm.topology=ring",
            {"name": "gossip", "topology": "ring"},
            r"algorithm\.topology=ring leaves behind what the spec says of regular: degree$",
        ),
    ],
)
def test_another_name_of_any_section_names_what_it_leaves_behind(
    section: dict[str, Any], setting: str, stays: Any, behind: str
) -> None:
    name = next(iter(section))
    with nullcontext() if not behind else pytest.warns(RunWarning, match=behind):
        assert override(section, [setting])[name] == stays


def test_an_override_of_the_algorithms_name_is_one_of_the_algorithm() -> None:
    """Keys that both have stay as they are; a mistake in the spec stays one."""
    content = {**PRIVATE, "algorithm": {"name": "fedbuff", "nodes": 20, "buffer": 4, "staleness_exponent": 1}}
    with pytest.warns(RunWarning, match=r"algorithm=fedavg leaves behind what the spec says of fedbuff: buffer, stal"):
        found = read_text(yaml.safe_dump(content), ["algorithm.name=fedavg", "algorithm.rounds=3"]).algorithm
    assert (found.name, found.nodes, found.rounds) == ("fedavg", 20, 3)
    content["algorithm"] = {"name": "fedbuff", "nodes": 20, "buffr": 4}
    with pytest.raises(SpecError, match=r"unknown key algorithm\.buffr"):
        read_text(yaml.safe_dump(content), ["algorithm.name=fedavg"])
    assert read_text("algorithm: fedbuff\nprivacy: none", ["algorithm.name=fedavg"]).algorithm.name == "fedavg"


def test_an_override_of_a_section_that_is_left_out_keeps_its_default_name() -> None:
    assert parse_spec(override(PRIVATE, ["algorithm.nodes=3"])) == spec(algorithm={"name": "gossip", "nodes": 3})


def test_yaml_reads_off_as_a_truth_value_and_an_empty_section_as_nothing() -> None:
    content = yaml.safe_load("evaluation: off\nstop:\nlinks: null\nbudget: {epsilon: 5}\n")
    assert parse_spec(content) == spec(evaluation="off")


def test_a_learning_rate_may_be_written_as_yaml_misreads_it() -> None:
    content = yaml.safe_load("{algorithm: {name: gossip, learning_rate: 1e-2}, budget: {epsilon: 5}}")
    assert parse_spec(content).algorithm.learning_rate.at(0) == 0.01


def kinds(section: type[Section] = Section) -> list[type[Section]]:
    """All settings there are, of specs and of policies."""
    return [found for kind in section.__subclasses__() for found in (kind, *kinds(kind))]


def takes(schema: Any) -> set[str]:
    """What a value, or an item of it, may be by its JSON schema; `on` and `off` are texts that YAML reads otherwise."""
    if isinstance(schema, list):
        return {kind for item in schema for kind in takes(item)}
    inner = {kind for key in ("anyOf", "items", "prefixItems") if key in schema for kind in takes(schema[key])}
    said = [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]
    options = {"boolean" if option in ("on", "off") else type(option).__name__ for option in said}
    return inner | options | {schema.get("type", "")}


def test_no_number_takes_a_truth_value() -> None:
    numbers = [
        (kind, name)
        for kind in kinds()
        if kind.__module__.startswith("gossamer.")
        for name, schema in kind.model_json_schema(by_alias=False).get("properties", {}).items()
        if takes(schema) & {"number", "integer", "int"} and "boolean" not in takes(schema)
    ]
    names = {name for _, name in numbers}
    assert len(numbers) > 100
    assert {"epsilon", "nodes", "loss", "owners", "smallest_noise_multiplier", "degree"} <= names
    for kind, name in numbers:
        for value in (True, False, [1, True]):
            with pytest.raises(ValidationError) as caught:
                kind.model_validate({name: value})
            assert (name,) in [place(problem) for problem in caught.value.errors() if problem["type"] == TRUTH_VALUE]


@pytest.mark.parametrize("setting", ["nodes", "=3", " =3"])
def test_an_override_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(SpecError, match="expected key=value"):
        override({}, [setting])


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("seed: 1\nbudget: {epsilon: 5}\nseed: 2\n")
    with pytest.raises(SpecError, match=r"twice\.yaml, line 3: 'seed' is given twice, first in line 1"):
        read_spec(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1,\nb: 2", "line 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", "give a budget"),
        (b"- 1\n- 2\n", "expected sections"),
    ],
)
def test_files_that_are_no_specs(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        read_spec(path)


def test_a_missing_spec_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot read the spec: No such file"):
        read_spec(tmp_path / "nowhere.yaml")


def test_relative_paths_are_taken_from_the_specs_folder(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("privacy: none\ndataset: {name: mine, path: mine.csv}\nspeeds: {name: file, path: times.csv}\n")
    experiment = read_spec(path)
    assert experiment.dataset.path == (tmp_path / "mine.csv").resolve()
    assert experiment.speeds.path == (tmp_path / "times.csv").resolve()


def test_noise_clips_at_one_unless_told_and_no_noise_does_not_clip() -> None:
    assert spec().privacy.clip == FixedClip(bound=1.0)
    assert spec(privacy="gaussian").privacy.clip == FixedClip(bound=1.0)
    assert spec(algorithm="mapa").privacy.clip == StageClip()
    assert spec(algorithm="audp").privacy.clip == QuantileClip()
    assert spec(algorithm="audp", privacy="l2_laplace").privacy.clip == FixedClip(bound=1.0)
    assert parse_spec({"privacy": "none"}).privacy.clip is None
    assert parse_spec({"privacy": {"mechanism": "none", "clip": 2}}).privacy.clip == FixedClip(bound=2)
    assert spec(privacy={"clip": None}).privacy.clip == FixedClip(bound=1.0)


def test_the_relation_goes_with_the_sampling_unless_it_is_given() -> None:
    assert spec().privacy.relation is gs.NeighboringRelation.ADD_OR_REMOVE_ONE
    assert spec(privacy={"sampling": "fixed_size"}).privacy.relation is gs.NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize(("text", "seconds"), [("off", float("inf")), ("'off'", float("inf")), ("90", 90.0)])
def test_a_limit_alone_can_be_switched_off_without_quotes(text: str, seconds: float) -> None:
    found = read_text(f"algorithm: gossip\nprivacy: none\ndeployment: {{alone_after: {text}}}\n")
    assert found.deployment.alone_seconds == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: gs.Gossip(topolgy="ring"), "unknown key topolgy; did you mean topology?"),  # type: ignore[call-arg]
        (lambda: gs.Gossip(lr=0.1), "unknown key lr; did you mean learning_rate?"),  # type: ignore[call-arg]
        (lambda: gs.Gossip(topology="rng"), "topology: unknown name 'rng'; did you mean ring?"),
        (
            lambda: gs.Gossip(8, "ring"),  # type: ignore[misc]
            "expected keyword arguments alone, found 8, 'ring'; write each with its key, of privacy_unit, nodes, "
            "learning_rate, optimizer, batch_size and 7 more",
        ),
        (
            lambda: gs.Budget(object),
            "expected keyword arguments alone, found <class 'object'>; write each with its key, of epsilon, delta, "
            "rows_per_person",
        ),  # type: ignore[misc,call-arg]
        (lambda: gs.Gossip(nodes="x"), "nodes: input should be a whole number, such as 1000, found 'x'"),
        (lambda: gs.Budget(), "epsilon is missing: expected a number, found nothing; add epsilon"),  # type: ignore[call-arg]
        (lambda: gs.Experiment(algoritm="gossip"), "unknown key algoritm; did you mean algorithm?"),
        (lambda: gs.Experiment(algorithm={"name": "gosip"}), "algorithm: unknown name 'gosip'; did you mean gossip?"),
    ],
)
def test_python_is_told_what_files_are_told(given: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        given()
    assert str(caught.value) == message


def test_a_wrong_name_of_the_library_has_the_nearest_right_one() -> None:
    with pytest.raises(AttributeError, match=r"module 'gossamer' has no attribute 'Gosip'; did you mean Gossip\?"):
        gs.Gosip  # noqa: B018
