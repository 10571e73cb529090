from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.scripted import NOW
from tests.browser.served import Script, served
from tests.browser.watch import Watch, watched

Open: TypeAlias = Callable[..., Page]

# Four fonts and no settings of the machine: the pictures are the same on each that has fonts-dejavu-core.
FONT_FILES = [f"DejaVuSans{kind}.ttf" for kind in ("", "-Bold", "Mono", "Mono-Bold")]
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}</dir>
  <cachedir>{folder}/cache</cachedir>
  <match>
    <test name="family" compare="not_contains"><string>Mono</string></test>
    <edit name="family" mode="assign" binding="strong"><string>DejaVu Sans</string></edit>
  </match>
</fontconfig>
"""
SECONDS = 20
"""For a page to show what a test waits for: two browsers share the cores, and one draws a thousand tasks."""
expect.set_options(timeout=SECONDS * 1000)
ARGUMENTS = ["--no-sandbox", "--enable-precise-memory-info", "--disable-lcd-text"]


@pytest.fixture(scope="session")
def own_network() -> None:
    """A network namespace of its own for the browser and the servers, if the tests may make one (they run as root):
    nothing can leave it. And Chromium drops its connections, those to this machine too, whenever an interface of its
    namespace comes or goes, as when a container starts (ERR_NETWORK_CHANGED)."""
    if os.geteuid() == 0 and ctypes.CDLL(None).unshare(0x40000000) == 0:  # CLONE_NEWNET: this thread and what it starts
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@pytest.fixture(scope="session")
def browser(own_network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "chromium is missing: apt install chromium fonts-dejavu-core"
    folder = tmp_path_factory.mktemp("fonts")
    (folder / "fonts.conf").write_text(FONTS.format(folder=folder))
    for name in FONT_FILES:
        (folder / name).symlink_to(Path("/usr/share/fonts/truetype/dejavu") / name)
    with sync_playwright() as playwright:
        environ: dict[str, str | float | bool] = {"FONTCONFIG_FILE": str(folder / "fonts.conf"), "LANG": "C.UTF-8"}
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS, env={**_path(), **environ})
        yield browser
        browser.close()


def _path() -> dict[str, str | float | bool]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())}


@pytest.fixture
def watch() -> Watch:
    """What the pages of this test have asked for and complained of. A test that expects some of it takes it out."""
    return Watch()


@pytest.fixture
def open_page(browser: Browser, watch: Watch) -> Iterator[Open]:
    """Opens an address in a window of its own. At the end of the test no page may have had an error, asked another
    origin, or broken its policy."""
    with ExitStack() as stack:

        def open_(
            url: str,
            *,
            size: tuple[int, int] = (1280, 800),
            dark: bool = False,
            clock: bool = True,
            touch: bool = False,
            reduced: bool = False,
            heading: bool = True,
        ) -> Page:
            context = browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light",
                timezone_id="UTC", locale="en-GB", has_touch=touch, is_mobile=touch,
                reduced_motion="reduce" if reduced else "no-preference",
            )  # fmt: skip
            stack.callback(context.close)
            page = context.new_page()
            watched(page, url, watch)
            if clock:
                page.clock.set_fixed_time(NOW)
            page.goto(url)
            if heading:
                page.wait_for_selector("#header h1:not(:text-is('trainer'))")
            return page

        yield open_
        assert watch.faults == []


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def opened(script: Script, open_page: Open) -> Iterator[Callable[..., Page]]:
    """Opens a view of the scripted job's page."""
    with ExitStack() as stack:

        def open_(view: str = "", **options: object) -> Page:
            if not script.url:
                stack.enter_context(served(script))
            return open_page(f"{script.url}#{view}", **options)

        yield open_
