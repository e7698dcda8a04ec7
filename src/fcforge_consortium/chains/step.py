"""One hospital's step of a chain: train the received state on the hospital's site.

The step equals the one that `fcforge run` would take for that order and seed, bit by bit: the site
is trained by the same engine call with one torch thread, and remembered synthetic subjects travel
as exact float32 numbers.

While a step is computed, the FC of all subjects lies in a *bank* (`fcforge.replay.bank`), and a method
refers to a subject by its *row* there. In a file it refers to a remembered subject by its *place*, the
index among the subjects that travel.

A generator fitted on the site's training part makes a set of held-out subjects that no learner
ever trains on. They travel, so that the next hospital can measure forgetting. They are easier than
real subjects, because they are drawn from a model of the training part: read the change over time,
not the rate.
"""

from collections.abc import Sequence
from typing import Any

import torch

from fcforge.core import randomness
from fcforge.core.subjects import FCBatch, Site
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.data import scan_checks
from fcforge.data.cohort import Cohort
from fcforge.data.splits import untested_site
from fcforge.evaluation.temperature import temperature_of_odds
from fcforge.experiments.site_training import SiteTraining, starts_anew
from fcforge.generators import cache, make_generator
from fcforge.methods import Lane
from fcforge.training.evaluation import class_scores
from fcforge_consortium.base_model.quality import quality
from fcforge_consortium.chains.counts import counts_of, published_share
from fcforge_consortium.chains.settings import ChainSettings
from fcforge_consortium.chains.state import State, Subjects
from fcforge_consortium.ledger.people import People, people_of
from fcforge_consortium.records.kinds import ScanLimits

FEWEST = 4  # fewest synthetic subjects from which axes of ordinary scans are made


