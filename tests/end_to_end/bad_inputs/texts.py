"""Texts that are no YAML, or YAML that means something else; as specs, and as policies."""

from __future__ import annotations

from tests.end_to_end.bad_inputs.case import RUN, Case, checked

POLICY = "data: {wards: {epsilon: 4, delta: 1.0e-5}}\n"


def _bomb(levels: int = 12, each: int = 9) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * each)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


def _merges(levels: int = 20) -> str:
    lines = ["a0: &a0 {x0: 1, y0: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], x{i}: 1}}" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


HOSTILE: tuple[tuple[str, str | bytes, str], ...] = (
    ("20,000 brackets", "a: " + "[" * 20_000, "line 1: it is nested too deeply"),
    ("20,000 closed brackets", "a: " + "[" * 20_000 + "]" * 20_000, "line 1: it is nested too deeply"),
    ("3,000 nested mappings", "\n".join(" " * i + f"k{i}:" for i in range(1_500)), "it is nested too deeply"),
    ("3,000 mappings in braces", "{a: " * 3_000 + "1" + "}" * 3_000, "line 1: it is nested too deeply"),
    ("5,000 dashes", "- " * 5_000 + "1", "line 1: it is nested too deeply"),
    ("5,000 question marks", "? " * 5_000 + "1", "line 1: it is nested too deeply"),
    ("a bomb of aliases", _bomb(), "counting what aliases stand for, found more"),
    ("a bomb of merges", _merges(), "counting what aliases stand for, found more"),
    ("an alias of itself", "a: &a [*a]\n", "an alias stands for what it is in"),
    ("an alias of nothing", "a: *b\n", "undefined alias"),
    ("300,000 values", "a: [" + "1, " * 300_000 + "1]\n", "expected at most 100000 values"),
    ("5 MiB of comment", "#" + "x" * (5 << 20), "expected at most 4 MiB"),
    ("5 MiB of text", "a: '" + "x" * (5 << 20) + "'", "expected at most 4 MiB"),
)
"""Small and large texts that would take all time or memory."""

NOT_YAML: tuple[tuple[str, str | bytes, str], ...] = (
    ("a list as a key", "? [a]\n: b\n", "line 1: expected a key, found a list or a mapping"),
    ("a mapping as a key", "? {a: 1}\n: b\n", "line 1: expected a key, found a list or a mapping"),
    ("null as a key", "~: 3\n", "expected a key, found ~, which YAML reads as null"),
    ("no key", "?\n: 3\n", "expected a key, found nothing before the colon"),
    ("on as a key", "on: 3\n", 'found on, which YAML reads as true; write "on", in quotes'),
    ("no as a key", "no: 3\n", 'found no, which YAML reads as false; write "no", in quotes'),
    ("a key twice", "a: 1\nb: 2\na: 3\n", "line 3: 'a' is given twice, first in line 1"),
    ("a key twice below", "a:\n  b: 1\n  b: 2\n", "line 3: 'b' is given twice, first in line 2"),
    ("a tab", "a:\n\tb: 1\n", "line 2: not YAML"),
    ("an open bracket", "a: [1, 2\n", "not YAML"),
    ("an open quote", 'a: "b\n', "not YAML"),
    ("two documents", "a: 1\n---\nb: 2\n", "not YAML"),
    ("a tag of Python", "a: !!python/object/apply:os.system [ls]\n", "not YAML"),
    ("a tag of its own", "a: !own 3\n", "not YAML"),
    ("a colon too many", "a: b: c\n", "line 1: not YAML"),
    ("bad indentation", "a: 1\n  b: 2\n", "line 2: not YAML"),
    ("a NUL byte", b"a: 1\n\0\n", "not YAML"),
    ("a control character", "a: \x07\n", "not YAML"),
    ("Latin-1", "a: Zürich\n".encode("latin-1"), "it is not UTF-8 text (byte 4)"),
    ("UTF-16", "a: 1\n".encode("utf-16"), "it is not UTF-8 text (byte 0)"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is not UTF-8 text (byte 0)"),
    ("a zip", b"PK\x03\x04\x14\0\0\0\x08\0", "not YAML"),
    ("no date", "a: 2020-13-40\n", "not YAML: month must be in 1..12"),
)
"""Texts that are no YAML, or not of the kind that is read."""

NUMBERS: tuple[tuple[str, str, str], ...] = (
    ("5,000 digits", "9" * 5_000, "found one of 5000 digits"),
    ("5,000 digits below zero", "-" + "9" * 5_000, "found one of 5001 digits"),
    ("base 60", "1:30", "found 1:30, which YAML reads in base 60"),
    ("a fraction in base 60", "1:30.5", "found 1:30.5, which YAML reads in base 60"),
    ("base 8", "010", "found '010', which YAML reads in base 8"),
)
"""Numbers that nobody means."""

KIND = "yaml"
CASES: tuple[Case, ...] = (
    *(checked("yaml bomb", f"spec: {name}", text, says, apart=True) for name, text, says in HOSTILE),
    *(
        Case(f"policy: {name}", "yaml bomb", "data show policy.yaml", says, {"policy.yaml": text}, apart=True)
        for name, text, says in HOSTILE
    ),
    *(checked(KIND, f"spec: {name}", text, says) for name, text, says in NOT_YAML),
    *(
        Case(f"policy: {name}", KIND, "data show policy.yaml", says, {"policy.yaml": text})
        for name, text, says in NOT_YAML
    ),
    *(checked(KIND, f"seed: {name}", f"{RUN}seed: {value}\n", says) for name, value, says in NUMBERS),
    *(
        Case(
            f"epsilon: {name}",
            KIND,
            "data show policy.yaml",
            says,
            {"policy.yaml": POLICY.replace("epsilon: 4", f"epsilon: {value}")},
        )
        for name, value, says in NUMBERS
    ),
    Case(
        "--set: a bomb",
        "yaml bomb",
        f"check spec.yaml --set seed={'[' * 5_000}",
        "nested too deeply",
        {"spec.yaml": RUN},
    ),
    Case("--set: 5,000 digits", KIND, f"check spec.yaml --set seed={'9' * 5_000}", "5000 digits", {"spec.yaml": RUN}),
)
