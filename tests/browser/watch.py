"""Watches what a page does that it must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request

# In the page: a breach of its Content-Security-Policy also comes as a message on the console, for some kinds only.
BREACHES = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} forbids ${event.blockedURI}`));"""


@dataclass
class Watch:
    faults: list[str] = field(default_factory=list)
    """Errors, requests to other origins, breaches of the policy."""
    requests: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Parts of the texts of faults that a test causes, as by a server that is gone."""

    def add(self, fault: str) -> None:
        if not any(text in fault for text in self.expected):
            self.faults.append(fault)


def watched(page: Page, url: str, watch: Watch) -> None:
    origin = urlsplit(url)[:2]

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            watch.add(f"{message.type}: {message.text}")

    def on_request(request: Request) -> None:
        watch.requests.append(request.url)
        if urlsplit(request.url)[:2] != origin:
            watch.add(f"request: {request.url} is not of {url}")

    page.add_init_script(BREACHES)
    page.on("console", on_console)
    page.on("pageerror", lambda error: watch.add(f"error: {error}"))
    page.on("request", on_request)
