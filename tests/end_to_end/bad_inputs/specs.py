"""Specs with sections and values that are not what they should be; and the same by ``--set``."""

from __future__ import annotations

from tests.end_to_end.bad_inputs.case import RUN, Case, accepted, checked

TYPES: tuple[tuple[str, str, str], ...] = (
    ("a list for a spec", "[1, 2]\n", "expected sections such as dataset: and algorithm:"),
    ("a number for a spec", "3\n", "expected sections such as dataset: and algorithm:, found 3"),
    ("a text for a spec", "digits\n", "expected sections such as dataset: and algorithm:"),
    ("nothing", "", "give a budget, or privacy.noise_multiplier, or say privacy: none"),
    ("a comment alone", "# nothing\n", "give a budget, or privacy.noise_multiplier, or say privacy: none"),
    ("dataset: a number", "dataset: 3\n", "dataset: expected keys with their values, found 3"),
    ("dataset: a list", "dataset: [digits]\n", "dataset: expected keys with their values"),
    ("dataset: true", "dataset: true\n", "dataset: expected keys with their values, found True"),
    ("algorithm: a number", "algorithm: 3\n", "algorithm: expected"),
    ("algorithm: a list", "algorithm: [gossip]\n", "algorithm: expected"),
    ("algorithm: no name", "algorithm: {nodes: 3}\n", "algorithm.name is missing"),
    ("algorithm: unknown", "algorithm: gosip\n", "did you mean gossip?"),
    ("algorithm: a list for a name", "algorithm: {name: [gossip]}\n", "algorithm: unknown name"),
    (
        "algorithm: a preset for another model",
        "algorithm: {name: mapa, paper: testbed}\nobjective: softmax\nprivacy: none\n",
        "algorithm.paper: testbed has constants for objective: cnn_mapa, found softmax; take that model, or leave",
    ),
    ("privacy: a number", "privacy: 3\n", "privacy: expected keys with their values, found 3"),
    ("privacy: a list", "privacy: [none]\n", "privacy: expected keys with their values"),
    ("privacy: an unknown law", "privacy: gausian\n", "did you mean gaussian?"),
    ("budget: a number", "budget: 3\n", "budget: expected keys with their values, found 3"),
    ("budget: a list", "budget: [3, 1.0e-5]\n", "budget: expected keys with their values"),
    ("budget: no epsilon", "budget: {delta: 1.0e-5}\n", "budget.epsilon is missing"),
    ("objective: a number", "objective: 3\n", "objective: expected"),
    ("objective: unknown", RUN + "objective: softmaks\n", "objective"),
    ("partition: a number", "partition: 3\n", "partition: expected"),
    ("partition: unknown", "partition: dirichlett\n", "did you mean dirichlet?"),
    ("speeds: a number", "speeds: 3\n", "speeds: expected"),
    ("speeds: unknown", "speeds: slow\n", "speeds"),
    ("links: a list", "links: [1]\n", "links: expected keys with their values"),
    (
        "links: an edge that the topology lacks",
        "algorithm: {name: gossip, nodes: 3, topology: line}\nprivacy: none\n"
        "links: {exceptions: [{edge: [0, 2], latency: 1}]}\n",
        "links.exceptions: nodes 0 and 2 do not talk to each other in this run of gossip",
    ),
    (
        "links: an edge between clients",
        "algorithm: {name: fedavg, nodes: 3}\nprivacy: none\nlinks: {exceptions: [{edge: [0, 1], latency: 1}]}\n",
        "links.exceptions: nodes 0 and 1 do not talk to each other in this run of fedavg",
    ),
    ("faults: a text", "faults: many\n", "faults: expected keys with their values"),
    ("stop: a number", "stop: 3\n", "stop: expected keys with their values, found 3"),
    ("stop: true", "stop: true\n", "stop: expected keys with their values, found True"),
    ("evaluation: a list", "evaluation: [1]\n", "evaluation: expected keys with their values"),
    ("compute: a text", "compute: fast\n", "compute: expected keys with their values"),
    (
        "compute: a truth value for a name",
        "compute: {engine: on}\n",
        "compute.engine: expected one of simulator, compiled, found the truth value true",
    ),
    (
        "compute: a device of no kind",
        "compute: {device: tpu}\n",
        "compute.device: unknown name 'tpu'; did you mean cpu?",
    ),
    ("compute: a precision and no device", "compute: {precision: tf32}\n", "precision: tf32 is for sums on a device"),
    ("compute: a device and exact", "compute: {device: cpu, rounding: exact}\n", "a device rounds a gradient by what"),
    ("compute: kernels on a device", "compute: {device: cpu, strategy: compiled}\n", "compiled is for processors"),
    (
        "compute: a short linear model",
        RUN + "compute: {device: cpu, precision: bfloat16}\n",
        "bfloat16 is for networks",
    ),
    ("seed: a text", "seed: abc\n", "seed: input should be a whole number, such as 1000, found 'abc'"),
    ("seed: a fraction", "seed: 1.5\n", "seed: input should be a valid integer"),
    ("seed: a list", "seed: [1]\n", "seed: input should be a valid integer"),
    ("seed: a date", "seed: 2020-01-01\n", "seed: input should be a valid integer"),
    ("seed: below zero", "seed: -1\n", "seed: input should be greater than or equal to 0"),
    ("an unknown section", "datset: digits\n", "unknown key datset; did you mean dataset?"),
    ("an unknown section with a number", "3: 4\n", "unknown key 3"),
    ("an unknown key", "dataset: {name: digits, tset_fraction: 0.1}\n", "did you mean test_fraction?"),
)
"""Wrong types of every section, and unknown names: whole specs."""

