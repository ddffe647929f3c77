"""Reports as a reader meets them: in a real browser, on a desk and on a phone, in light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.browser import browser, crowded, cut_on_paper, faults, said, show, sideways, undrawn

from gossamer.cli.main import main
from gossamer.objectives.scores import ScoredSample

EVIL = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-gossip.yaml"
GUARANTEE = {"epsilon": 1.0, "delta": 1e-5, "mu": 0.3}
P = np.linspace(0.05, 0.95, 60)
SCORES = ScoredSample(P[:, None], np.arange(60) % 3 // 2, ("no", "yes"), np.column_stack([1 - P, P])).assess()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as found:
        yield found


def results(path: Path, evaluations: int, *, late: float = 0.0, **summary: Any) -> Path:
    """The results folder of a run that learns, as little of it as there can be."""
    path.mkdir(parents=True)
    said = {"gossamer": "1", "algorithm": "gossip", "seed": 0, "status": "updates", "nodes": 8, "updates": evaluations}
    (path / "summary.json").write_text(json.dumps({**said, "privacy": {"guarantee": GUARANTEE}, **summary}))
    rows = [
        {"updates": 8 * n, "virtual_seconds": 1.5 * n + late, "messages": 16 * n, "bytes": 9000 * n}
        | {"mean_model_test_accuracy": 1 - 0.9 / (1 + n), "worst_node_test_accuracy": 1 - 0.95 / (1 + n)}
        | {"mean_model_test_loss": 2.3 / (1 + n), "consensus_distance": 1 / (1 + n), "epsilon_so_far": n / evaluations}
        for n in range(evaluations)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def report(*folders: Path, options: tuple[str, ...] = ()) -> Path:
    assert main(["report", *map(str, folders), *options]) == 0
    return folders[0] / "report.html"


def hover(driver: Any, place: str) -> str:
    """What is said by the mark that the mouse is on, as HTML."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    mark = driver.find_element("css selector", place)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(driver).move_to_element(mark).perform()
    seen = WebDriverWait(driver, 10).until(
        lambda _: driver.find_elements("css selector", "#vg-tooltip-element.visible")
    )
    return str(seen[0].get_attribute("innerHTML"))


def assert_readable(driver: Any, page: Path, **how: Any) -> None:
    """Every figure is there, without an error, a serious fault or sideways scrolling."""
    show(driver, page, **how)
    assert said(driver) == []
    assert undrawn(driver) == []
    assert sideways(driver) <= 0
    assert crowded(driver) == []
    assert faults(driver) == []


@pytest.mark.usefixtures("called_here")
def test_a_report_is_readable_on_a_phone_and_names_from_data_are_text(driver: Any, tmp_path: Path) -> None:
    page = report(results(tmp_path / EVIL.replace("/", "!"), 12, algorithm=EVIL, scores=SCORES))
    assert_readable(driver, page, width=390)
    assert len(driver.find_elements("css selector", "figure svg")) == 7
    tooltip = hover(driver, "#mean-model-test-accuracy .mark-symbol path:nth-child(3)")
    assert "&lt;script&gt;" in tooltip
    assert "70.0%" in tooltip  # 1 - 0.9 / 3
    assert driver.execute_script("return window.pwned") is None
    assert said(driver) == []


@pytest.mark.slow
@pytest.mark.usefixtures("called_here", "quiet")
def test_the_report_of_the_demo(driver: Any, tmp_path: Path) -> None:
    assert main(["run", str(EXAMPLE), "--out", str(tmp_path / "demo")]) == 0
    page = report(tmp_path / "demo")
    for width, scheme in ((1100, "light"), (390, "light"), (1100, "dark"), (390, "dark")):
        assert_readable(driver, page, width=width, scheme=scheme)
    show(driver, page)
    assert cut_on_paper(driver) == []
    assert "demo" in hover(driver, "#epsilon-so-far .mark-symbol path:nth-child(9)")


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
@pytest.mark.parametrize("width", [390, 1100])
def test_many_runs_with_long_names_and_of_two_versions(driver: Any, tmp_path: Path, width: int) -> None:
    names = [f"{name}-seed{seed}" for name in ("a", "b" * 120, "c") for seed in range(3)]
    folders = [
        results(
            tmp_path / name, 40, late=0.1 * n, seed=n % 3, gossamer=str(1 + n // 8), status="interrupted", scores=SCORES
        )
        for n, name in enumerate(names)
    ]
    page = report(*folders)
    assert_readable(driver, page, width=width)
    text = driver.find_element("css selector", "main").text
    assert "different versions of Gossamer" in text
    assert f"{names[8]} has not come to its end" in text


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
@pytest.mark.parametrize(("evaluations", "figures"), [(0, 0), (1, 5)])
def test_short_runs(driver: Any, tmp_path: Path, evaluations: int, figures: int) -> None:
    page = report(results(tmp_path / "short", evaluations))
    assert_readable(driver, page, width=390)
    assert len(driver.find_elements("css selector", "figure svg")) == figures


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_one_choice_draws_all_curves_across_something_else(driver: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    show(driver, report(results(tmp_path / "run", 12)))
    choice = Select(driver.find_element("id", "across"))
    assert [option.text for option in choice.options] == ["virtual seconds", "updates", "bytes sent", "messages sent"]
    choice.select_by_visible_text("updates")
    titles = "return [...document.querySelectorAll('.role-axis-title text')].map(e => e.textContent)"
    WebDriverWait(driver, 10).until(lambda _: driver.execute_script(titles).count("updates") == 5)


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_keys_reach_what_can_be_used_and_show_where_they_are(driver: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    show(driver, report(results(tmp_path / "run", 12)))
    reached = []
    for _ in range(8):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        style = "const e = document.activeElement; return [e.id || e.tagName, getComputedStyle(e).outlineStyle]"
        reached.append(tuple(driver.execute_script(style)))
    assert ("across", "solid") in reached
    assert all(outline == "solid" for name, outline in reached if name != "BODY")


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_twenty_long_runs_are_under_fifteen_megabytes(driver: Any, tmp_path: Path) -> None:
    page = report(*(results(tmp_path / f"run-{n}", 10_000, late=0.01 * n) for n in range(20)))
    assert page.stat().st_size < 15_000_000
    show(driver, page)  # axe-core would take minutes for so many marks
    assert said(driver) == []
    assert undrawn(driver) == []
    assert sideways(driver) <= 0
