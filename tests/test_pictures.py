"""Pictures in README and the documentation show today's pages."""

import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import pictures  # noqa: E402


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda path: path.stem)
def test_pictures_show_todays_templates(picture):
    message = "the page templates have changed: run `python docs/pictures.py`"
    assert pictures.digest_of(picture) == pictures.templates_digest(), message


@pytest.mark.browser
def test_a_page_becomes_a_picture(tmp_path):
    if not shutil.which(pictures.CHROMIUM):
        pytest.skip(f"{pictures.CHROMIUM} is not installed (Debian: chromium)")
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text("<body style='background:#00ff00'>report</body>")
    pictures.take(page, picture, 1000)
    assert pictures.digest_of(picture) == pictures.templates_digest()
    with Image.open(picture) as image:
        assert image.size == (pictures.WIDTH, 1000)
        assert image.convert("RGB").getpixel((600, 900)) == (0, 255, 0)
