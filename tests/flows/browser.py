"""A real browser for tests of the pages that a reviewer sees. Screenshots are written to screenshots/."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.guide import ROOT

SCREENSHOTS = ROOT / "screenshots"
CHROME = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1600,1400",
]  # fmt: skip


@contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """Open Debian's chromium with a profile in an empty folder. Skip the test if it is not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs Debian's chromium and chromium-driver (apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*CHROME, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield opened
    finally:
        opened.quit()


class Pages:
    """A browser on one server."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address
        driver.get(address)
        # Otherwise the assistant's panel opens and covers a third of the page.
        driver.execute_script(
            "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
            "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false')"
        )

    def open(self, path: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(self.address + path)

    def text(self) -> str:
        return " ".join(self.driver.find_element("tag name", "body").text.split())

    def wait_for(self, *texts: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while missing := [text for text in texts if text not in self.text()]:
            assert time.monotonic() < until, f"not on {self.driver.current_url}: {missing}; there is: {self.text()}"
            time.sleep(0.25)

    def wait_for_elements(self, selector: str, count: int = 1, seconds: float = 60) -> list:
        until = time.monotonic() + seconds
        while len(elements := self.driver.find_elements("css selector", selector)) < count:
            assert time.monotonic() < until, f"{len(elements)} of {count} {selector} on {self.driver.current_url}"
            time.sleep(0.25)
        return elements

    def keep(self, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
