"""Every page over real requests: contents, escaping, damage, headers, methods, Host, links."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from served_world import cohort, fetch, item_id, make_run, make_world, serving

from fcforge.serve.hosts import answers_to, host_of
from fcforge.serve.pages import report_policy

SITES = tuple(dict.fromkeys(cohort().site.tolist()))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world") / "consortium")


@pytest.fixture(scope="module")
def server(world):
    with serving(world) as running:
        yield running


def page(server, path):
    status, headers, body = fetch(server, path)
    assert status == 200, body[:500]
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    return body.decode()


def test_overview_lists_everything_and_names_the_damage(server):
    text = page(server, "/")
    for name in ("chain/1.capsule", "evil.capsule", "damaged.capsule", "unpacked", "runs/first"):
        assert f"{item_id(name)}" in text
    assert text.count("Damaged, must not be used.") == 1
    assert text.count("Cannot be read.") == 1
    assert text.count("4 of 4 runs") == 2  # two learners, two orders


def test_run_page_has_table_panels_and_report(server):
    text = page(server, f"/run/{item_id('runs/first')}")
    assert "two made-up hospitals" in text
    assert "majority class" in text
    assert "cumulative" in text
    assert text.count('<svg class="lines"') == 3
    assert all(site in text for site in SITES)
    # one order of two sites: learned sites are right 100 %, sites not learned 0 % of the time
    rows = re.findall(r"<span>cumulative</span></th>\s*<td><span class=\"mean\">([\d.]+)", text)
    assert rows == ["1.000"]
    assert f'href="/run/{item_id("runs/first")}/report.html"' in text


def test_capsule_page_says_what_is_inside(server):
    text = page(server, f"/capsule/{item_id('chain/3.capsule')}")
    assert "In plain words" in text
    assert "No raw scan is stored. That is not the same as private" in text
    assert text.count('class="box here"') == 1
    assert text.count('class="box file"') == 2  # its two ancestors lie beside it
    assert "bootstrap / DOMIAS" in text
    assert "[0.900, 1.000]" in text
    assert "learned " + SITES[0] in text
    assert "glass.png" in text
    assert all(system in text for system in ("cerebellar", "default", "visual"))


@pytest.mark.parametrize("which", ["fc", "uses", "glass"])
def test_pictures_are_png(server, which):
    status, headers, body = fetch(server, f"/capsule/{item_id('chain/2.capsule')}/{which}.png")
    assert status == 200
    assert headers["Content-Type"] == "image/png"
    assert body.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">2I", body[16:24])
    assert (width, height) == ((1152, 396) if which == "glass" else (116, 116))


def test_capsule_without_aal_and_without_held_out(server):
    text = page(server, f"/capsule/{item_id('evil.capsule')}")
    assert "not those of AAL-116" in text
    assert "glass.png" not in text
    assert fetch(server, f"/capsule/{item_id('evil.capsule')}/glass.png")[0] == 404
    text = page(server, f"/capsule/{item_id('unpacked')}")  # majority, no held-out set
    assert "its answer does not depend on the scan" in text
    assert "No synthetic held-out set travels" in text


def test_damaged_capsule_is_shown_as_damaged(server):
    text = page(server, f"/capsule/{item_id('damaged.capsule')}")
    assert "This capsule is damaged and must not be used." in text
    assert '<li class="no">' in text
    assert "In plain words" not in text
    assert fetch(server, f"/capsule/{item_id('damaged.capsule')}/fc.png")[0] == 404


def test_missing_parent_is_drawn_as_missing(world, tmp_path):
    shutil.copy(world / "chain/2.capsule", tmp_path)
    with serving(tmp_path) as server:
        text = page(server, "/")
        assert text.count('class="box gone"') == 1
        assert text.count('class="box file"') == 1


# -- script injection ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/capsule/evil.capsule",
        "/capsule/chain/3.capsule",
        "/capsule/damaged.capsule",
        "/run/runs/evil",
    ],
)
def test_file_contents_are_escaped(server, path):
    kind, _, name = path[1:].partition("/")
    text = page(server, f"/{kind}/{item_id(name)}" if name else "/")
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "onerror=alert" not in re.sub(r"&[#\w]+;[^<>]*", "", text)
    if "evil" in path:
        assert "&lt;script&gt;" in text


def test_evil_file_names_are_escaped(tmp_path):
    (tmp_path / "<img src=x onerror=alert(1)>.capsule").write_bytes(b"PK")
    (tmp_path / "\x1b[31m\udcff.capsule").write_bytes(b"")
    with serving(tmp_path) as server:
        text = page(server, "/")
        assert "<img src=x" not in text
        assert "\x1b" not in text
        assert text.count("Damaged, must not be used.") == 2


def test_report_runs_no_script_but_its_own(server, world):
    path = f"/run/{item_id('runs/first')}/report.html"
    status, headers, body = fetch(server, path)
    assert status == 200
    assert body == (world / "runs/first/report.html").read_bytes()
    policy = headers["Content-Security-Policy"]
    scripts = re.findall(r"<script>(.*?)</script>", body.decode(), flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "sandbox allow-scripts allow-downloads" in policy
    assert "allow-same-origin" not in report_policy()


# -- only what is there, only to read, only for this machine -----------------------------------
TRAVERSAL = [
    "/../../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2fetc%2fpasswd",
    "//etc/passwd",
    "/etc/passwd",
    "/run/../../secret.txt",
    "/run/{run}/../../secret.txt",
    "/run/{run}/experiment.json",
    "/run/{run}/report.html/../../../secret.txt",
    "/capsule/{run}",
    "/capsule/{capsule}/../../secret.txt",
    "/capsule/{capsule}/manifest.json",
    "/capsule/{capsule}/fc.png%00.txt",
    "/style.css/../../secret.txt",
    "\\..\\..\\secret.txt",
    "file:///etc/passwd",
    "http://127.0.0.1/../secret.txt",
    "/run/" + "0" * 12,
    "/run/" + "a" * 100_000,
]


@pytest.mark.parametrize("path", TRAVERSAL)
def test_nothing_else_can_be_reached(server, world, path):
    (world.parent / "secret.txt").write_text("SECRET")
    full = path.format(run=item_id("runs/first"), capsule=item_id("evil.capsule"))
    status, headers, body = fetch(server, full)
    assert status in (400, 404, 414)
    assert b"SECRET" not in body
    assert b"root:" not in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_links_are_not_followed(world, tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    make_run(outside / "run")
    shutil.copy(world / "chain/1.capsule", outside)
    inside.mkdir()
    (inside / "run").symlink_to(outside / "run")
    (inside / "1.capsule").symlink_to(outside / "1.capsule")
    (inside / "all").symlink_to(outside)
    make_run(inside / "own")
    (inside / "own/report.html").unlink()
    (inside / "own/report.html").symlink_to(outside / "1.capsule")
    make_run(inside / "nodes-outside")
    shutil.rmtree(inside / "nodes-outside/nodes")
    (inside / "nodes-outside/nodes").symlink_to(outside / "run/nodes")
    with serving(inside) as server:
        text = page(server, "/")
        assert re.findall(r'href="/(?:run|capsule)/(\w+)"', text) == [
            item_id("nodes-outside"),
            item_id("own"),
        ]
        assert "links are not followed" in text
        assert fetch(server, f"/run/{item_id('own')}/report.html")[0] == 404
        # an item that becomes a link after it was found
        shutil.copy(world / "chain/1.capsule", inside / "late.capsule")
        time.sleep(2.1)
        assert item_id("late.capsule") in page(server, "/")
        (inside / "late.capsule").unlink()
        (inside / "late.capsule").symlink_to(outside / "1.capsule")
        assert b"through a link" in fetch(server, f"/capsule/{item_id('late.capsule')}")[2]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(server, method):
    status, headers, _ = fetch(server, "/", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head_has_the_headers_and_no_body(server):
    got, head = fetch(server, "/"), fetch(server, "/", "HEAD")
    assert head[0] == 200
    assert head[2] == b""
    assert head[1]["Content-Length"] == str(len(got[2]))


@pytest.mark.parametrize("path", ["/", "/style.css", "/nothing"])
def test_headers(server, path):
    _, headers, body = fetch(server, path)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    policy = headers["Content-Security-Policy"]
    assert "http" not in policy
    assert "unsafe" not in policy
    assert b"style=" not in body  # the policy would block it
    assert not re.search(rb"(src|href)=\"(https?:)?//", body)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200), ("localhost:99", 200), ("[::1]:80", 200), ("LOCALHOST", 200),
        ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("10.0.0.5", 421),
        ("localhost@evil.example", 421), ("", 421), ("127.0.0.1:80:80", 421), ("[::1", 421),
    ],
)  # fmt: skip
def test_host_header(server, host, status):
    assert fetch(server, "/style.css", host=host)[0] == status


def test_two_host_headers_are_refused(server):
    raw = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b" 421 " in send(server, raw).splitlines()[0]


def test_bound_elsewhere_on_purpose():
    assert answers_to("10.0.0.5:80", "0.0.0.0")
    assert answers_to("workstation", "workstation")
    assert not answers_to("evil.example", "0.0.0.0")
    assert not answers_to(None, "0.0.0.0")
    assert host_of("a b") == ""


def send(server, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as plug:
        plug.sendall(raw)
        plug.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: plug.recv(65536), b""))


@pytest.mark.parametrize(
    "raw",
    [b"\r\n\r\n", b"\x00\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
     b"BREW <script> HTTP/1.1\r\nHost: localhost\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n", b"GET /" + b"a" * 70_000],
)  # fmt: skip
def test_malformed_requests_do_no_harm(server, raw):
    reply = send(server, raw)
    assert b"<script>" not in reply
    assert b" 200 " not in reply[:20]
    assert fetch(server, "/style.css")[0] == 200


# -- limits and load -----------------------------------------------------------------------------
def npz_bomb(path):
    """80 MB of zeros in 80 kB, as a valid array file."""
    np.savez_compressed(path, site0=np.zeros(20 << 20, np.float32))


REASONS = {
    "bomb": "are too large",
    "not json": "is not as fcforge writes it (UnicodeDecodeError)",
    "deep": "is not as fcforge writes it (RecursionError)",
    "other sites": "written by another version of fcforge",
    "endless": "asks for more than the 50000 runs",
    "no nodes": "cannot be read (No such file or directory)",
    "fifo": "is a link or no file",
    "huge order": "are too many to run",
}


@pytest.mark.parametrize("what", REASONS)
def test_damaged_run_folders(tmp_path, what):
    run = tmp_path / "run"
    make_run(run)
    experiment = run / "experiment.json"
    data = json.loads(experiment.read_text())
    node = next((run / "nodes").iterdir())
    if what == "bomb":
        npz_bomb(node / "scores.npz")
    elif what == "not json":
        experiment.write_bytes(b"\xff{")
    elif what == "deep":
        experiment.write_text("[" * 100_000)
    elif what == "other sites":
        experiment.write_text(json.dumps({**data, "sites": ["a", 3]}))
    elif what == "endless":
        data["experiment"]["seeds"] = list(range(60_000))
        experiment.write_text(json.dumps(data))
    elif what == "no nodes":
        (node / "meta.json").unlink()
    elif what == "fifo":
        (node / "scores.npz").unlink()
        os.mkfifo(node / "scores.npz")
    else:
        experiment.write_text(json.dumps({**data, "sites": [f"s{k}" for k in range(30)]}))
    with serving(tmp_path) as server:
        text = page(server, f"/run/{item_id('run')}")
        assert "This run folder cannot be read." in text
        assert REASONS[what] in text


def test_limits_are_told(tmp_path):
    for k in range(305):
        (tmp_path / f"{k}.capsule").write_bytes(b"")
    with serving(tmp_path) as server:
        text = page(server, "/")
        assert "the search stopped at its limits" in text
        assert text.count("Damaged, must not be used.") == 300


def test_200_requests_at_once(server):
    """All are answered, also the slow pages that nobody has asked for before."""
    paths = ["/", "/style.css", f"/run/{item_id('runs/first')}", "/nothing"]
    paths += [
        f"/capsule/{item_id('chain/1.capsule')}{end}" for end in ("", "/fc.png", "/glass.png")
    ]
    wanted = [paths[k % len(paths)] for k in range(200)]
    with ThreadPoolExecutor(200) as pool:
        found = list(pool.map(lambda p: fetch(server, p), wanted))
    assert [status for status, _, _ in found] == [404 if p == "/nothing" else 200 for p in wanted]
    assert all(int(h["Content-Length"]) == len(body) for _, h, body in found)
    for path in paths:
        bodies = {body for (_, _, body), p in zip(found, wanted, strict=True) if p == path}
        assert len(bodies) == 1


def test_silent_connections_do_not_block(server):
    plugs = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(60)]
    try:
        assert fetch(server, "/style.css")[0] == 200
    finally:
        for plug in plugs:
            plug.close()


def test_serving_changes_no_file(tmp_path):
    make_run(tmp_path / "run")
    before = {p: (p.stat().st_mtime_ns, p.is_file() and zlib.crc32(p.read_bytes()))
              for p in tmp_path.rglob("*")}  # fmt: skip
    with serving(tmp_path) as server:
        for path in ("/", f"/run/{item_id('run')}", f"/run/{item_id('run')}/report.html"):
            assert fetch(server, path)[0] == 200
    after = {p: (p.stat().st_mtime_ns, p.is_file() and zlib.crc32(p.read_bytes()))
             for p in tmp_path.rglob("*")}  # fmt: skip
    assert after == before
