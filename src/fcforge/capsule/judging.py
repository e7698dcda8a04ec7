r"""What a capsule can say of itself without a real scan: accuracy, calibration, strangeness.

*Held-out sets.* While a site is open a generator fitted on its training part alone makes a set of
synthetic subjects that no learner ever trains on. They travel, so that the next hospital can
measure what happened to the sites before it. They are easier than real subjects (they are drawn
from a model of the training part), so read them as a change over time, not as a diagnosis rate.

*Temperature.* Probabilities are :math:`\mathrm{softmax}(u / T)`; T minimises the log-loss of
subjects the scored network was not trained on.

*Strangeness.* A scan is held against every learned site by three distances between Fisher-z
edges: ``inside``, the Mahalanobis distance within the k leading principal axes of the site's
held-out set; ``outside``, the distance from their span; ``pattern``, one minus the correlation
with the site's mean pattern. Each is divided by its limit, mean + 2.576 standard deviations among
the site's real training subjects, widened for small sites (see `limits`). ``sides`` says whether
left and right are swapped. A scan beyond a limit at every site is unlike anything seen, and no
probability should be read from it.

*Left and right.* ROIs of most atlases come in pairs, one in each hemisphere, whose connection is
among the strongest; so the order of the ROIs can be told from a mean FC :math:`m`. With :math:`P`
swapping the pairs, the asymmetry :math:`m - P m P^\top` is much the same in all groups of people,
and turns its sign with the hemispheres. In ABIDE (AAL-116) it correlates 0.65 to 0.92 between a
site and all others and 0.47 and more between any two sites; of 871 single scans one is below 0
(-0.01).

It says nothing of an atlas whose ROIs are not paired in one of two orders (left, right, left,
right, ...; or all left, then all right), and sees a swapped scan and a mirrored image alike.
"""

import math
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.engine import Learner
from fcforge.errors import DataError
from fcforge.graphs import edges, fisher_z, from_edges, n_rois_of
from fcforge.methods import Lane
from fcforge.metrics import cell_values

DISTANCES = ("inside", "outside", "pattern")  # with limits in the ledger
SIDES = "sides"  # its limit is always 1
AXES = 8
QUANTILE = 2.576  # standard normal: 99 % two-sided, 99.5 % one-sided
TEMPERATURES = (0.2, 20.0)
# p below which diagnoses count as turned round. Around a start of NYU it refuses 12 of the other 19
# sites of ABIDE when they are (three standard errors: 4), and one, of 25 people, when they are not.
TURNED = 0.05
MIN_ROIS = 20  # fewer make pairs by chance
PAIRED = 0.9  # of a ROI's edges, how many the one to its partner exceeds (median)
SWAPPED = -0.1  # correlation of the asymmetries below which left and right are swapped


def scores(learner: Learner, lane: Lane, fc: Tensor) -> Tensor:
    """Logits (n, 2) of a lane for FC (n, R, R)."""
    with torch.no_grad():
        return learner.method.logits(
            learner.model, lane, learner.model.prepare(fc)
        ).float()


def probability(odds: np.ndarray) -> np.ndarray:
    """P(patient) of log odds; no overflow for any size."""
    return 0.5 * (1.0 + np.tanh(0.5 * odds))


