#!/usr/bin/env bash
# A numba loop that is handed another compiled function is "cached" and never found again: each process compiles it and leaves a file.
#
# Versions: numba 0.68.1, numpy 2.4.6.
# Input:    njit(cache=True) functions in files: a loop that takes a rule as an argument, one that closes over it, and one whose
#           signature says that it takes a function of a type. The rules are cached, too. Each of five processes calls all three once.
# Expected: machine code is loaded from the second process on, as it is of the rule alone; or a warning that it cannot be kept.
# Seen:     the first two are compiled by every process, without a word, and each leaves one more file of machine code and one more
#           entry of the index, which grows for as long as the program is used: what is looked up holds the rule's identity in its
#           process. With an explicit type (types.FunctionType) the loop is found. Its calls are not inlined, though.
# Moral:    a generic compiled loop takes its rules by typed signature; whoever relies on cache=True looks at stats.cache_hits.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
cd "$work"
unset PYTHONDONTWRITEBYTECODE NUMBA_CACHE_DIR
cat > loops.py <<'P'
from numba import njit, types

VECTOR, NUMBER = types.float64[::1], types.int64
RULE = types.FunctionType(types.void(VECTOR, NUMBER))


@njit(types.void(VECTOR, NUMBER), cache=True)
def rule(state, i):
    state[0] += i


@njit(cache=True)
def given(state, count, each):
    for i in range(count):
        each(state, i)


def around(each):
    @njit(cache=True)
    def closed(state, count):
        for i in range(count):
            each(state, i)

    return closed


@njit(types.void(VECTOR, NUMBER, RULE), cache=True)
def typed(state, count, each):
    for i in range(count):
        each(state, i)
P
cat > once.py <<'P'
import json

import numpy as np
from loops import around, given, rule, typed

state, closed = np.zeros(1), around(rule)
for call in (lambda: given(state, 10, rule), lambda: closed(state, 10), lambda: typed(state, 10, rule)):
    call()
assert state[0] == 3 * 45
loops = {"argument": given, "closure": closed, "typed": typed, "rule": rule}
print(json.dumps({name: sum(loop.stats.cache_hits.values()) for name, loop in loops.items()}))
P
for process in 1 2 3 4 5; do echo "process $process, found in the cache: $("$work/env/bin/python" once.py | tee last.json)"; done
for name in given closed typed rule; do echo "$name: $(find . -path ./env -prune -o -name "*$name-*.nbc" -print | wc -l) files" | tee -a files.txt; done
"$work/env/bin/python" -c '
import json
from importlib.metadata import version
print("numba", version("numba"))
assert json.load(open("last.json")) == {"argument": 0, "closure": 0, "typed": 1, "rule": 1}, "it is mended"
files = dict(line.split(": ") for line in open("files.txt"))
assert {name: text.split()[0] for name, text in files.items()} == {"given": "5", "closed": "5", "typed": "1", "rule": "1"}, files
'
