"""Take the dashboard's pictures of the documents: `python scripts/draw_dashboard.py out/demo.jsonl`, the telemetry of `resurge demo`.

Needs Chromium. A picture in the middle of a recovery is one of the telemetry up to then, with that moment as now.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PICTURES = ROOT / "docs" / "pictures"


def cut(lines: list[str], folder: Path, name: str, until: int) -> Path:
    """The log up to a line, as if that had been written now."""
    path = folder / f"{name}.jsonl"
    told = [json.loads(line) for line in lines[:until]]
    later_s = time.time() - told[-1]["at_s"]
    path.write_text("".join(json.dumps(event | {"at_s": event["at_s"] + later_s}) + "\n" for event in told))
    return path


def moments(lines: list[str]) -> tuple[int, int]:
    """After how many lines all is well and several epochs are done; and after how many some queries, not all, are back."""
    told: list[dict[str, Any]] = [json.loads(line) for line in lines]
    lost = next(index for index, event in enumerate(told) if event["type"] == "NodesKilled")
    back = [index for index, event in enumerate(told) if index > lost and event["type"] == "QueriesChanged" and event["back"]]
    return lost, back[0] + 3


def main(log: Path) -> None:
    """Serve each part of the log and take its picture."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import FLAGS
    from tests.support.dashboards import dashboard

    lines = log.read_text().splitlines(keepends=True)
    steady, amid = moments(lines)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        browser = running.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme="light")
        with dashboard(str(cut(lines, Path(folder), "steady", steady))) as address:
            page.set_viewport_size({"width": 1400, "height": 900})
            page.goto(address)
            page.wait_for_timeout(2_000)
            page.screenshot(path=PICTURES / "dashboard-steady.png")
        page.set_viewport_size({"width": 1400, "height": 1000})
        with dashboard(str(cut(lines, Path(folder), "amid", amid))) as address:
            page.goto(address)
            page.wait_for_timeout(2_000)
            page.screenshot(path=PICTURES / "dashboard.png")
            page.keyboard.press("4")
            page.wait_for_timeout(1_000)
            page.screenshot(path=PICTURES / "dashboard-topology.png")
            page.keyboard.press("2")
            page.locator("#decision-kind").select_option(label="plans and moves")
            page.locator("#decision-list button").first.click()
            page.wait_for_timeout(1_000)
            page.screenshot(path=PICTURES / "dashboard-why.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
