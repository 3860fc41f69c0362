"""A real Chromium, driven over WebDriver's HTTP protocol with the standard library alone."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--force-prefers-reduced-motion"),
)
EXTENT = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


class Browser:
    """A session of chromedriver: what the tests ask of it and no more."""

    def __init__(self, port: int, downloads: Path, profile: Path) -> None:
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._root = f"http://127.0.0.1:{port}"
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS, f"--user-data-dir={profile}"],
            "prefs": {"download.default_directory": str(downloads)},
        }
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._root += f"/session/{answer['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._root + path, content, {"Content-Type": "application/json"}, method=method
        )
        try:
            with self._open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def sized(self, width: int, height: int = 900) -> None:
        """A viewport of exactly so many pixels, which a window of Chromium need not have."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def go(self, path: Path, address: str = "") -> None:
        """A file afresh, at an address in it."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": f"{path.as_uri()}{address}"})

    def back(self) -> None:
        self._call("POST", "/back", {})

    def js(self, script: str, *arguments: Any) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, *, seconds: float = 5.0) -> Any:
        """Return what a script returns once that is true, or after `seconds`. Events of the page take time."""
        last = time.monotonic() + seconds
        while not (found := self.js(script)) and time.monotonic() < last:
            time.sleep(0.02)
        return found

    def click(self, selector: str, place: int = 0) -> None:
        """Click as a person does: the element must be in sight and not covered."""
        self._call("POST", f"/element/{self._element(selector, place)}/click", {})

    def press(self, keys: str, selector: str) -> None:
        self._call("POST", f"/element/{self._element(selector, 0)}/value", {"text": keys})

    def _element(self, selector: str, place: int) -> str:
        found = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return next(iter(found[place].values()))

    def complaints(self) -> list[str]:
        """Return the console's messages since the last call."""
        return [line["message"] for line in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def quit(self) -> None:
        self._call("DELETE", "")


@contextmanager
def opened(folder: Path) -> Iterator[Browser]:
    assert DRIVER
    log = folder / "driver.log"
    with log.open("w") as out:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=out, stderr=out)
        try:
            port = _port(log)
            browser = Browser(port, folder, folder / "profile")
            try:
                yield browser
            finally:
                browser.quit()
        finally:
            driver.terminate()
            driver.wait()


def _port(log: Path) -> int:
    for _ in range(200):
        words = log.read_text().split("started successfully on port ")
        if len(words) > 1 and "." in words[1]:
            return int(words[1].split(".")[0])
        time.sleep(0.05)
    raise AssertionError(log.read_text())
