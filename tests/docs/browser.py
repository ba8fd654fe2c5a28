"""A headless Chromium for tests of pages, over its debugging pipe: no driver, no dependency.

    with Browser() as browser:
        browser.open("file:///…/index.html")
        browser.click("button")
        assert browser.evaluate("document.title") == "…"
        assert not browser.errors

Messages are JSON with a NUL at the end, to and from the browser through file descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Nobody waits so long unless something hangs, on a machine that is busy with other things too.
HANG_S = 600.0
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OPTIONS = (
    "--headless",
    "--no-sandbox",  # or it does not start for root, as in containers
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# subprocess can hand descriptors down, but not renumber them, and not every shell can beyond 9.
LAUNCHER = """
import os, sys
for place, end in enumerate(sys.argv[1:3], 3):
    os.dup2(int(end), place)
    os.close(int(end))
os.execv(sys.argv[3], sys.argv[3:])
"""
# Keys that type nothing, and their codes; others are typed as they are.
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
TYPED = {"Enter": "\r"}


class BrowserError(RuntimeError):
    """The browser says no, or nothing in time."""


class Browser:
    """One browser with one page.

    ``console`` has what the page wrote there ("error: …"), ``exceptions`` what it did not catch,
    ``failures`` what could not be loaded, ``requests`` every URL asked for: all since ``open``.
    """

    def __init__(self, timeout: float = HANG_S) -> None:
        if CHROMIUM is None:
            raise BrowserError("there is no Chromium on the path")
        self.timeout = timeout
        self.console: list[str] = []
        self.exceptions: list[str] = []
        self.failures: list[str] = []
        self.requests: list[str] = []
        self._loaded: set[str] = set()
        self._answers: dict[int, dict[str, Any]] = {}
        self._last_id = 0
        self._session: str | None = None
        self._unread = b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process, self._reader, self._writer = _start(CHROMIUM, self._profile.name)
        try:
            target = self.command("Target.createTarget", url="about:blank")["targetId"]
            attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.command(f"{domain}.enable")
            self.command("Page.setLifecycleEventsEnabled", enabled=True)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser and removes its profile."""
        if self._process.poll() is None:
            try:
                self._session = None
                self.command("Browser.close")
                self._process.wait(5)
            except (OSError, BrowserError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        for end in (self._reader, self._writer):
            os.close(end)
        self._profile.cleanup()

    # ---- what tests do ----

    @property
    def errors(self) -> list[str]:
        """Everything that went wrong since ``open``."""
        written = [line for line in self.console if line.startswith(("error", "assert"))]
        return written + self.exceptions + self.failures

    def open(self, url: str) -> None:
        """Goes to a page and waits until it is loaded."""
        self.evaluate("0")  # so that events of the page before it are behind us
        for log in (self.console, self.exceptions, self.failures, self.requests):
            log.clear()
        answer = self.command("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        loader = answer.get("loaderId")  # none within a page
        self._wait(lambda: loader is None or loader in self._loaded, f"{url} to load")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, if JSON can hold it; promises are awaited."""
        answer = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(_described(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, times: int = 1) -> None:
        """Presses a key, by its name as in ``KeyboardEvent.key``."""
        text = TYPED.get(key, "" if key in KEYS else key)
        event = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        for _ in range(times):
            self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str, across: float = 0.5) -> None:
        """Clicks in the first element that a CSS selector finds, that far across from its left."""
        x, y = self.evaluate(
            f"""(() => {{
                const node = document.querySelector({json.dumps(selector)});
                node.scrollIntoView({{ block: "center", behavior: "instant" }});
                const box = node.getBoundingClientRect();
                return [box.x + box.width * {across}, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.command(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def resize(self, width: int, height: int, *, scale: float = 1) -> None:
        """Gives the page a window of this size, in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, **features: str) -> None:
        """Sets preferences, e.g. ``color_scheme="dark"`` or ``reduced_motion="reduce"``."""
        listed = [
            {"name": "prefers-" + name.replace("_", "-"), "value": value}
            for name, value in features.items()
        ]
        self.command("Emulation.setEmulatedMedia", features=listed)

    def screenshot(
        self, path: str | Path, width: int = 1280, height: int = 900, *, full: bool = False
    ) -> None:
        """Writes a PNG of the window, or with ``full`` of the page in all its height."""
        self.resize(width, height)
        # two frames, so that what depends on the size has been laid out and painted
        frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.evaluate(frame + ".then(() => 0)")
        image = self.command(
            "Page.captureScreenshot", captureBeyondViewport=full, **_clip(self, full)
        )
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def accessibility_tree(self) -> list[dict[str, str]]:
        """Role, name and description of all that assistive technology is told of."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        return [
            {part: node.get(part, {}).get("value", "") for part in ("role", "name", "description")}
            for node in nodes
            if not node["ignored"]
        ]

    # ---- the protocol ----

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol and returns its result."""
        self._last_id += 1
        number = self._last_id
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        unsent = json.dumps(message).encode() + b"\0"
        while unsent:
            unsent = unsent[os.write(self._writer, unsent) :]
        self._wait(lambda: number in self._answers, f"an answer to {method}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _wait(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not done():
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                raise BrowserError(f"waited {self.timeout} s for {what}")
            received = os.read(self._reader, 1 << 16)
            if not received:
                raise BrowserError(f"the browser ended while waiting for {what}")
            *messages, self._unread = (self._unread + received).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        event = message["params"]
        match message["method"]:
            case "Page.lifecycleEvent" if event["name"] == "load":
                self._loaded.add(event["loaderId"])
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])
            case "Network.loadingFailed" if not event.get("canceled"):
                self.failures.append(f"{event['type']} not loaded: {event['errorText']}")
            case "Runtime.exceptionThrown":
                self.exceptions.append(_described(event["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                said = (str(a.get("value", a.get("description"))) for a in event["args"])
                self.console.append(f"{event['type']}: {' '.join(said)}")
            case "Log.entryAdded":
                entry = event["entry"]
                self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")


def _start(program: str, profile: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, the end to read from and the end to write to."""
    ends = [*os.pipe(), *os.pipe()]
    # Above 9: putting one at 3 or 4 must not overwrite another.
    to_browser, writer, reader, from_browser = (
        fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends
    )
    for end in ends:
        os.close(end)
    arguments = (str(to_browser), str(from_browser), program, *OPTIONS)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *arguments, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    return process, reader, writer


def _clip(browser: Browser, full: bool) -> dict[str, Any]:
    if not full:
        return {}
    size = browser.command("Page.getLayoutMetrics")["cssContentSize"]
    return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


def _described(details: dict[str, Any]) -> str:
    thrown = details.get("exception", {})
    return str(thrown.get("description", thrown.get("value", details["text"])))