ALGORITHM: tuple[tuple[str, str, str], ...] = (
    ("nodes: true", "nodes: true", "algorithm.nodes: input should be a number, found true"),
    ("nodes: yes", "nodes: yes", "algorithm.nodes: input should be a number, found true"),
    ("nodes: off", "nodes: off", "algorithm.nodes: input should be a number, found false"),
    ("nodes: none", "nodes: none", "algorithm.nodes: input should be a whole number"),
    ("nodes: nothing", "nodes: ", "algorithm.nodes: input should be a valid integer, found nothing"),
    ("nodes: 0", "nodes: 0", "algorithm.nodes: input should be greater than"),
    ("nodes: -3", "nodes: -3", "algorithm.nodes: input should be greater than"),
    ("nodes: 2.5", "nodes: 2.5", "algorithm.nodes: input should be a valid integer"),
    ("nodes: .inf", "nodes: .inf", "algorithm.nodes: input should be a"),
    ("nodes: .nan", "nodes: .nan", "algorithm.nodes: input should be a"),
    ("nodes: 1e9", "nodes: 1e9", "algorithm.nodes: input should be a whole number, such as 1000, found '1e9'"),
    ("nodes: a list", "nodes: [3]", "algorithm.nodes: input should be a valid integer"),
    ("nodes: keys", "nodes: {n: 3}", "algorithm.nodes: input should be a valid integer"),
    ("nodes: more than examples", "nodes: 100000", "100,000"),
    ("nodes: 10**30", f"nodes: 1{'0' * 30}", "algorithm.nodes"),
    ("batch_size: 0", "batch_size: 0", "algorithm.batch_size: input should be greater than"),
    ("batch_size: more than there are", "batch_size: 100000", "batch_size"),
    ("learning_rate: nan", "learning_rate: .nan", "algorithm.learning_rate"),
    ("learning_rate: inf", "learning_rate: .inf", "algorithm.learning_rate"),
    ("learning_rate: -1", "learning_rate: -1", "algorithm.learning_rate.initial: input should be greater than"),
    ("learning_rate: on", "learning_rate: on", "algorithm.learning_rate.initial: input should be a number, found true"),
    ("learning_rate: a text", "learning_rate: fast", "algorithm.learning_rate"),
    ("updates_per_node: 0", "updates_per_node: 0", "algorithm.updates_per_node: input should be greater than"),
    (
        "updates_per_node: no",
        "updates_per_node: no",
        "algorithm.updates_per_node: input should be a number, found false",
    ),
    ("topology: a number", "topology: 3", "algorithm.topology"),
    ("topology: unknown", "topology: rign", "did you mean ring?"),
    ("topology: no file", "topology: {name: edges, path: nowhere.txt}", "nowhere.txt"),
    ("topology: p above 1", "topology: {name: erdos_renyi, p: 2}", "algorithm.topology.p: input should be less than"),
    ("lr", "lr: 0.1", "unknown key algorithm.lr; did you mean learning_rate?"),
    ("num_clients", "num_clients: 3", "unknown key algorithm.num_clients; did you mean nodes?"),
    ("a typing error", "bacth_size: 3", "unknown key algorithm.bacth_size; did you mean batch_size?"),
)
"""A key each of the algorithm; the rest of the spec is in order."""

