"""Check that every visit of a site has enough subjects for the learners of an experiment."""

from dataclasses import replace

from fcforge.core.errors import DataError
from fcforge.core.formatting import counted
from fcforge.core.subjects import Site
from fcforge.data.cohort import Cohort
from fcforge.data.splits import make_sites
from fcforge.experiments.config import Experiment


def require_enough_at_visits(experiment: Experiment, cohort: Cohort) -> None:
    """Raise `DataError` for a visit that is too small for a generator or for validation.

    An experiment without further visits passes: `fcforge.data.checks` has checked its sites.

    Parameters
    ----------
    experiment : Experiment
    cohort : Cohort
        Its data, checked.
    """
    if experiment.visits == 1:
        return
    for seed in experiment.seeds:
        for site in make_sites(cohort, seed, experiment).values():
            _require_enough(site, experiment)


def _require_enough(site: Site, experiment: Experiment) -> None:
    """Raise `DataError` if one of an experiment's learners cannot learn a visit."""
    from fcforge.generators import GENERATORS

    for learner in experiment.learners:
        training = replace(experiment.training, **learner.training)
        chooses_epoch = training.selection == "inner_val"
        n = len(site.learning(with_val=not chooses_epoch))
        message = ""
        if learner.generator and n < GENERATORS[learner.generator.name].min_subjects:
            least = GENERATORS[learner.generator.name].min_subjects
            message = (
                f"{counted(n, 'training subject')} with visits = {experiment.visits}, but the generator "
                f"'{learner.generator.name}' of learner '{learner.title}' needs {least}."
            )
        elif chooses_epoch and not len(site.val):
            message = (
                f"no validation subject with visits = {experiment.visits}, but learner "
                f"'{learner.title}' chooses its epoch on that part (selection = \"inner_val\")."
            )
        if message:
            raise DataError(
                f"has {message}",
                where=f"site '{site.name}'",
                do="Set fewer visits, or leave the site out.",
            )
