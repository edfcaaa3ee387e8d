"""The dashboard's server: read only, on this machine only, nothing from outside."""

import re
import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from resurge.dashboard.app import ASSETS, build_app
from resurge.dashboard.feed import Feed
from resurge.dashboard.serving import feed_of, listen
from resurge.errors import DashboardError
from resurge.telemetry.log import TelemetryLog
from tests.support.telemetry import steady_run


@pytest.fixture
def log(tmp_path):
    """The telemetry of a steady run."""
    path = tmp_path / "telemetry.jsonl"
    with TelemetryLog(path) as telemetry:
        for event in steady_run(12):
            telemetry.write(event)
    return path


@pytest.fixture
def client(log):
    """The application over a log that was read once."""
    feed = Feed(log)
    feed.poll()
    return TestClient(build_app(feed), base_url="http://127.0.0.1")


def test_answers_are_json_of_the_model(client):
    """What the page shows can be read by a script."""
    assert client.get("/api/now").json()["figures"]["epoch"] == 12
    assert client.get("/api/history").json()["strips"]["busy"].strip("1") == ""
    assert client.get("/api/query/busy").json()["priority"] == 5
    assert client.get("/api/decision/0").json()["kind"] == "started"
    missing = client.get("/api/query/nothing")
    assert missing.status_code == 404
    assert missing.json() == {"problem": "there is no query called 'nothing'"}


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
@pytest.mark.parametrize("path", ["/", "/api/now", "/api/query/busy", "/assets/main.js"])
def test_nothing_can_be_changed(client, method, path):
    """Only GET is answered."""
    assert getattr(client, method)(path).status_code == 405


def test_other_sites_cannot_read_it_through_a_name_of_their_own(client):
    """A request for another host name, as by a rebound DNS name, is refused."""
    assert client.get("/api/now", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/api/now", headers={"host": "localhost:8473"}).status_code == 200


def test_page_asks_nobody_else(client):
    """No asset names another site, and the browser is told to ask none."""
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]
    for asset in ASSETS.iterdir():
        if asset.suffix in {".html", ".css", ".js"} and not asset.name.startswith("uPlot"):
            found = [address for address in re.findall(r"https?://[^\s\"')]+", asset.read_text()) if "www.w3.org" not in address]
            assert not found, f"{asset.name} names {found}"


def test_every_asset_that_the_page_names_is_there(client):
    """The page, its styles and every module that is imported."""
    page = client.get("/").text
    named = set(re.findall(r'(?:src|href)="(/assets/[^"]+)"', page))
    for module in ASSETS.glob("*.js"):
        named |= {f"/assets/{name}" for name in re.findall(r'from "\./([^"]+)"', module.read_text())}
    assert len(named) > 8
    for address in named:
        assert client.get(address).status_code == 200, address
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    for module in ASSETS.glob("*.js"):
        wanted = set(re.findall(r'(?:get|getElementById)\("([^"]+)"\)', module.read_text()))
        assert wanted <= ids, f"{module.name} wants {wanted - ids}"


def test_target_is_a_log_or_a_job(log, tmp_path):
    """A folder with telemetry, a log, or an error that says what was expected."""
    assert feed_of(str(log)).url is None
    assert feed_of(str(tmp_path)).log == log
    with pytest.raises(DashboardError, match="expected a telemetry log"):
        feed_of(str(tmp_path / "missing.jsonl"))
    with pytest.raises(DashboardError, match="expected the checkpoint URL"):
        feed_of(str(tmp_path / "nothing"))
    (tmp_path / "job.toml").write_text('target = "job.py"\n')
    with pytest.raises(DashboardError, match="has no events; expected a telemetry log"):
        feed_of(str(tmp_path / "job.toml"))


def test_port_that_is_taken_is_refused_in_one_line():
    """The user learns which and what to do."""
    refused = pytest.raises(DashboardError, match=r"cannot listen on 127\.0\.0\.1, port \d+.*--port")
    with listen("127.0.0.1", 0) as taken, refused:
        listen("127.0.0.1", taken.getsockname()[1])


def test_missing_libraries_are_named_with_the_extra():
    """Whoever installed without the extra is told how to get it."""
    code = "import sys; sys.modules['uvicorn'] = None\nfrom resurge.dashboard.serving import serve\nserve(None, '127.0.0.1', 0, print)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'resurge[dashboard]'" in ended.stderr
