"""Small chains for the tests: two or three made-up hospitals with ten ROIs."""

from functools import cache

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_site
from fcforge.methods import METHODS
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.chains.settings import ChainSettings, settings_for
from fcforge_consortium.chains.state import State, empty_state
from fcforge_consortium.chains.step import SiteStep
from fcforge_consortium.records.exchange import Exchange

N_ROIS = 10
SITES = ("Sim-NYU", "Sim-UCLA", "Sim-UM")

# small enough for seconds; quality is tested elsewhere
QUICK: dict[str, LearnerSpec] = {
    "finetune": LearnerSpec(Component("finetune"), Component("gcn", {"hidden": 16})),
    "forge": LearnerSpec(
        Component(
            "forge",
            {"memory": 16, "candidates": 24, "dev": 8, "replay": 8, "refresh": 1},
        ),
        Component("gcn", {"hidden": 16}),
        Component("corr_gauss"),
    ),
}


@cache
def cohort(n_sites: int = 3) -> Cohort:
    return simulate(n_rois=N_ROIS, scale=0.3, n_sites=n_sites)


def quick(method: str) -> LearnerSpec:
    """Return the smallest learner of a method, on the linear model if that works."""
    if method in QUICK:
        return QUICK[method]
    cls = METHODS[method]
    name = cls.models[0] if cls.models else "linear"
    model = Component(name, {"hidden": 16} if name in ("gcn", "gat", "sage") else {})
    generator = Component("corr_gauss") if cls.needs_generator else None
    return LearnerSpec(Component(method), model, generator)


def settings(method: str, **rest) -> ChainSettings:
    given = {"training": Training(epochs=3), "held_out": 16, **rest}
    return settings_for(quick(method), N_ROIS, **given)


def joined(exchange: Exchange, site: str, key=None, data: Cohort | None = None):
    """Return the exchange after one more site, and the entry of its people."""
    chain = exchange.model
    own = split_site(data or cohort(), site, chain.settings.seed)
    after, entry = chain.after(own)
    return after.on_record(key, allow_real_subjects=True), entry


def chained(method: str, sites: tuple[str, ...] = SITES[:1], **rest) -> list[Exchange]:
    """Return one exchange per site, each made from the records and arrays of the one before."""
    made = [
        empty_chain(settings(method, **rest), Target(classes=("TC", "ASD")), sites[0])
    ]
    for site in sites:
        made.append(joined(made[-1], site)[0])
    return made[1:]


@cache
def first_state(method: str) -> State:
    """Return the state that the first hospital hands on."""
    own = settings(method)
    site = split_site(cohort(), SITES[0], own.seed)
    step = SiteStep(own, (), empty_state(N_ROIS), site)
    return step.finished(step.training.train(with_val=True, tick=lambda: None))
