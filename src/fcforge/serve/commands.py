"""What ``fcforge serve`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fcforge.errors import FCForgeError
from fcforge.serve.hosts import is_loopback
from fcforge.serve.server import make_server


def serve_command(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until Ctrl-C.

    Parameters
    ----------
    folder : path
        Runs and capsules are looked for below it; nothing outside is ever read.
    host, port
        Where to listen. Port 0 takes a free one.
    say : callable
        Told the address.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FCForgeError("no such folder.", where=str(root), do="Give a folder to look into.")
    try:
        server = make_server(root, host, port)
    except (OSError, UnicodeError) as error:
        raise FCForgeError(
            f"cannot listen on {host}:{port} ({getattr(error, 'strerror', None) or error}).",
            do="Choose another --port (0 takes a free one) or --host.",
        ) from error
    with server:
        say(f"{server.url} shows what is below {root} (read-only; Ctrl-C stops it)")
        if not is_loopback(host):
            say(f"WARNING: everyone who can reach {host} can read these pages; there is no login.")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("stopped")
