"""Shared fixtures: the real data where it is, a browser, a quiet torch."""

import os
import shutil
from pathlib import Path

import pytest
import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
# the tester's own keyring decides nothing here
os.environ["FCFORGE_KEYRING"] = "/nonexistent/keyring.json"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real ABIDE files, or skip with the reason."""
    root = Path(
        os.environ.get("FCFORGE_DATA", Path(__file__).parents[2] / "shared" / "data")
    )
    if not (root / "abide1_aal116.npz").exists():
        pytest.skip(f"real ABIDE data not found at {root} (set FCFORGE_DATA)")
    return root


CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",  # a click must not wait for smooth scrolling
    # offline: every name but the served address fails to resolve
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Debian's chromium, headless and offline, or skip with the reason; see `browsing`."""
    for needed in (CHROMIUM, DRIVER):
        if not shutil.which(needed):
            pytest.skip(
                f"{needed} is not installed (Debian: chromium, chromium-driver)"
            )
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()
