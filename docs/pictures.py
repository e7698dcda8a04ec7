"""Pictures of today's pages for README and the documentation.

    python docs/pictures.py [RUN]      # RUN: a finished run folder; without it the demo is run
    python docs/pictures.py --scans FOLDER      # output of `fcforge fc` instead of made-up scans

Chromium opens the report of a run and the quality pages of made-up scans (made_scans.py). Their
first screens become docs/images/report.png, subject_page.png and group_page.png. Each picture
carries a digest of the page templates; tests/test_pictures.py fails as soon as the templates differ
from a picture's.
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

IMAGES = Path(__file__).parent / "images"
REPORT = IMAGES / "report.png"
SUBJECT = IMAGES / "subject_page.png"
GROUP = IMAGES / "group_page.png"
PICTURES = (REPORT, SUBJECT, GROUP)
RESTLESS = "sub-05.html"  # a made-up subject who moved
WIDTH, HEIGHT = 1240, 1850  # to the last row of the results table
SCANS_HEIGHT = 1900
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


def take(page: Path, picture: Path, height: int = HEIGHT) -> None:
    """Write the first screen of a page as a PNG that carries the digest of the templates.

    Parameters
    ----------
    page : Path
        HTML file.
    picture : Path
        PNG file to write.
    height : int
        Of the screen, in pixels.
    """
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}/profile"]
        command += [f"--window-size={WIDTH},{height}", f"--screenshot={shot}"]
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


def fcforge(*arguments: str) -> None:
    """Run a command of fcforge."""
    subprocess.run([sys.executable, "-m", "fcforge.cli", *arguments], check=True)


def main() -> None:
    """Take the pictures of a run's report and of the quality pages of scans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="finished run folder")
    parser.add_argument("--scans", type=Path, help="output of fcforge fc")
    given = parser.parse_args()
    run, scans = given.run, given.scans
    with tempfile.TemporaryDirectory() as folder:
        if run is None:
            run = Path(folder, "demo")
            fcforge("demo", "--out", str(run))
        if scans is None:
            from made_scans import make_study

            make_study(Path(folder, "fmriprep"))
            scans = Path(folder, "fc")
            fcforge("fc", str(Path(folder, "fmriprep")), str(scans))
        take(run / "report.html", REPORT)
        take(scans / RESTLESS, SUBJECT, SCANS_HEIGHT)
        take(scans / "group.html", GROUP, SCANS_HEIGHT)
    print(f"wrote {', '.join(str(picture) for picture in PICTURES)}")


if __name__ == "__main__":
    main()