SECTIONS: tuple[tuple[str, str, str], ...] = (
    ("epsilon: 0", "budget: {epsilon: 0, delta: 1.0e-5}", "budget.epsilon: input should be greater than 0"),
    ("epsilon: -1", "budget: {epsilon: -1, delta: 1.0e-5}", "budget.epsilon: input should be greater than 0"),
    ("epsilon: inf", "budget: {epsilon: .inf, delta: 1.0e-5}", "budget.epsilon: input should be a finite number"),
    ("epsilon: nan", "budget: {epsilon: .nan, delta: 1.0e-5}", "budget.epsilon: input should be a finite number"),
    ("epsilon: yes", "budget: {epsilon: yes, delta: 1.0e-5}", "budget.epsilon: input should be a number, found true"),
    ("epsilon: a text", "budget: {epsilon: small, delta: 1.0e-5}", "budget.epsilon: input should be a valid number"),
    (
        "delta: 0",
        "budget: {epsilon: 3, delta: 0}",
        "budget.delta: input should be greater than or equal to 1e-50, found 0",
    ),
    ("delta: 1", "budget: {epsilon: 3, delta: 1}", "budget.delta: input should be less than 1"),
    ("delta: 0.1", "budget: {epsilon: 3, delta: 0.1}", "delta"),
    ("delta: true", "budget: {epsilon: 3, delta: true}", "budget.delta: input should be a number, found true"),
    ("an epsilon out of reach", "budget: {epsilon: 1.0e-9, delta: 1.0e-9}", "budget"),
    ("test_fraction: 0", "dataset: {name: digits, test_fraction: 0}", "dataset.test_fraction: input should be greater"),
    ("test_fraction: 1", "dataset: {name: digits, test_fraction: 1}", "dataset.test_fraction: input should be less"),
    ("an unknown data set", "dataset: digtis", "digits"),
    ("a data set that is false", "dataset: no", "dataset: expected keys with their values, found False"),
    ("labels that YAML reads as true", "dataset: {name: digits, labels: [no, yes]}", "dataset.labels"),
    ("every_seconds: 0", "evaluation: {every_seconds: 0}", "evaluation.every_seconds: input should be greater than 0"),
    ("stop.updates: -1", "stop: {updates: -1}", "stop.updates: input should be greater than"),
    (
        "stop.updates: 1e9",
        "stop: {updates: 1000000000}",
        "stop.updates: input should be less than or equal to 100000000",
    ),
    ("stop.virtual_seconds: inf", "stop: {virtual_seconds: .inf}", "stop.virtual_seconds: input should be a finite"),
    ("an unknown stop", "stop: {update: 4}", "unknown key stop.update; did you mean updates?"),
    ("a drop rate above 1", "links: {loss: 2}", "links.loss"),
    ("an unknown link", "links: {latncy: 2}", "unknown key links.latncy"),
    (
        "a link of no node",
        "links: {exceptions: [{node: 3, latency: 1}]}",
        "links.exceptions: a node is a number below 3",
    ),
    ("a link of an unknown name", "links: {exceptions: [{node: node-1, latency: 1}]}", "links.exceptions.0.node"),
    (
        "a link below no node",
        "links: {exceptions: [{node: -1, latency: 1}]}",
        "links.exceptions.0.node: input should be",
    ),
    ("a link of nobody", "links: {exceptions: [{latency: 1}]}", "one node or one edge, found neither"),
    (
        "a link of a node and an edge",
        "links: {exceptions: [{node: 1, edge: [0, 1], latency: 1}]}",
        "one node or one edge, found both",
    ),
    ("a link to oneself", "links: {exceptions: [{edge: [1, 1], latency: 1}]}", "an edge joins two nodes, found node 1"),
    ("a link of three", "links: {exceptions: [{edge: [0, 1, 2], latency: 1}]}", "links.exceptions.0.edge"),
    (
        "a link like the others",
        "links: {exceptions: [{node: 1}]}",
        "a latency or a bandwidth of its own, found neither",
    ),
    (
        "a latency below zero",
        "links: {exceptions: [{node: 1, latency: -1}]}",
        "links.exceptions.0.latency: input should be greater than or equal to 0",
    ),
    (
        "a bandwidth of zero",
        "links: {exceptions: [{edge: [0, 1], bandwidth: 0}]}",
        "links.exceptions.0.bandwidth: input should be greater than 0",
    ),
    (
        "a slow node that is not there",
        "speeds: {scenario: {name: one_slow, node: 3}}",
        "speeds.scenario.node is a number from 0 to 2, found 3",
    ),
    ("a factor below zero", "speeds: {scenario: {name: one_slow, factor: -2}}", "input should be greater than 0"),
    ("no trace of speeds", "speeds: {name: file, path: nowhere.csv}", "nowhere.csv"),
    (
        "sizes that do not fit",
        "partition: {name: sizes, sizes: [1, 2]}",
        "the sizes partition names 2 sizes for 3 nodes",
    ),
    ("sizes below zero", "partition: {name: sizes, sizes: [-1, 2, 3]}", "partition.sizes"),
    ("10**18 seconds to sleep", "compute: {threads: 1000000000000000000}", "compute"),
    ("a model out of nowhere", "objective: {module: no.such:Module}", "no.such"),
    (
        "a module without a class",
        "objective: {module: os}",
        "one's own model is written 'package.module:Class', found 'os'",
    ),
    ("a module that is a file", "objective: {module: ../x.py}", "one's own model is written"),
    ("no pretrained model", "objective: {pretrained: nowhere.safetensors}", "nowhere.safetensors"),
)
"""Lines that are added to a spec in order."""

