"""Pictures of today's pages for README and the documentation.

    python docs/pictures.py [RUN]      # RUN: a finished run folder; without it the demo is run

Chromium opens the report of a run and its first screen becomes docs/images/report.png. The picture
carries a digest of the page templates; tests/test_pictures.py fails as soon as the templates differ
from the picture's.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

REPORT = Path(__file__).parent / "images" / "report.png"
WIDTH, HEIGHT = 1240, 1180
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def templates_digest() -> str:
    """Return the SHA-256 of all page templates and of the style sheet."""
    digest = hashlib.sha256()
    folder = files("fcforge.report").joinpath("templates")
    for template in sorted(folder.iterdir(), key=lambda entry: entry.name):
        digest.update(template.name.encode())
        digest.update(template.read_bytes())
    return digest.hexdigest()


def take(page: Path, picture: Path) -> None:
    """Write the first screen of a page as a PNG that carries the digest of the templates.

    Parameters
    ----------
    page : Path
        HTML file.
    picture : Path
        PNG file to write.
    """
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}/profile"]
        command += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}"]
        subprocess.run(
            [*command, page.resolve().as_uri()], check=True, capture_output=True
        )
        with Image.open(shot) as image:
            about = PngInfo()
            about.add_text("templates", templates_digest())
            flat = image.convert("RGB").quantize(128)
            flat.save(picture, optimize=True, pnginfo=about)


def digest_of(picture: Path) -> str:
    """Return the digest of the templates that a picture shows."""
    with Image.open(picture) as image:
        return str(image.info.get("templates", ""))


def main() -> None:
    """Take the picture of a run's report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="finished run folder")
    run = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder:
        if run is None:
            run = Path(folder, "demo")
            command = [sys.executable, "-m", "fcforge.cli", "demo", "--out", str(run)]
            subprocess.run(command, check=True)
        take(run / "report.html", REPORT)
    print(f"wrote {REPORT}")


if __name__ == "__main__":
    main()
