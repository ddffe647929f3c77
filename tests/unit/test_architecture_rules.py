"""The rules of `architecture_rules` see what they are about, and nothing else; numbers are asserted of none yet."""

from __future__ import annotations

import ast

import pytest
from tests.unit import architecture_rules as rules
from tests.unit.architecture_report import circles, lines_of_code, report

SEEN = [
    (rules.imports_of_algorithms, "experiment/x.py", "from gossamer.algorithms.gossip.box import Settings"),
    (rules.imports_of_algorithms, "experiment/x.py", "from gossamer.algorithms.graph_federated import coins"),
    (rules.imports_of_algorithms, "algorithms/mapa/box.py", "import gossamer.algorithms.edge_cloud.box"),
    (rules.imports_of_algorithms, "cli/x.py", "def f():\n    from gossamer.algorithms.allreduce.member import Ring"),
    (rules.imports_of_algorithms, "sides/x.py", "from gossamer.algorithms.gossip.nodes import Gossip"),
    (rules.literals_of_names, "cli/x.py", "if name == 'graph_federated': pass"),
    (rules.attributes_asked_for, "cli/x.py", "getattr(prepared.algorithm, 'report', None)"),
    (rules.attributes_asked_for, "cli/x.py", "hasattr(ALGORITHMS[name], 'units')"),
    (rules.attributes_asked_for, "cli/x.py", "getattr(settings, 'noise')"),
    (rules.settings_by_class, "cli/main.py", "isinstance(spec.algorithm, graph_federated.Settings)"),
    (rules.kinds_by_class, "deployment/x.py", "isinstance(plan, Plan | None)"),
    (rules.kinds_by_class, "deployment/x.py", "match charges:\n    case UnitCharges(): pass"),
    (rules.kinds_by_class, "deployment/x.py", "type(task) is Gradient"),
    (rules.kinds_by_facts, "deployment/x.py", "settings.masking.name != 'secure'"),
    (rules.kinds_by_facts, "deployment/x.py", "a if experiment.in_units else b"),
    (rules.kinds_by_facts, "deployment/x.py", "if prepared.units: pass"),
]
NOT_SEEN = [
    (
        rules.imports_of_algorithms,
        "algorithms/graph_federated/server.py",
        "from gossamer.algorithms.graph_federated.state import State",
    ),
    (rules.imports_of_algorithms, "experiment/x.py", "from gossamer.algorithms.table import ALGORITHMS"),
    (rules.imports_of_algorithms, "experiment/x.py", "from gossamer.algorithms.optimizer import Constant"),
    (rules.imports_of_algorithms, "x.py", "if TYPE_CHECKING:\n    from gossamer.algorithms.gossip.box import Settings"),
    (rules.literals_of_names, "algorithms/gossip/box.py", "name = 'gossip'"),
    (rules.literals_of_names, "cli/x.py", "print('gossip runs')"),
    (rules.attributes_asked_for, "cli/x.py", "getattr(settings, name)"),
    (rules.attributes_asked_for, "cli/x.py", "getattr(options, 'reproducible', False)"),
    (rules.settings_by_class, "cli/main.py", "isinstance(x, SpeedSettings)"),
    (rules.kinds_by_class, "sides/masked_side.py", "isinstance(task, MaskingStep)"),
    (rules.kinds_by_class, "cli/x.py", "isinstance(value, dict)"),
    (rules.kinds_by_facts, "algorithms/graph_federated/server.py", "settings.masking.name == 'secure'"),
]


@pytest.mark.parametrize(("rule", "file", "text"), SEEN)
def test_a_rule_sees_what_it_is_about(rule: rules.Rule, file: str, text: str) -> None:
    assert len(list(rule(file, ast.parse(text)))) == 1


@pytest.mark.parametrize(("rule", "file", "text"), NOT_SEEN)
def test_a_rule_sees_nothing_else(rule: rules.Rule, file: str, text: str) -> None:
    assert list(rule(file, ast.parse(text))) == []


def test_circles_are_sets_of_parts_that_reach_each_other() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "e": ["e"]}) == [["a", "b", "c"]]


def test_lines_of_code_have_no_comments_and_no_docstrings() -> None:
    text = '"""Doc.\n\nMore."""\n\nx = 1  # why\n"""Of x."""\n# alone\ny = f(\n    1,\n)\n'
    assert lines_of_code(text) == 4


@pytest.mark.slow
def test_the_report_has_a_number_for_each_rule() -> None:
    lines = list(report())
    for name in rules.RULES:
        assert any(line.startswith(f"{name}: ") for line in lines)
