"""A page in headless Chromium, by its debugging protocol over a pipe: no driver and no library are needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_LIMIT_S = 60.0
_IN, _OUT = 3, 4  # the descriptors of --remote-debugging-pipe


class Browser:
    """One tab. `errors` holds what its console and its scripts complained about."""

    def __init__(self, to: int, come: int) -> None:
        self._to, self._come = to, come
        self._buffer, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _LIMIT_S
        while time.monotonic() < until:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
        raise TimeoutError(method)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._come], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            chunk = os.read(self._come, 1 << 16)
            assert chunk, "Chromium has ended"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer = json.loads(text)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return dict(answer)

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(parameters["entry"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters))

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Go to a page, and wait until it is there."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.colours(dark)
        self._call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def colours(self, dark: bool) -> None:
        """Prefer light or dark ones."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression: str, limit_s: float = 30.0) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + limit_s
        while not (value := self.run(expression)):
            assert time.monotonic() < end, f"never true: {expression}; {self.errors}"
            time.sleep(0.1)
        return value

    def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with an empty profile. It and all that it started are gone afterwards."""
    assert PROGRAM is not None
    to_them, to = os.pipe()
    come, from_them = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += ["--disable-background-networking", "--remote-debugging-pipe", "--hide-scrollbars"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *options, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, preexec_fn=_as_pipe(to_them, from_them), start_new_session=True,  # noqa: PLW1509  (two pipes)
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
        )  # fmt: skip
        try:
            os.close(to_them)
            os.close(from_them)
            yield Browser(to, come)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to)
            os.close(come)


def _as_pipe(read: int, write: int) -> Callable[[], None]:
    """Puts the two ends where Chromium looks for them."""

    def place() -> None:
        high_read, high_write = os.dup2(read, 60), os.dup2(write, 61)
        os.dup2(high_read, _IN)
        os.dup2(high_write, _OUT)
        os.close(high_read)
        os.close(high_write)

    return place
