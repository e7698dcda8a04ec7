"""Sphinx: `make docs`. Needs no network and no real data."""

import os
import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import tables
import torch

from fcforge import __version__

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="Unknown section")
tables.write_all(HERE / "generated")

project = "fcforge"
author = "The fcforge developers"
copyright = "2026, The fcforge developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    "generated",
    "auto_examples/*.ipynb",
    "auto_examples/*.py",
]
templates_path = ["_templates"]
html_static_path = ["_static"]
nitpicky = False
language = "en"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache", "myst.header"]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": r"plot_",
    "ignore_pattern": r"(agem|generative_replay|mas)\.py",  # shown whole in "Add a method"
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "generated/backreferences",  # where the landing page finds its thumbnails
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "plot_gallery": "True",
    "capture_repr": ("_repr_html_",),  # tables, not "<Legend object at 0x7f...>"
    "abort_on_example_error": True,
    "matplotlib_animations": False,
    "first_notebook_cell": None,
    "show_signature": False,
    "write_computation_times": False,  # that page would load scripts from the network
    "copyfile_regex": r".*\.rst",
}

html_math_renderer = "mathml"
html_use_index = False  # the contents and the search are shorter ways
html_theme = "furo"
html_title = "fcforge"
html_css_files = ["fcforge.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1a5c93",
        "color-brand-content": "#1a5c93",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7ab8ec",
        "color-brand-content": "#7ab8ec",
    },
}


def skip(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def lead_to_pages(app, name, source):
    """Lead links to files that have a page here to that page.

    The sources link paper/RESULTS.md and the scripts of examples/, so that GitHub follows them as well.
    """
    text = source[0].replace("../paper/RESULTS.md", "reproducing.md")
    text = re.sub(
        r"\]\(((?:\.\./)*)\.\./examples/(plot_\w+)\.py\)",
        r"](\1auto_examples/\2.rst)",
        text,
    )
    source[0] = text.replace("](../examples)", "](auto_examples/index.rst)")


def setup(app):
    app.connect("source-read", lead_to_pages)
    app.connect("autodoc-skip-member", skip)