SETTINGS: tuple[tuple[str, str, str], ...] = (
    ("nothing", "''", "expected key=value, such as algorithm.nodes=16, found ''"),
    ("no value", "algorithm.nodes", "expected key=value, such as algorithm.nodes=16"),
    ("no key", "=3", "expected key=value, such as algorithm.nodes=16, found '=3'"),
    ("two dots", "algorithm..nodes=3", "expected key=value"),
    ("a dot at the end", "algorithm.=3", "expected key=value"),
    ("an empty value", "algorithm.nodes=", "algorithm.nodes: input should be a valid integer, found nothing"),
    ("an unknown section", "algoritm.nodes=3", "unknown key algoritm; did you mean algorithm?"),
    ("an unknown key", "algorithm.ndoes=3", "unknown key algorithm.ndoes; did you mean nodes?"),
    ("true for a number", "algorithm.nodes=true", "algorithm.nodes: input should be a number, found true"),
    ("base 60", "seed=1:30", "--set seed=1:30: expected a number, found 1:30, which YAML reads in base 60"),
    ("an open bracket", "algorithm.nodes=[", "not YAML"),
    ("a key below a number", "seed.x=3", "seed"),
    ("a section for a key", "'algorithm.nodes={a: 1}'", "algorithm.nodes"),
    ("null", "budget.epsilon=null", "budget.epsilon: input should be a valid number, found nothing"),
    ("NaN", "algorithm.learning_rate=.nan", "algorithm.learning_rate"),
    ("5,000 letters for a key", f"{'a' * 5_000}=3", "unknown key"),
    ("5,000 dots", f"a{'.a' * 5_000}=3", "expected key=value, such as algorithm.nodes=16, found 'a.a.a"),
    ("a control character", "'algorithm.nodes=\x1b[2J'", "not YAML: special characters are not allowed"),
)
"""Overrides of a spec that is in order."""

