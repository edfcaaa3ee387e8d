"""The dashboard in a real browser: it loads, follows a job, survives the driver's restart, and shows a real failure."""

import re
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.support.dashboards import dashboard
from tests.support.large_job import START_S, large_job
from tests.support.scripted import scripted

BEGIN = datetime(2024, 1, 1)
FIXTURES = Path(__file__).parents[1] / "fixtures" / "telemetry"
RECORDED = FIXTURES / "two-of-four-nodes-killed.jsonl"


def expect(locator):
    """Playwright's waiting assertions."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=60_000)

    return waiting(locator)


def engine(folder: Path, runner: InlineRunner, epochs: int = 40) -> Engine:
    """A job of two queries on these nodes, at a checkpoint URL with telemetry beside it."""
    rows = [
        pl.DataFrame({"at": [BEGIN + timedelta(seconds=number)] * 40, "who": [f"user-{index}" for index in range(40)]})
        for number in range(epochs)
    ]
    job = TopologyBuilder("letters", key_groups=4)
    source = job.source("letters", scripted([[table] for table in rows]), event_time="at")
    source.aggregate("totals", key="who", n=count()).query(priority=9)
    source.window("busy", "10s", key="who", n=count()).query(priority=2)
    options = RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=4, local_root=str(folder / "local"))
    return Engine(job.build(), runner, options, TelemetryLog(folder / "job" / "telemetry.jsonl"))


def text(page, selector: str):
    """An element that is waited for."""
    return expect(page.locator(selector))


def test_page_follows_a_job_through_a_loss_of_nodes_and_a_restart(tmp_path, open_page):
    """A real engine loses nodes and its driver; the page shows each, without being loaded again."""
    runner = InlineRunner(nodes={f"n{index}": Member() for index in range(4)})
    job = engine(tmp_path, runner)
    job.start()
    for _ in range(6):
        job.step()
    with dashboard(str(tmp_path / "job")) as address:
        page = open_page(address)
        text(page, "#job").to_have_text("letters")
        text(page, "#driver").to_have_text("running")
        text(page, "#figures").to_contain_text("2 of 2")
        text(page, "#graph").to_contain_text("totals")
        text(page, "#storage-body").to_contain_text("CheckpointPublished")
        version = int(page.locator("body").get_attribute("data-version"))

        runner.kill("n0", "n1", "n2")
        job.observe()
        text(page, "#nodes-note").to_have_text("1 up, 3 lost")
        text(page, "#recovery-body").to_contain_text("nodes were lost")
        text(page, "#decision-list").to_contain_text("down busy, totals")
        assert int(page.locator("body").get_attribute("data-version")) > version

        for node in ("n4", "n5", "n6"):
            runner.add(node)
        job.finish_recovery()
        job.step()
        text(page, "#recovery-body").to_contain_text("Over: nodes were lost")
        text(page, "#figures").to_contain_text("2 of 2")

        # The first driver just vanishes; another one takes the job over.
        second = engine(tmp_path, InlineRunner(nodes={"m0": Member(), "m1": Member()}))
        second.start()
        second.step()
        text(page, "#master").to_contain_text("generation 2")
        text(page, "#nodes-note").to_have_text("2 up, 0 lost")
        text(page, "#decision-list").to_contain_text("driver generation 2 started")
        second.close()
        text(page, "#driver").to_have_text("stopped")


def test_page_connects_again_after_the_dashboard_itself_was_started_again(tmp_path, open_page):
    """Whoever leaves the page open sees it go on."""
    job = engine(tmp_path, InlineRunner(2))
    job.start()
    job.step()
    with dashboard(str(tmp_path / "job")) as address:
        page = open_page(address)
        text(page, "#driver").to_have_text("running")
        port = int(address.rstrip("/").rsplit(":", 1)[1])
    text(page, "#driver").to_have_text("dashboard not reachable")
    job.step()
    job.close()
    with dashboard(str(tmp_path / "job"), port):
        text(page, "#driver").to_have_text("stopped")


@pytest.fixture(scope="module")
def recorded():
    """A dashboard over the telemetry of a real cluster of four nodes, two of which were killed."""
    with dashboard(str(RECORDED)) as address:
        yield address


def test_a_real_failure_is_explained_with_one_click(recorded, open_page):
    """Two of four nodes of a real Spark cluster were killed: who was lost, what came back when, and why."""
    page = open_page(recorded)
    text(page, "#recovery-body").to_contain_text("2 nodes lost")
    text(page, "#figures").to_contain_text("15 of 15")
    page.locator("#decision-kind").select_option(label="plans and moves")
    page.locator("#decision-list button").last.click()
    text(page, "#detail").to_be_visible()
    text(page, "#detail-body").to_contain_text("Strategy incremental")
    text(page, "#detail-body table").to_contain_text("decision")
    page.keyboard.press("Escape")
    text(page, "#detail").to_be_hidden()


def test_page_is_used_with_the_keyboard_alone(recorded, open_page):
    """Filter, move, open, close, change colours: no mouse."""
    page = open_page(recorded)
    text(page, "#queries-note").to_contain_text("15")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("5")
    page.locator("#query-table .body").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    name = page.evaluate("document.activeElement.dataset.query")
    page.keyboard.press("Enter")
    text(page, "#detail-title").to_have_text(f"Query {name}")
    text(page, "#detail-body").to_contain_text("Outages")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type(name)
    text(page, "#queries-note").to_contain_text("shown")
    page.locator("#query-filter").press("Tab")
    assert page.evaluate("document.activeElement.id") == "query-status"
    page.locator("#graph .box").first.focus()
    page.keyboard.press("Enter")
    text(page, "#detail-title").to_contain_text("Operator")


def test_dark_and_light_follow_the_system_and_stay_readable(recorded, open_page):
    """Text on its background has a contrast of at least 4.5 in both."""
    for scheme in ("dark", "light"):
        page = open_page(recorded, scheme=scheme)
        text(page, "#queries-note").to_contain_text("15")
        for selector in ("#figures dt", "#figures dd", "#queries-note", ".table .name", "#decision-list .kind", "nav a"):
            colours = page.locator(selector).first.evaluate(
                "e => [getComputedStyle(e).color, getComputedStyle(document.querySelector('section')).backgroundColor]"
            )
            assert contrast(*colours) >= 4.5, f"{selector} in {scheme}: {colours}"


def test_500_queries_and_100_nodes_are_filtered_and_scrolled_quickly(tmp_path, open_page):
    """Only rows in sight are in the page; sorting, filtering and scrolling to the end work."""
    path = tmp_path / "large.jsonl"
    with TelemetryLog(path) as log:
        for event in large_job(500, 100, 40, 60):
            if event.at_s <= START_S + 40:
                log.write(event)
    with dashboard(str(path)) as address:
        page = open_page(address)
        text(page, "#queries-note").to_contain_text("of 500 queries live")
        assert page.locator("#query-table .row").count() < 40
        page.locator("#query-table .body").focus()
        page.keyboard.press("End")
        text(page, "#query-table .row:focus").to_have_count(1)
        page.locator("#query-filter").fill("query-49")
        text(page, "#queries-note").to_contain_text("10 shown")
        page.locator("#query-filter").fill("")
        page.locator("#query-table .head button", has_text="status").click()
        assert re.search("down|coming back", page.locator("#query-table .row[data-at='0'] .status").inner_text())
        text(page, "#node-grid .node").to_have_count(60)
        page.locator("#node-lost").check()
        text(page, "#node-grid .node").to_have_count(100)
        drawn_ms = page.evaluate("""async () => {
            const { updateQueries } = await import('/assets/queries.js');
            const now = await (await fetch('/api/now')).json();
            const began = performance.now(); for (let i = 0; i < 20; i += 1) updateQueries(now); return (performance.now() - began) / 20;
        }""")
        assert drawn_ms < 100


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, as the accessibility guidelines define it."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of rgb(...)."""
    parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
