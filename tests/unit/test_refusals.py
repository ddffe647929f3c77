"""Words of rules that settings break: each rule has its line in the file beside its module, and each line its rule."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import gossamer
from gossamer.algorithms.clients.settings import Masking
from gossamer.algorithms.table import OWN
from gossamer.data.columns import Column
from gossamer.data.settings import DatasetSettings
from gossamer.experiment.specs.spec import ComputeSettings, Experiment
from gossamer.files import words_beside

_ROOT = Path(gossamer.__file__).parent
_MODULES = [path for path in sorted(_ROOT.rglob("*.py")) if "refusals(__file__" in path.read_text("utf-8")]
_OTHERS = {
    *Experiment.model_fields,
    *ComputeSettings.model_fields,
    *Masking.model_fields,
    *DatasetSettings.model_fields,
    *Column.model_fields,
}
_KNOWN = {name for one in OWN.values() for name in (*dir(one.Settings), *one.Settings.model_fields)}


def _calls(path: Path) -> list[tuple[ast.Call, set[str]]]:
    """Calls of `refusals`, with the names of the rules that each is given, in place or as ``rules``."""
    found = []
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        named = [one.value for one in nodes if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "rules"]
        for call in nodes:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "refusals":
                (rules,) = [call.args[1]] if isinstance(call.args[1], ast.Dict) else named
                assert isinstance(rules, ast.Dict)
                found.append((call, {ast.literal_eval(key) for key in rules.keys if key is not None}))
    return found


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_each_rule_has_words_and_all_that_stands_in_them_is_there(path: Path) -> None:
    """The names of rules are the keys of the file, and what is filled in is named by the call, or a setting."""
    words = {key: words for key, words in words_beside(str(path)).items() if isinstance(words, str)}
    calls = _calls(path)
    elsewhere = set(re.findall(r'(?:_WORDS|words_beside\(__file__\))\["([^"]+)"\]', path.read_text("utf-8")))
    assert elsewhere.union(*(rules for _, rules in calls)) >= words.keys()
    assert words.keys() >= set().union(*(rules for _, rules in calls))
    for call, rules in calls:
        named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        more = any(keyword.arg is None for keyword in call.keywords)  # **facts
        for rule in rules:
            for _, field, _, _ in Formatter().parse(words[rule]):
                if not field:
                    continue
                root, _, rest = field.replace("[", ".").partition(".")
                assert root in named or more, (rule, field)
                if root == "s":
                    assert rest.partition(".")[0] in _KNOWN | _OTHERS, (rule, field)


def test_there_are_such_modules() -> None:
    """So that the test above is of something."""
    assert len(_MODULES) >= 7
