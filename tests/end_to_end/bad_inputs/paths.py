"""Names of files that are no files: pipes, sockets, devices, folders, circles of links, and names that are too long."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.end_to_end.bad_inputs.case import FOUND, RUN, Case, Make, checked

LONG = "a" * 300


def pipe(folder: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(folder / "odd")


def a_socket(folder: Path) -> None:
    """A socket that nobody listens to; its name must be short, so it is made from within."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("odd")
    finally:
        os.chdir(here)


def a_folder(folder: Path) -> None:
    (folder / "odd").mkdir()


def circle(folder: Path) -> None:
    (folder / "odd").symlink_to("other")
    (folder / "other").symlink_to("odd")


def link_to(target: str) -> Make:
    return lambda folder: (folder / "odd").symlink_to(target)


def huge(folder: Path) -> None:
    """A file of a terabyte, none of which is on disk."""
    with (folder / "odd").open("wb") as file:
        file.truncate(1 << 40)


def forbidden(folder: Path) -> None:
    (folder / "odd").touch()
    (folder / "odd").chmod(0)


def called(make: Make, name: str) -> Make:
    """The same thing under another name."""

    def made(folder: Path) -> None:
        make(folder)
        (folder / "odd").rename(folder / name)

    return made


ODD: tuple[tuple[str, Make, str], ...] = (
    ("a pipe", pipe, "it is a pipe, a socket or a device, expected a file"),
    ("a socket", a_socket, "it is a pipe, a socket or a device, expected a file"),
    ("a folder", a_folder, "it is a folder, expected a file"),
    ("/dev/zero", link_to("/dev/zero"), "it is a pipe, a socket or a device, expected a file"),
    ("/dev/random", link_to("/dev/random"), "it is a pipe, a socket or a device, expected a file"),
    ("a circle of links", circle, "Too many levels of symbolic links"),
    ("a link to nothing", link_to("nowhere"), "No such file or directory"),
    ("a terabyte", huge, "it has 1 TiB, expected at most"),
)

READERS: tuple[tuple[str, str, str], ...] = (
    ("spec", "check odd", ""),
    ("policy", "data show odd", ""),
    ("rates", "account --noise-multiplier 1 --rates odd --delta 1e-5", ""),
    ("invitation", "federation show odd", ""),
    (
        "a spec to found",
        f"{FOUND} --spec odd",
        "",
    ),
    ("edges", "check spec.yaml", RUN.replace("nodes: 3", "nodes: 3, topology: {name: edges, path: odd}")),
    ("update times", "check spec.yaml", f"{RUN}speeds: {{name: file, path: odd}}\n"),
    ("availability", "check spec.yaml", f"{RUN}faults: {{availability: {{name: trace, path: odd}}}}\n"),
    ("a pretrained model", "check spec.yaml", f"{RUN}objective: {{pretrained: odd}}\n"),
)
"""Who reads a file, by which command, with which spec."""

FORMATS = ("csv", "npz", "libsvm", "images")


def data_spec(form: str, path: str = "odd") -> str:
    """A spec whose data lie in a file of some format."""
    return RUN.replace("dataset: digits", f"dataset: {{name: mine, path: {path}, format: {form}}}")


def _gone_says(name: str, says: str) -> str:
    """Data that are not there are looked for in another way."""
    return "there is no file or folder" if name in ("a circle of links", "a link to nothing") else says


KIND = "file"
CASES: tuple[Case, ...] = (
    *(
        Case(f"{reader}: {name}", KIND, command, says, {"spec.yaml": spec} if spec else {}, make, apart=True)
        for reader, command, spec in READERS
        for name, make, says in ODD
    ),
    *(
        Case(
            f"{form} data: {name}",
            KIND,
            "check spec.yaml",
            _gone_says(name, says),
            {"spec.yaml": data_spec(form)},
            make,
            apart=True,
        )
        for form in FORMATS
        for name, make, says in ODD
        if not (form == "images" and name == "a folder") and not (form != "csv" and name == "/dev/random")
    ),
    Case("spec: a name of 300 letters", "name", f"check {LONG}", "File name too long"),
    Case("spec: a path of 5,000 letters", "name", f"check {'a/' * 2_500}b", "File name too long"),
    Case("policy: a name of 300 letters", "name", f"data show {LONG}", "File name too long"),
    Case("invitation: a name of 300 letters", "name", f"federation show {LONG}", "File name too long"),
    Case(
        "--out: a name of 300 letters", "name", f"run spec.yaml --out {LONG}", "File name too long", {"spec.yaml": RUN}
    ),
    Case(
        "--trace: a name of 300 letters",
        "name",
        f"run spec.yaml --trace {LONG}",
        "File name too long",
        {"spec.yaml": RUN},
    ),
    Case("--repeat: a name of 300 letters", "name", f"run --repeat {LONG}", "File name too long"),
    Case("status: a name of 300 letters", "name", f"status {LONG}", "File name too long"),
    Case("stop: a name of 300 letters", "name", f"stop {LONG}", "File name too long"),
    Case("up: a name of 300 letters", "name", f"up spec.yaml --out {LONG}", "File name too long", {"spec.yaml": RUN}),
    Case("federation identity: a name of 300 letters", "name", f"federation identity {LONG}", "found 'aaa"),
    Case("membership: a name of 300 letters", "name", f"attack membership {LONG}", "expected the results folder"),
    checked("name", "data: a name of 300 letters", data_spec("csv", LONG), "File name too long"),
    checked("name", "data: a NUL byte in a name", data_spec("csv", '"a\\0b"'), "found one with a null character"),
    checked("name", "data: an empty name", data_spec("csv", '""'), "it is a folder, expected a file"),
    checked("name", "data: no file", data_spec("csv", "nowhere.csv"), "there is no file or folder"),
    checked("name", "data: a number for a name", data_spec("csv", "3"), "path"),
    checked(
        "name",
        "data: a suffix of no format",
        RUN.replace("digits", "{name: mine, path: spec.yaml}"),
        "no format is known by the suffix '.yaml'",
    ),
    Case(
        "--out: a file",
        "name",
        "run spec.yaml --out spec.yaml",
        "spec.yaml is a file, expected a folder",
        {"spec.yaml": RUN},
    ),
    Case("--out: below a file", "name", "run spec.yaml --out spec.yaml/x", "is no folder", {"spec.yaml": RUN}),
    Case("--out: the root", "name", "run spec.yaml --out /", "/ exists and is not empty", {"spec.yaml": RUN}),
    Case("--out: a pipe", "name", "run spec.yaml --out odd", "odd", {"spec.yaml": RUN}, pipe),
    Case("--out: a circle of links", "name", "run spec.yaml --out odd", "odd", {"spec.yaml": RUN}, circle),
    Case("--out: below a circle", "name", "run spec.yaml --out odd/x", "odd", {"spec.yaml": RUN}, circle),
    Case(
        "--out: a folder that is not empty",
        "name",
        "run spec.yaml --out .",
        ". exists and is not empty",
        {"spec.yaml": RUN},
    ),
    Case(
        "--out: a folder of somebody's",
        "name",
        "run spec.yaml --overwrite --out mine",
        "mine is not the results folder of a run, so it is not overwritten",
        {"spec.yaml": RUN, "mine/letter.txt": ""},
    ),
    Case("--trace: a folder", "name", "run spec.yaml --trace . --out o", "cannot write the trace", {"spec.yaml": RUN}),
    Case(
        "--trace: below nothing",
        "name",
        "run spec.yaml --trace a/b --out o",
        "cannot write the trace",
        {"spec.yaml": RUN},
    ),
)
