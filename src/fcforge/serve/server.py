"""The server: standard library, read-only, for this machine, with every door shut.

Only GET and HEAD are answered, only for Host headers that mean this machine, only for the
addresses of `fcforge.serve.pages`. Nothing is written, uploaded or fetched from elsewhere.
"""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fcforge.serve.hosts import answers_to
from fcforge.serve.pages import Answer, Pages, message

MOST_CONNECTIONS = 512
PATIENCE = 20.0  # seconds a silent connection is kept
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """One thread per connection, at most `MOST_CONNECTIONS` of them."""

    daemon_threads = True
    request_queue_size = 256  # the default of 5 turns away a burst of requests

    def __init__(self, root: Path, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.pages = Pages(root)
        self.bound = host
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Bind without asking the name server who we are."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def url(self) -> str:
        """Where the overview is."""
        host = f"[{self.bound}]" if ":" in self.bound else self.bound
        return f"http://{host}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or close it when there are too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started: turn this one away, go on
            self._slots.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error; anything else is told in one line."""
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(f"fcforge serve: {type(error).__name__}: {error}", file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    server_version, sys_version = "fcforge", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Send a page."""
        self._reply(self._answer())

    do_HEAD = do_GET

    def _answer(self) -> Answer:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not answers_to(hosts[0], self.server.bound):
            return message(
                421, "Wrong address", "Open this page by the address that fcforge printed."
            )
        return self.server.pages.answer(self.path.partition("?")[0])

    def _refuse(self) -> None:
        answer = message(405, "Read-only", "This page can be looked at, not written to.")
        self._reply(answer, {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _reply(self, answer: Answer, more: dict[str, str] | None = None) -> None:
        self.send_response(answer.status)
        sent = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            "Content-Security-Policy": answer.policy,
            **HEADERS,
            **answer.headers,
            **(more or {}),
        }
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """A malformed request gets a page of ours, without its own words in it."""
        if not hasattr(self, "command") or self.command is None:
            self.command = "GET"
        self.request_version = getattr(self, "request_version", "") or "HTTP/1.0"
        self.close_connection = True
        self._reply(message(int(code), "Not understood", "The request was malformed."))

    def log_message(self, *_: Any) -> None:
        """Say nothing: who looked at what stays unrecorded."""


def make_server(root: str | Path, host: str = "127.0.0.1", port: int = 0) -> PageServer:
    """A server that is bound but not yet serving; use it as a context manager.

    Parameters
    ----------
    root : path
        Folder to show.
    host, port
        Where to listen; port 0 takes a free one (see `PageServer.url`).
    """
    server = PageServer(Path(root), host, port)
    server.pages.warm()
    return server