def quality(odds: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, balanced accuracy and AUROC of log odds (n,), beside the majority class."""
    p = probability(odds)[None]
    found = {
        m: float(cell_values(p, y, m)[0])
        for m in ("accuracy", "balanced_accuracy", "auroc")
    }
    return {
        **found,
        "majority": float(max(y.mean(), 1 - y.mean())),
        "people": float(len(y)),
    }


def require_labels(odds: np.ndarray, y: np.ndarray, accept: bool) -> bool:
    """Whether diagnoses look swapped: `DataError` unless that is accepted.

    They do where a model's patients have lower log odds than its controls and chance would do so
    in less than 5 % of all cases (one-sided Mann-Whitney test, exact for few people).

    Parameters
    ----------
    odds : ndarray of shape (n,)
        Of the model that came in.
    y : ndarray of shape (n,)
    accept : bool
    """
    from scipy.stats import mannwhitneyu  # slow to import

    patients, controls = odds[y == 1], odds[y == 0]
    if not len(patients) or not len(controls):
        return False
    found = mannwhitneyu(patients, controls, alternative="less")
    turned = bool(found.pvalue < TURNED)
    if turned and not accept:
        auroc = found.statistic / (len(patients) * len(controls))
        raise DataError(
            "the model that came in tells this site's patients from controls the wrong way round "
            f"(AUROC {auroc:.2f} of {len(y)} people; chance gives so little with p = "
            f"{found.pvalue:.2g}).",
            do="Check which diagnosis means patient in the data (--positive); if it is right, add "
            "--accept-labels.",
        )
    return turned


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    r"""T that minimises :math:`\sum_i -\log \mathrm{softmax}(u_i / T)_{y_i} + (\log T)^2`.

    The last term is a prior around T = 1 (standard deviation 0.7 of log T): ten validation
    subjects must not decide alone. log T is between log 0.2 and log 20.

    Examples
    --------
    >>> u = torch.tensor([[2.0, 0.0]] * 4000)  # says 88 %, is right in 3 of 4 cases
    >>> round(fit_temperature(u, (torch.arange(4000) % 4 == 0).long()), 2)  # 2 / log 3
    1.82
    """
    from scipy.optimize import minimize_scalar  # slow to import

    u = logits.double()

    def loss(log_t: float) -> float:
        return (
            float(F.cross_entropy(u / math.exp(log_t), y, reduction="sum")) + log_t**2
        )

    bounds = tuple(map(math.log, TEMPERATURES))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


class Reference(NamedTuple):
    """One site's synthetic subjects as principal axes of Fisher-z edges."""

    mean: Tensor  # (E,)
    axes: Tensor  # (k, E), orthonormal
    spread: Tensor  # (k,)

    @classmethod
    def of(cls, fc: Tensor) -> Self:
        """Axes of FC (n, R, R), n of 3 or more."""
        z = fisher_z(edges(fc)).double()
        mean = z.mean(0)
        _, values, axes = torch.linalg.svd(z - mean, full_matrices=False)
        k = max(1, min(AXES, len(z) // 4, len(values)))
        spread = values[:k] / max(len(z) - 1, 1) ** 0.5
        return cls(mean, axes[:k], spread.clamp(min=1e-9))

    def distances(self, fc: Tensor) -> dict[str, Tensor]:
        """Distances of FC (n, R, R) from the site, (n,) each; see `DISTANCES`."""
        z = fisher_z(edges(fc)).double()
        away = z - self.mean
        along = away @ self.axes.T
        shape, mean = z - z.mean(1, keepdim=True), self.mean - self.mean.mean()
        norms = (shape.norm(dim=1) * mean.norm()).clamp(min=1e-12)
        return {
            "inside": (along / self.spread).norm(dim=1) / len(self.spread) ** 0.5,
            "outside": (away - along @ self.axes).norm(dim=1),
            "pattern": 1.0 - shape @ mean / norms,
            SIDES: side_distance(self.mean, z),
        }


def limits(reference: Reference, fc: Tensor) -> dict[str, float]:
    """Largest ordinary distances, from the site's n real training subjects.

    The axes were learnt from a model of these very subjects, who are therefore nearer to them
    than a new one will be: by sqrt((n + 1) / (n - k - 2)) in a Gaussian of k dimensions.
    """
    n, k = len(fc), len(reference.spread)
    wider = math.sqrt((n + 1) / max(n - k - 2, 1))
    found, distances = {}, reference.distances(fc)
    for name in DISTANCES:
        spread = float(distances[name].std()) if n > 1 else 0.0
        bound = wider * (float(distances[name].mean()) + QUANTILE * spread)
        found[name] = float(f"{max(bound, 1e-6):.4g}")
    return found


_SAID = (*(f"{name} distance" for name in DISTANCES), "left and right look swapped")
Known = list[tuple[str, Reference, dict[str, float]]]


def strangeness(known: Known, fc: Tensor) -> tuple[Tensor, list[str]]:
    """How far scans are beyond the limits of the site they resemble most; 1 is the limit.

    Parameters
    ----------
    known : list of (site, Reference, limits)
    fc : Tensor of shape (n, R, R)

    Returns
    -------
    Tensor of shape (n,)
    list of str
        For each scan the nearest site and the distance that counted.
    """
    each = []
    for _, reference, bounds in known:
        ratios = {k: v / bounds.get(k, 1.0) for k, v in reference.distances(fc).items()}
        each.append(torch.stack([*ratios.values()]))
    worst, which = torch.stack(each).max(1)  # of (sites, distances, n)
    odd, site = worst.min(0)
    nearest = [
        (known[s][0], _SAID[int(which[s, i])]) for i, s in enumerate(site.tolist())
    ]
    return odd, [f"nearest site {name}, {what}" for name, what in nearest]


def partners(mean: Tensor) -> Tensor | None:
    """Place of each ROI's partner (R,) in a mean of edges (E,); None where there are no pairs."""
    n = n_rois_of(len(mean))
    if n < MIN_ROIS:
        return None
    matrix, here = from_edges(mean[None], diagonal=0.0)[0], torch.arange(n)
    alternating = torch.where(here < n - n % 2, here ^ 1, here)
    halves = (here + n // 2) % n if n % 2 == 0 else here
    for places in (alternating, halves):
        beaten = (matrix < matrix[here, places][:, None]).double().mean(1)
        if float(beaten.median()) >= PAIRED:
            return places
    return None


def asymmetry(upper: Tensor, places: Tensor) -> Tensor:
    """Edges (n, E) minus the same with partners swapped."""
    matrix = from_edges(upper, diagonal=0.0)
    return upper - edges(matrix[:, places][:, :, places])


def side_fit(mean: Tensor, upper: Tensor) -> Tensor | None:
    """Correlation (n,) of each scan's asymmetry with that of a mean; None where it has no pairs.

    Parameters
    ----------
    mean : Tensor of shape (E,)
        Edges of people whose ROIs are in the right order.
    upper : Tensor of shape (n, E)
        Edges of scans, or of a site's mean scan.
    """
    places = partners(mean)
    if places is None:
        return None
    known, found = (asymmetry(u.double(), places) for u in (mean[None], upper))
    norms = (found.norm(dim=1) * known.norm()).clamp(min=1e-12)
    return (found @ known[0]) / norms


def side_distance(mean: Tensor, upper: Tensor) -> Tensor:
    """(n,): 0 where a scan's asymmetry is that of the mean, beyond 1 where it is swapped."""
    fit = side_fit(mean, upper)
    return (
        torch.zeros(len(upper)).double() if fit is None else (1 - fit) / (1 - SWAPPED)
    )
