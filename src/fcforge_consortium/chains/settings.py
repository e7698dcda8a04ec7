"""Settings of a chain: learner, training and splits that all its hospitals share.

The first hospital fixes them, and they travel in the root of the chain. Settings from a file are checked
as strictly as those of a config.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, ExchangeError, FCForgeError
from fcforge.core.names import look_up
from fcforge.core.settings import (
    FRACTION,
    SHARE_BELOW_ONE,
    Checked,
    checked,
    limits,
    within,
)
from fcforge.core.spec import LearnerSpec, Protocol, RunSpec, Training
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.data.cohort import Cohort
from fcforge.experiments.config import Experiment
from fcforge.generators import GENERATORS, make_generator
from fcforge.methods import METHODS, build_learner
from fcforge.methods.base import Learner
from fcforge_consortium.records.canonical import canonical

MAX_ROIS = 2_000
MAX_NUMBER = 100_000
MOST = {int: MAX_NUMBER, str: 200, list: MAX_ROIS}  # of a setting that travels
# Settings of a model that repeat its work without making its arrays larger: a small file could name so
# many that reading it would fill the memory or take hours.
MOST_REPEATED = {"depth": 64, "heads": 64, "hops": 64}
AS_IN_A_RUN = (
    "learner",
    "seed",
    "training",
    "protocol",
    "test_fraction",
    "val_fraction",
)


@limits(
    n_rois=within(2, MAX_ROIS),
    test_fraction=FRACTION,
    val_fraction=SHARE_BELOW_ONE,
    held_out=within(0, MAX_NUMBER),
)
@dataclass(frozen=True)
class ChainSettings(Checked):
    """The settings that all hospitals of a chain share, fixed by the first one.

    Attributes
    ----------
    learner, seed, n_rois, training, protocol, test_fraction, val_fraction
        As in `RunSpec`: a chain is a run whose sites never meet.
    held_out_generator : Component
        Makes the synthetic held-out sets; the learner's own generator, else corr_gauss.
    held_out : int
        Synthetic held-out subjects per site (0: no metrics on past sites, no abstention).
    calibrate : {"inner_val", "none"}
        Data on which the temperature of the probabilities is fitted.
    roi_names : tuple of str
        Empty where unknown; every hospital's ROIs must have these names, in this order.
    """

    kind: ClassVar[str] = "chain"
    learner: LearnerSpec
    n_rois: int
    seed: int = 0
    training: Training = field(default_factory=Training)
    protocol: Protocol = "strict"
    test_fraction: float = RunSpec.test_fraction
    val_fraction: float = RunSpec.val_fraction
    held_out_generator: Component = field(
        default_factory=lambda: Component("corr_gauss")
    )
    held_out: int = 64
    calibrate: Literal["inner_val", "none"] = "inner_val"
    roi_names: tuple[str, ...] = ()

    def spec(self, order: Sequence[str]) -> RunSpec:
        """Return the run that equals the chain over the sites of `order`."""
        known = {name: getattr(self, name) for name in AS_IN_A_RUN}
        # the name stands where a run names its data set; nothing is loaded by it
        return RunSpec(dataset=Component("exchange"), order=tuple(order), **known)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as a nested dict of JSON values."""
        return json.loads(canonical(asdict(self)))

    def build(self, target: Target = TWO_CLASSES) -> Learner:
        """Return the learner as a chain trains it."""
        # a chain begins without public people: a method that needs them is refused
        return build_learner(
            self.learner, self.n_rois, has_base_model=False, target=target
        )

    @property
    def learns_val(self) -> bool:
        """Return whether the validation part is trained on, because no epoch is chosen on it."""
        return self.training.selection == "fixed"

    @property
    def keeps(self) -> str:
        """Return the kind of data that the method keeps, which travels beside the network."""
        return METHODS[self.learner.method.name].keeps

    @property
    def copies_real(self) -> bool:
        """Return whether real subjects travel: the method keeps them, or a generator copies them."""
        named = [self.held_out_generator, self.learner.generator]
        made_by = [GENERATORS[part.name].releases for part in named if part]
        return "real subjects" in (self.keeps, *made_by)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the settings that `to_json` wrote; raise `ExchangeError` for anything else.

        Parameters
        ----------
        data : mapping
            Settings by name, as the root of a chain holds them.
        """
        if missing := [f.name for f in fields(cls) if f.name not in data]:
            raise ExchangeError(f"the chain's settings lack {missing[0]}.")
        for name, value in data.items():
            if name != "seed":  # which takes no memory, however large
                _require_small(value, name)
        try:
            settings = cls(**checked(cls, data, cls.where()))
            make_generator(settings.held_out_generator)
            settings.build()
        except (FCForgeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ExchangeError(
                f"the chain's settings cannot be read ({error})."
            ) from error
        if canonical(settings.to_json()) != canonical(data):
            raise ExchangeError("the chain's settings are not as fcforge writes them.")
        named = len(settings.roi_names)
        if named not in (0, settings.n_rois):
            raise ExchangeError(f"it names {named} ROIs, but has {settings.n_rois}.")
        if settings.learner.training:
            raise ExchangeError("its learner has training settings of its own.")
        return settings


def _require_small(value: Any, where: str) -> None:
    """Raise `ExchangeError` for a setting so large that reading the file would need too much memory.

    Parameters
    ----------
    value : JSON value
        The setting; lists and mappings are searched.
    where : str
        Name of the setting.
    """
    if isinstance(value, Mapping):
        for name in MOST_REPEATED.keys() & value.keys():
            n = value[name]
            if isinstance(n, int) and n > MOST_REPEATED[name]:
                raise ExchangeError(
                    f"the chain's setting {name!r} is too large ({n}; at most {MOST_REPEATED[name]})."
                )
        # searched as the list of its names and values
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            _require_small(item, where)
    # length of a text or a list, else the number; None has size 0, and a float may have any
    size = len(value) if isinstance(value, str | list) else abs(value or 0)
    if size > MOST.get(type(value), math.inf):
        raise ExchangeError(f"the chain's setting {where!r:.40} is too large ({size}).")


def settings_for(learner: LearnerSpec, n_rois: int, **rest: Any) -> ChainSettings:
    """Return the settings of a chain that trains `learner`.

    Every hospital adds a synthetic held-out set, on which later hospitals measure forgetting without
    its real subjects. It is made by the learner's own generator; by that of `ChainSettings` if the
    learner has none.

    Parameters
    ----------
    learner : LearnerSpec
    n_rois : int
    **rest
        Other fields of `ChainSettings`; a `held_out_generator` among them replaces the learner's.

    Raises
    ------
    ConfigError
        For a wrong name or setting, before anything is learned.
    """
    if learner.generator is not None:
        rest = {"held_out_generator": learner.generator, **rest}
    settings = ChainSettings(learner=learner, n_rois=n_rois, **rest)
    settings.build()  # a wrong name or setting shows before anything is learned
    return settings


def first_settings(
    cohort: Cohort, experiment: Experiment, title: str | None = None
) -> ChainSettings:
    """Return the settings of a new chain, from a learner of a config.

    Parameters
    ----------
    cohort : Cohort
        People of the first hospital.
    experiment : Experiment
        The config.
    title : str, optional
        Title of the learner; not needed if the config has only one.
    """
    names = {spec.title: spec for spec in experiment.learners}
    if title is None and len(names) > 1:
        hint = f"Choose one with --learner: {', '.join(names)}."
        raise ConfigError(f"the config has {len(names)} learners.", do=hint)
    learner = look_up("learner", title or next(iter(names)), names)
    if experiment.leaks.active():
        raise ConfigError("a chain is never made with a leak on.", do="Remove [leaks].")
    return settings_for(
        replace(learner, training={}),
        cohort.n_rois,
        training=replace(experiment.training, **learner.training),
        protocol=experiment.protocol,
        test_fraction=experiment.test_fraction,
        val_fraction=experiment.val_fraction,
        roi_names=cohort.roi_names,
        seed=experiment.seeds[0],
    )
