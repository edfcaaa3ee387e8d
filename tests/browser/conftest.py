"""A real browser: Debian's Chromium, driven by Playwright. Where it is missing, tests are skipped and say so."""

import shutil
from collections.abc import Iterator

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Chromium, started once."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine: install it with apt-get install chromium (make setup does where it may)")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make setup installs it")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open an address in a page of its own; errors of its scripts fail the test."""
    errors: list[str] = []
    pages = []

    def open_at(address: str, *, width: int = 1500, height: int = 1000, scheme: str = "light"):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: errors.append(request.url) if not is_local(request.url) else None)
        page.goto(address)
        pages.append(page)
        return page

    yield open_at
    for page in pages:
        page.close()
    assert not [error for error in errors if "ERR_CONNECTION_REFUSED" not in error and "ERR_INCOMPLETE_CHUNKED" not in error], (
        errors
    )


def is_local(url: str) -> bool:
    """Whether a request stays on this machine."""
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))
