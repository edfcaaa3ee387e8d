"""An S3 server on loopback, and one in front of it that does not know conditional writes."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "jobs"


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """A real S3 protocol server; its address. It takes one request at a time, so that its conditional writes are exclusive."""
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    with _serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextlib.contextmanager
def without_conditions(endpoint: str) -> Iterator[str]:
    """The same server, behind one that drops `If-None-Match`, as older S3-compatible servers do."""

    class Forwarding(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        dropped: ClassVar[tuple[str, ...]] = ("if-none-match", "host", "expect")

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in self.dropped}
            connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header(
                "Content-Length", answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            )
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Forwarding)
    with _serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextlib.contextmanager
def _serving(server: object) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)  # type: ignore[attr-defined]
    thread.start()
    try:
        yield
    finally:
        server.shutdown()  # type: ignore[attr-defined]
        server.server_close()  # type: ignore[attr-defined]
        thread.join()
