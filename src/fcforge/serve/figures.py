"""The figures of the pages: which numbers go where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.capsule.saliency import Uses, between_systems, strongest, systems_of
from fcforge.errors import DataError
from fcforge.report.figures import span
from fcforge.serve import drawing
from fcforge.serve.capsules import CapsuleView
from fcforge.serve.glass import EDGES, glass_brain
from fcforge.serve.png import DIVERGING, SEQUENTIAL, colours, png
from fcforge.serve.runs import RunView
from fcforge.serve.shelf import Item
from fcforge.text import number


def accuracy_figure(view: CapsuleView) -> Markup | str:
    """Accuracy of every site over the chain; empty without held-out sets."""
    if not any(v is not None for values in view.accuracy.values() for v in values):
        return ""
    stages = [f"after {site}" for site in view.accuracy]
    label = "accuracy on each site's synthetic held-out set after every site"
    return drawing.site_lines(view.accuracy, stages, label, "sites in the order of learning")


def run_panels(view: RunView) -> list[tuple[str, Markup]]:
    """One panel per learner of a run, all on the same axis."""
    shown = [v for v in view.learners if v.since]
    if not shown:
        return []
    limits = span([values for v in shown for values in v.since.values()])
    half = len(next(iter(shown[0].since.values()))) // 2
    stages = [number(k, 0, sign=True) for k in range(-half, half + 1)]
    panels = []
    for v in shown:
        label = f"{v.title}: accuracy at each site before and after it was learned"
        title = "sites learned since this one"
        panels.append((v.title, drawing.site_lines(v.since, stages, label, title, half, limits)))
    return panels


def uses_figures(item: Item, uses: Uses) -> dict[str, Any]:
    """What the capsule page shows of what its model uses."""
    names = systems_of(uses.atlas) if uses.atlas else ()
    rois = uses.atlas.roi_names if uses.atlas else [f"ROI {k + 1}" for k in range(len(uses.fc))]
    systems = [uses.atlas.systems[k] for k in uses.order] if uses.atlas else []

    def matrix(which: str, label: str) -> Any:
        return drawing.matrix_figure(f"/capsule/{item.id}/{which}.png", systems, names, label)

    return {
        "n": uses.n_subjects,
        "fc": matrix("fc", "mean FC of the synthetic held-out subjects") if uses.n_subjects else "",
        "edges": matrix("uses", "strength of every edge in the model's answer"),
        "systems": drawing.systems_figure(between_systems(uses.strength, uses.atlas), names)
        if uses.atlas
        else "",
        "glass": f"/capsule/{item.id}/glass.png" if uses.atlas else "",
        "legend": list(enumerate(names)),
        "n_edges": EDGES,
        "top": [(rois[i], rois[j], times, way) for i, j, times, way in strongest(uses, 12)],
    }


def _fc_png(uses: Uses) -> bytes:
    if not uses.n_subjects:
        raise DataError("there is no held-out subject.")
    shown = uses.fc[np.ix_(uses.order, uses.order)]
    return png(colours(shown, DIVERGING, -1.0, 1.0))


def _uses_png(uses: Uses) -> bytes:
    shown = uses.strength[np.ix_(uses.order, uses.order)]
    # a few edges are far stronger than the rest: the scale ends at the 99.5th percentile
    return png(colours(shown, SEQUENTIAL, 0.0, float(np.quantile(shown, 0.995)) or 1.0))


PICTURES: dict[str, Callable[[Uses], bytes]] = {
    "fc": _fc_png,
    "uses": _uses_png,
    "glass": glass_brain,
}