FINE: tuple[tuple[str, str, str], ...] = (
    ("an empty dataset", RUN.replace("dataset: digits", "dataset:"), "nothing stands for the default"),
    ("no seed after its colon", RUN + "seed:\n", "nothing stands for the default"),
    ("a seed of 300 digits", RUN + f"seed: {'9' * 300}\n", "a seed may be any whole number that can be written"),
    ("a budget without delta", "budget: {epsilon: 3}\n", "delta has a default"),
    ("a mark of the byte order", "\ufeff" + RUN, "editors on Windows write one, and it means nothing"),
    ("CRLF", RUN.replace("\n", "\r\n"), "lines end so on Windows"),
    ("CR", RUN.replace("\n", "\r"), "YAML takes this for the end of a line"),
    ("no end of the last line", RUN.rstrip(), "YAML does not ask for it"),
    ("a number in quotes", RUN.replace("nodes: 3", 'nodes: "3"'), "it is the number all the same"),
    ("a whole number with a point", RUN.replace("nodes: 3", "nodes: 3.0"), "it is the number all the same"),
    ("hexadecimal", RUN + "seed: 0x10\n", "it says that it is hexadecimal"),
    ("a separator in a number", RUN + "seed: 1_000\n", "YAML 1.1 has it, and there is no other reading"),
    ("an anchor and an alias", RUN + "seed: &s 3\n", "few aliases stand for little"),
    ("an end of the document", RUN + "...\n", "there is one document"),
)
"""What looks wrong and is taken, and why."""


def _replaced(line: str) -> str:
    """The spec of a run with a section that is another one."""
    sections = {old.partition(":")[0]: old for old in RUN.strip().split("\n")}
    section = line.partition(":")[0]
    if section == "budget":  # which is none of a run without noise
        del sections["privacy"]
    return "\n".join({**sections, section: line}.values()) + "\n"


def _algorithm(key: str) -> str:
    """The spec of a run with a key of its algorithm that is another one."""
    keys = {"name": "name: gossip", "nodes": "nodes: 3", "batch_size": "batch_size: 20"}
    keys |= {"updates_per_node": "updates_per_node: 3"} | {key.partition(":")[0]: key}
    return "dataset: digits\nprivacy: none\nalgorithm:\n" + "".join(f"  {line}\n" for line in keys.values())


KIND = "spec"
CASES: tuple[Case, ...] = (
    *(checked(KIND, name, text, says) for name, text, says in TYPES),
    *(checked(KIND, f"algorithm.{name}", _algorithm(key), says) for name, key, says in ALGORITHM),
    *(checked(KIND, name, _replaced(line), says) for name, line, says in SECTIONS),
    *(
        Case(f"--set {name}", "--set", f"check spec.yaml --set {setting}", says, {"spec.yaml": RUN})
        for name, setting, says in SETTINGS
    ),
    *(accepted(checked(KIND, name, text, ""), why) for name, text, why in FINE),
)
