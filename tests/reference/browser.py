"""A real browser for tests of pages: Debian's Chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DRIVER = "/usr/bin/chromedriver"
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
PATIENCE = 30  # seconds until a page has to be drawn


@contextmanager
def browser() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install gossamer-fl[dev]")
    if not Path(DRIVER).exists() or shutil.which("chromium") is None:
        pytest.skip(f"needs a browser: apt-get install chromium chromium-driver ({DRIVER} is not there)")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=webdriver.ChromeService(DRIVER), options=options)
    driver.set_script_timeout(4 * PATIENCE)  # axe-core looks at every mark of a chart
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Any, page: Path, *, width: int = 1100, scheme: str = "light") -> None:
    """Show a report at a width, in light or dark colours, until all of its figures are drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    size = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get(page.resolve().as_uri())
    WebDriverWait(driver, PATIENCE).until(lambda _: driver.find_elements("css selector", "[data-drawn=all]"))


def said(driver: Any) -> list[str]:
    """Lines of the browser's console since this was last asked."""
    return [line["message"] for line in driver.get_log("browser")]


def undrawn(driver: Any) -> list[str]:
    """Names of figures without a picture."""
    script = "return [...document.querySelectorAll('[data-chart]')].filter(e => !e.querySelector('svg')).map(e => e.id)"
    return [str(name) for name in driver.execute_script(script)]


def sideways(driver: Any) -> int:
    """Pixels by which the page is wider than the window."""
    return int(driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth"))


def crowded(driver: Any) -> list[str]:
    """Labels and titles in charts that run into one another, stand twice on one axis, or are cut off at the edge."""
    return [str(found) for found in driver.execute_script(_CROWDED)]


_CROWDED = """
const found = [];
const over = (a, b) => a.left < b.right + 2 && b.left < a.right + 2 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
for (const place of document.querySelectorAll("[data-chart]")) {
  const whole = place.querySelector("svg").getBoundingClientRect();
  for (const group of place.querySelectorAll(".role-axis-label, .role-axis-title, .role-legend-label")) {
    const texts = [...group.querySelectorAll("text")].filter(
      (e) => e.textContent && getComputedStyle(e).opacity !== "0" && e.getAttribute("opacity") !== "0");
    const boxes = texts.map((e) => e.getBoundingClientRect());
    texts.forEach((e, n) => {
      const label = `${place.dataset.chart}: ${e.textContent}`;
      if (boxes.slice(0, n).some((box) => over(box, boxes[n]))) found.push(`${label} runs into another`);
      if (texts.slice(0, n).some((other) => other.textContent === e.textContent)) found.push(`${label} stands twice`);
      const box = boxes[n];
      const out = box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
      if (out) found.push(`${label} is cut off`);
    });
  }
}
return found;
"""


def cut_on_paper(driver: Any) -> list[str]:
    """Charts and tables that are wider than a printed page, as they are laid out while it is printed."""
    driver.execute_script(_ON_PAPER)
    driver.execute_cdp_cmd("Page.printToPDF", {})
    return [str(found) for found in driver.execute_script("return window.cut")]


_ON_PAPER = """
matchMedia("print").addEventListener("change", ({ matches }) => {
  const parts = [...document.querySelectorAll(".wide > *, .chart svg")];
  const wider = (e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  if (matches) window.cut = parts.filter(wider).map((e) => e.parentElement.outerHTML.slice(0, 100));
});
"""


def faults(driver: Any) -> list[str]:
    """Serious faults that axe-core finds for those who use the page in another way than by eye and mouse."""
    axe = pytest.importorskip("selenium_axe_python", reason="needs selenium-axe-python: pip install gossamer-fl[dev]")
    checker = axe.Axe(driver)
    checker.inject()
    found = checker.run()["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
