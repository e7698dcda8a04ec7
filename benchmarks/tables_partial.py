r"""AAA of a learner some of whose trainings are missing, from those that are there.

The mean of AAA over all orders is a mean over prefixes: every prefix of t sites begins equally many
orders, so :math:`\overline{AAA} = \frac1T\sum_t \mathrm{mean}_{|p| = t}\, a(p)` with a(p) the mean
accuracy on the sites of p. Where trainings are missing at random, the mean over those that are
there is unbiased, and taking the difference from a complete learner on the same prefixes removes
the luck of which are missing. At the first site nothing is replayed: a learner that has no
training of it there takes its partner's.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

from fcforge.metrics.cells import cell_values
from fcforge.runner.collect import stored_plan
from fcforge.runner.store import Store
from fcforge.stats.bootstrap import Estimate, interval, subject_weights

Prefix = tuple[int, tuple[str, ...]]
DRAWS = 1000


def prefix_accuracy(folder: Path, title: str, draws: int = DRAWS) -> dict[Prefix, np.ndarray]:
    """a(p) of every stored training of a learner: (1 + draws,), the estimate before its draws."""
    store = Store(folder)
    _, plan, data = stored_plan(store)
    done, found = store.done(), {}
    for key, node in plan.nodes.items():
        if node.spec.learner.title != title or not node.depth or key not in done:
            continue
        scores, facts = store.read_scores(key), data["site_facts"][str(node.spec.seed)]
        values = []
        for site in node.spec.order:
            y, ids = np.asarray(facts[site]["labels"]), facts[site]["subject_ids"]
            p = scores[site][None]
            drawn = cell_values(p, y, "accuracy", subject_weights(site, ids, y, draws, 0))
            values.append(np.concatenate([cell_values(p, y, "accuracy"), drawn.ravel()]))
        found[node.spec.seed, node.spec.order] = np.mean(values, axis=0)
    return found


def mean_over_prefixes(values: dict[Prefix, np.ndarray]) -> np.ndarray:
    """Mean over depths of the mean over prefixes, (1 + draws,)."""
    depths = sorted({len(order) for _, order in values})
    by_depth = [[v for (_, o), v in values.items() if len(o) == d] for d in depths]
    return np.mean([np.mean(group, axis=0) for group in by_depth], axis=0)


def partial(
    known: dict[Prefix, np.ndarray], partner: dict[Prefix, np.ndarray]
) -> tuple[Estimate, Estimate, float]:
    """AAA, its difference from the complete partner, and the share of trainings behind them."""
    share = len([p for p in known if p in partner]) / len(partner)
    same = {p: v - partner[p] for p, v in known.items() if p in partner}
    first = {p: np.zeros_like(v) for p, v in partner.items() if len(p[1]) == 1}
    difference = mean_over_prefixes({**first, **same})
    return _estimate(mean_over_prefixes(partner) + difference), _estimate(difference), share


def _estimate(values: np.ndarray) -> Estimate:
    low, high = interval(values[0], values[1:])
    return Estimate(float(values[0]), float("nan"), float(low), float(high))
