"""Who may ask: the Host header of a request, against DNS rebinding.

A web page on the internet can make its own name resolve to 127.0.0.1 and so have the browser
send it our pages. The browser then still writes that name into the Host header: only names and
addresses that mean this machine are answered.
"""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Host of a Host header without its port, in lower case; empty when it is malformed.

    Examples
    --------
    >>> host_of("127.0.0.1:8765"), host_of("[::1]:80"), host_of("a b")
    ('127.0.0.1', '::1', '')
    """
    text = header.strip().lower()
    if text.startswith("["):
        name, closed, port = text[1:].partition("]")
        port = port.removeprefix(":") if not port or port.startswith(":") else "?"
        return name if closed and (not port or port.isdigit()) else ""
    name, colon, port = text.partition(":")
    if colon and not port.isdigit():
        return ""
    return name if name and all(c.isalnum() or c in ".-_" for c in name) else ""


def answers_to(header: str | None, bound: str) -> bool:
    """Whether a request with this Host header is answered by a server bound to `bound`.

    Bound to loopback: loopback names only. Bound elsewhere on purpose: also the bound name and
    plain IP addresses (a rebound name is never one).
    """
    host = host_of(header or "")
    if not host:
        return False
    if is_loopback(host):
        return True
    if is_loopback(bound):
        return False
    if host == bound.lower():
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
