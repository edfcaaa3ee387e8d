"""The web application: one page, its assets, and read-only answers. It writes nothing and fetches nothing from outside."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from resurge.dashboard.feed import Feed

ASSETS = Path(__file__).parent / "assets"
POLL_S = 0.5
HISTORY_EVERY_S = 2.0
CLOCK_S = 5.0
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def build_app(feed: Feed, hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]")) -> Starlette:
    """The application over a feed; requests for other host names are refused, so that no other site can read it."""

    async def page(request: Request) -> Response:
        return FileResponse(ASSETS / "index.html", headers=HEADERS)

    async def now(request: Request) -> Response:
        return _json(await run_in_threadpool(feed.now))

    async def history(request: Request) -> Response:
        return _json(await run_in_threadpool(feed.history))

    async def topology(request: Request) -> Response:
        return _json(await run_in_threadpool(feed.topology))

    async def detail(request: Request) -> Response:
        kind, name = request.path_params["kind"], request.path_params["name"]
        return _found(await run_in_threadpool(feed.detail, kind, name), kind, name)

    async def stream(request: Request) -> Response:
        return StreamingResponse(messages(feed), media_type="text/event-stream", headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/now", now),
            Route("/api/history", history),
            Route("/api/topology", topology),
            Route("/api/stream", stream),
            Route("/api/{kind}/{name:path}", detail),
            Mount("/assets", StaticFiles(directory=ASSETS)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            Middleware(GZipMiddleware, minimum_size=2000),
        ],
        lifespan=lambda app: _polling(feed),
    )


async def messages(feed: Feed) -> AsyncIterator[bytes]:
    """Server-sent events: `topology` when it changed, `history` every few seconds, `now` whenever something happened."""
    loop = asyncio.get_running_loop()
    drawn: object = None
    version, told_s, history_s, history_version = -1, 0.0, -HISTORY_EVERY_S, -1
    while True:
        now_s = loop.time()
        if feed.job.topology is not drawn and feed.job.topology is not None:
            drawn = feed.job.topology
            yield _message("topology", await run_in_threadpool(feed.topology))
        if feed.job.version != history_version and now_s - history_s >= HISTORY_EVERY_S:
            history_s, history_version = now_s, feed.job.version
            yield _message("history", await run_in_threadpool(feed.history))
        # Ages grow while nothing happens.
        if feed.job.version != version or now_s - told_s >= CLOCK_S:
            version, told_s = feed.job.version, now_s
            yield _message("now", await run_in_threadpool(feed.now))
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def _polling(feed: Feed) -> AsyncIterator[None]:
    async def poll() -> None:
        while True:
            await run_in_threadpool(feed.poll)
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, HEADERS, "application/json")


def _found(value: Any, kind: str, name: str) -> Response:
    return _json({"problem": f"there is no {kind} called {name!r}"}, 404) if value is None else _json(value)


def _message(kind: str, value: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
