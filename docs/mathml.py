"""Sphinx extension: formulas as MathML, drawn by the browser itself: offline, no scripts."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx


def mathml(text: str, *, block: bool) -> str:
    """A formula in LaTeX as a ``<math>`` element; one that cannot be set stops the build."""
    text = re.sub(r"\\(?:big|Big|bigg|Bigg)[lr]?(?![a-zA-Z])", "", text)  # fences grow
    text = re.sub(r"\\mathrel\{(.*?)\}", r"\1", text)
    try:
        return latex2mathml.tex2mathml(text, as_block=block)
    except MathError as error:
        raise ValueError(f"formula {text!r}: {error}") from error


def inline(translator: Any, node: nodes.math) -> None:
    """A formula in a sentence."""
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def displayed(translator: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own; lines ended by a double backslash are aligned at ``&``."""
    text = node.astext()
    if "\\\\" in text and "\\begin" not in text:
        text = f"\\begin{{aligned}}{text}\\end{{aligned}}"
    translator.body.append(f'<div class="math">{mathml(text, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
