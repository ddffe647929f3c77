"""The report of a run under way, in a real browser."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.test_report_page import results
from tests.reference.browser import browser, said
from tests.unit.report.test_serving import served

from gossamer.report import serving


def until(driver: Any, condition: Any, patience: float = 30) -> None:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, patience, 0.1, [StaleElementReferenceException]).until(condition)


@pytest.mark.slow
def test_the_page_follows_the_run_and_says_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_WAIT", 300)
    monkeypatch.setattr(serving, "_REST", 0.0)
    there = tmp_path / "run"

    def inside(driver: Any) -> str:
        driver.switch_to.default_content()
        driver.switch_to.frame(0)
        return str(driver.find_element("css selector", "body").text)

    with browser() as driver:
        with served(there) as address:
            driver.get(address)
            until(driver, lambda _: "Nothing has been written yet" in inside(driver))
            results(there, 5)
            until(driver, lambda _: "Progress" in inside(driver))
            until(driver, lambda _: driver.find_elements("css selector", "[data-drawn=all]"))
            (there / "metrics.jsonl").write_text("")
            os.utime(there / "summary.json", ns=(0, time.time_ns()))
            until(driver, lambda _: inside(driver) and not driver.find_elements("css selector", "[data-chart] svg"))
            driver.switch_to.default_content()
            assert "This page follows" in driver.find_element("css selector", "p").text
            assert said(driver) == []
        until(driver, lambda _: "It is over" in driver.find_element("css selector", "p").text)
