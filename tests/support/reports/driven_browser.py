"""Headless Chromium that a test drives as a person does: by keys, clicks and looks.

It speaks the DevTools protocol over a pipe, which the browser has for that purpose, so that neither
a driver nor its downloads are needed. https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.reports.browser import BROWSER

WAIT_S = 30.0
"""The longest time for an answer of the browser, or for something to be seen."""

_LOOK_S = 0.02

_MODIFIERS = {"Alt": 1, "Control": 2, "Shift": 8}
_KEY_CODES = {"Enter": 13, "Escape": 27, "Tab": 9}


class LeftError(AssertionError):
    """The page was left, for another one, while it was asked something."""


class Page:
    """A page that is open.

    Attributes:
        troubles: What the page has logged as errors and refusals.
    """

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        target = pipe.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = pipe.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    @property
    def troubles(self) -> list[str]:
        """What pages have logged as errors: exceptions, refused requests and contents."""
        return self._pipe.troubles

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("Page.navigate", url=url)
        self.see("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of an expression, of a promise once it is kept."""
        done = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def see(self, condition: str) -> None:
        """Wait until an expression is true."""
        end_s = time.monotonic() + WAIT_S
        while not self._is(condition):
            is_late = time.monotonic() > end_s
            assert not is_late, f"{condition} was not seen: {self.text('body')[-2000:]}"
            time.sleep(_LOOK_S)

    def _is(self, condition: str) -> bool:
        while True:  # each try is of another page
            with suppress(LeftError):
                return bool(self.run(f"Boolean({condition})"))

    def text(self, selector: str) -> str:
        """Return the text that an element shows."""
        shown: str = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return shown

    def click(self, selector: str) -> None:
        """Click an element, once it is there."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.see(f"{found} && !{found}.disabled")
        self.run(f"{found}.click()")

    def choose(self, selector: str, value: str) -> None:
        """Give a field a value, as its user does."""
        self.run(
            f"(field => {{ field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('input', {bubbles: true})); })"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._call("Input.insertText", text=text)

    def press(self, keys: str) -> None:
        """Press a key, or several together: Enter, Shift+Enter."""
        *held, key = keys.split("+")
        event = {
            "key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES[key],
            "modifiers": sum(_MODIFIERS[each] for each in held),
        }  # fmt: skip
        typed = {"text": "\r"} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def size(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Show the page on a screen of another size, light or dark."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def without_scripts(self) -> None:
        """Let pages that are opened from now on run no scripts."""
        self._call("Emulation.setScriptExecutionDisabled", value=True)

    def picture(self) -> bytes:
        """Return what is seen, as PNG."""
        return b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **given: Any) -> Any:
        return self._pipe.call(method, given, self._session)


@contextmanager
def driven_browser(folder: Path) -> Iterator[Page]:
    """Run a browser that reaches this host alone, with its profile in a folder; give a page."""
    assert BROWSER is not None
    flags = (
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "about:blank",
    )  # fmt: skip
    heard, told = os.pipe()  # the browser reads 3 and writes 4
    found, shown = os.pipe()
    words = ("bash", "-c", f'exec "$@" 3<&{heard} 4>&{shown}', "_", *flags)
    with subprocess.Popen(words, pass_fds=(heard, shown), stderr=subprocess.DEVNULL) as process:
        os.close(heard)
        os.close(shown)
        pipe = _Pipe(found, told)
        try:
            yield Page(pipe)
            pipe.call("Browser.close", {})
            process.wait(WAIT_S)
        finally:
            process.kill()
            os.close(found)
            os.close(told)


class _Pipe:
    """Commands to the browser and what it says, each ended by a zero byte."""

    def __init__(self, found: int, told: int) -> None:
        self._found, self._told = found, told
        self._rest = b""
        self._count = 0
        self.troubles: list[str] = []

    def call(self, method: str, given: dict[str, Any], session: str | None = None) -> Any:
        """Send a command; return its result."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": given}
        command |= {} if session is None else {"sessionId": session}
        os.write(self._told, json.dumps(command).encode() + b"\0")
        end_s = time.monotonic() + 2 * WAIT_S
        while True:
            said = self._next(end_s)
            if said.get("id") == self._count:
                if "navigated" in said.get("error", {}).get("message", ""):
                    raise LeftError(said["error"]["message"])
                assert "error" not in said, (method, said["error"])
                return said["result"]
            self._note(said)

    def _next(self, end_s: float) -> dict[str, Any]:
        """Return the next thing that the browser says."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._found], [], [], max(0, end_s - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._found, 1 << 20)
            assert read, "the browser has ended"
            self._rest += read
        said, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(said)
        return event

    def _note(self, said: dict[str, Any]) -> None:
        """Remember an error of a page."""
        if said.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(str(said["params"]["exceptionDetails"]))
        elif said.get("method") == "Log.entryAdded":
            entry = said["params"]["entry"]
            if entry["level"] == "error":
                self.troubles.append(f"{entry['text']} {entry.get('url', '')}")
