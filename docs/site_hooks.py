"""Hooks of the documentation's site (`mkdocs.yml`): files outside `docs/` that pages link to are part of it.

On GitHub a page links to `../CONTRIBUTING.md` or `../../examples/hospitals/README.md`. The site has such files too,
under the names that they have in the repository, so links work in both places. `index.md` takes the README's place.

Some examples are run, and their reports are part of the site, linked from the page of examples.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import gossamer as gs
from gossamer.report.page import write_report
from gossamer.report.records import read_records

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
DECISIONS = "decisions/*.md"
SECTIONS = {
    "algorithms": "Algorithms",
    "privacy": "Privacy",
    "assurance": "Assurance",
    "how-to": "How to",
    "reference": "Reference",
}
EXAMPLES = "examples/README.md"
REPORTS = ("digits-gossip", "wards-gossip", "hospitals-faults")
"""Examples of public or made-up data, so that a report may show all figures."""


def in_repository(uri: str, files: Files) -> str:
    """The path of a page of the site in the repository."""
    file = files.get_file_from_path(uri)
    generated = file is not None and file.generated_by is not None
    return uri if generated else f"docs/{uri}"


def place_on_site(path: str) -> str:
    """The place on the site of a file of the repository."""
    path = described(path)
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def described(path: str) -> str:
    """The page of a folder: its own, or that of the nearest folder above that has one; of a file, itself."""
    while (ROOT / path).is_dir():
        page = posixpath.normpath(posixpath.join(path, "README.md"))
        path = page if (ROOT / page).is_file() else posixpath.dirname(path)
    return path


def outside(text: str, page: str) -> Iterator[str]:
    """Files outside `docs/` that a page, by its path in the repository, links to."""
    for target, _ in LINK.findall(FENCE.sub("", text)):
        path = described(posixpath.normpath(posixpath.join(posixpath.dirname(page), target)))
        if not re.match(r"\w+:", target) and not path.startswith("docs/") and path != "README.md":
            yield path


def reports(config: MkDocsConfig) -> Iterator[File]:
    """Run examples, and write what they did."""
    with TemporaryDirectory() as folder:
        for name in REPORTS:
            gs.run(ROOT / "examples" / f"{name}.yaml", Path(folder) / name)
            page = write_report(read_records([Path(folder) / name]), Path(folder) / name)
            yield File.generated(config, f"examples/reports/{name}.html", content=page.read_text(encoding="utf-8"))


def listed(part: object) -> set[str]:
    """Pages of a part of the navigation."""
    if isinstance(part, str):
        return {part}
    items = part.values() if isinstance(part, dict) else part
    return {page for item in items for page in listed(item)}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions, and pages that `mkdocs.yml` does not name at the end of their section."""
    assert config.nav is not None
    sections = {title: pages for section in config.nav for title, pages in section.items()}
    docs = Path(config.docs_dir)
    sections["Inside"].append({"Decisions": sorted(page.relative_to(docs).as_posix() for page in docs.glob(DECISIONS))})
    everything = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    for page in sorted(everything - listed(config.nav)):
        sections[SECTIONS.get(posixpath.dirname(page), "Inside")].append(page)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to, and what that links to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in outside((ROOT / page).read_text(encoding="utf-8"), page):
            if path in known or not (ROOT / path).is_file():  # a link to nothing is reported by the build
                continue
            known.add(path)
            source = str(ROOT / path)
            files.append(File.generated(config, path, abs_src_path=source, inclusion=InclusionLevel.NOT_IN_NAV))
            if path.endswith(".md"):
                waiting.append(path)
    if config.extra["reports"]:
        for report in reports(config):
            files.append(report)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where files are on the site."""
    here = page.file.src_uri
    there = in_repository(here, files)

    def moved(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"\w+:", target):
            return match[0]
        path = place_on_site(posixpath.normpath(posixpath.join(posixpath.dirname(there), target)))
        return posixpath.relpath(path, posixpath.dirname(here) or ".") + anchor

    parts = FENCE.split(markdown)
    text = "".join(part if index % 2 else LINK.sub(moved, part) for index, part in enumerate(parts))
    if here == EXAMPLES and config.extra["reports"]:
        text += "\n## Reports\n\nWhat `gossamer report` writes of some of these:\n\n"
        text += "".join(f"- [{name}](reports/{name}.html)\n" for name in REPORTS)
    return text