# -- training and measuring ------------------------------------------------------------------------
class SiteStep:
    """One step of a chain: the received state, and the site that is learned next.

    Parameters
    ----------
    settings : ChainSettings
    sites : sequence of str
        Sites that were learned before, in order.
    before : State
        The state after the last of them; empty at the first hospital.
    site : Site
    target : Target
    """

    def __init__(
        self,
        settings: ChainSettings,
        sites: Sequence[str],
        before: State,
        site: Site,
        target: Target = TWO_CLASSES,
    ) -> None:
        self.settings = settings
        self.sites = (*sites, site.name)
        self.before = before
        self.site = site
        self.target = target
        self.learner = settings.build(target)
        received = before.lane if sites else None
        anew = starts_anew(self.learner, received)
        # the run up to this site: its seed and order of sites give the random numbers
        spec = settings.spec((site.name,) if anew else self.sites)
        self.training = SiteTraining(
            self.learner,
            spec,
            site,
            None if anew else received,
            before.remembered.batch(),
        )

    def finished(self, lane: Lane) -> State:
        """Return the state to hand on: bank rows become places among the subjects in it.

        Parameters
        ----------
        lane : Lane
            The trained lane, whose state refers to subjects by their rows in the bank.
        """
        held_out = self._held_out()
        bank = self.training.loader.bank
        packed, rows = self.training.packed(lane)
        if not len(rows):
            nobody = Subjects.none(self.settings.n_rois, self.target)
            return State(packed, nobody, held_out)
        # index of the site of each bank row: this site, but for subjects that came with the state
        origin = torch.full((len(bank),), len(self.sites) - 1)
        origin[self.training.remembered_rows] = self.before.remembered.site
        batch = FCBatch(bank.fc(rows), bank.y[rows])
        return State(packed, Subjects.of(batch, origin[rows]), held_out)

    def _held_out(self) -> Subjects:
        """Return the synthetic held-out subjects of all sites, this one's last.

        If replay uses the same generator, it is fitted only once for the site and seed; held-out
        subjects are drawn from it with random numbers of their own.
        """
        settings = self.settings
        before = self.before.held_out
        n = settings.held_out
        if not n:
            return before
        learned = self.site.learning(with_val=settings.learns_val)
        replayed = settings.learner.generator
        named = settings.held_out_generator
        generator = make_generator(
            replayed if replayed and replayed.name == named.name else named
        )
        # the seed names of replay's own fit, which is then found in the memory of this process
        names = (settings.seed, "generator", self.site.name)
        state = cache.fit_cached(generator, learned, names)
        y = generator.diagnoses(state.model, learned.y, n)
        batch = generator.sample(state, y, randomness.torch_rng(*names, "held-out", n))
        place = torch.full((len(batch),), len(self.sites) - 1, dtype=torch.int64)
        return before.join(Subjects.of(batch, place))

    def measured(self, lane: Lane, held_out: Subjects) -> dict[str, Any]:
        """Return the fields of the step's record that describe people, accuracy and calibration.

        Parameters
        ----------
        lane : Lane
            The lane after training.
        held_out : Subjects
            Held-out subjects of all sites.

        Returns
        -------
        dict
            Counts, accuracy on synthetic and own test subjects, temperature, limits of scans.
        """
        counts = counts_of(self.site, self.target)
        synthetic = {}
        for place, name in enumerate(self.sites):
            batch = held_out.of_site(place)
            if len(batch):
                synthetic[name] = round(self._accuracy(lane, batch), 4)
        on_test = None
        if len(self.site.test) and self.target.classes:
            tested = (counts.test.controls, counts.test.patients)
            on_test = published_share(self._accuracy(lane, self.site.test), tested)
        return {
            "counts": counts,
            "held_out": synthetic,
            "own_test": on_test,
            "temperature": self._temperature(lane),
            "reference": self._limits(held_out),
        }

    def _accuracy(self, lane: Lane, batch: FCBatch) -> float:
        """Return the accuracy of a lane on the subjects of a batch."""
        scores = class_scores(self.learner, lane, batch.fc)
        return quality(scores, batch.y.numpy(), self.target)["accuracy"]

    def _temperature(self, lane: Lane) -> float | None:
        """Return the temperature that calibrates the log odds of the hospital's validation part.

        If the network was trained on that part, too, a second network is trained without it for this
        purpose alone. None if nothing is calibrated.

        Parameters
        ----------
        lane : Lane
            The lane after training.
        """
        batch = self.site.val
        if self.settings.calibrate == "none" or not len(batch):
            return None
        if self.settings.learns_val:
            lane = self.training.train(with_val=False, tick=lambda: None)
        odds = class_scores(self.learner, lane, batch.fc)
        return round(temperature_of_odds(odds, batch.y.numpy()), 4)

    def _limits(self, held_out: Subjects) -> ScanLimits:
        """Return the limits of ordinary scans of this site; all None without held-out subjects."""
        batch = held_out.of_site(len(self.sites) - 1)
        if len(batch) < FEWEST:
            return ScanLimits(inside=None, outside=None, pattern=None)
        reference = scan_checks.Reference.of(batch.fc.numpy())
        everybody = self.site.learning(with_val=True).fc.numpy()
        return ScanLimits(**scan_checks.limits(reference, everybody))


# -- people of a step ------------------------------------------------------------------------------
def whole_site(people: Cohort, settings: ChainSettings) -> Site:
    """Return a site whose people are all trained on.

    A validation part is split off only if it is used. No id is kept.
    """
    uses_validation = not settings.learns_val or settings.calibrate == "inner_val"
    share = settings.val_fraction if uses_validation else 0.0
    return untested_site(people, settings.seed, share)


def people_learned(settings: ChainSettings, site: Site) -> People:
    """Return the people of a site who are trained on, in order."""
    learning = site.learning(with_val=settings.learns_val)
    parts = ("train", "val") if settings.learns_val else ("train",)
    ids = [who for part in parts for who in site.subject_ids[part]]
    return people_of(
        learning.fc.numpy(), ids or [""] * len(learning), learning.y.numpy()
    )
