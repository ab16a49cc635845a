"""A headless Chromium that opens a page and keeps what it says and asks for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@contextmanager
def opened(path: Path, *, width: int = 1400, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """A driver that has loaded a page."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER or ""))
    try:
        driver.set_script_timeout(120)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(path.as_uri())
        yield driver
    finally:
        driver.quit()


def requests(driver: Any) -> list[str]:
    """The addresses that the page asked for since the last time, without itself and what it holds."""
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return [url for url in found if not url.startswith(("file:", "data:", "blob:"))]


def settled(driver: Any, script: str) -> Any:
    """Run a script and wait for two frames; its value."""
    return driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; const value = (() => {" + script + "})();"
        "requestAnimationFrame(() => requestAnimationFrame(() => done(value)));"
    )
