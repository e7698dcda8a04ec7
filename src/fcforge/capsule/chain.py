"""Settings of a chain: what all its hospitals share, fixed by the first one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from fcforge.capsule.ledger import canonical, sha256
from fcforge.components import look_up
from fcforge.engine import Learner
from fcforge.errors import CapsuleError, ConfigError, FCForgeError
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.runner.experiment import Experiment
from fcforge.runner.learners import build_learner
from fcforge.settings import Bound, Checked, Fraction, ShareBelowOne, read_json
from fcforge.sites import Cohort
from fcforge.sites.cohort import NUMBERED
from fcforge.types import Component, LearnerSpec, Protocol, RunSpec, Training

MAX_ROIS, MAX_NUMBER, MAX_NAME = 2_000, 100_000, 200
SETTING, PREFIX = "public", "sha256:"
MAX_TEMPLATE = 1 << 28  # bytes


def _up_to(low: int, high: int) -> Bound:
    return Bound(lambda n: low <= n <= high, "cannot be used", f"Use {low} to {high}.")


@dataclass(frozen=True)
class ChainSettings(Checked):
    """What all hospitals of a chain share; fixed by the first one.

    Attributes
    ----------
    learner, seed, n_rois, training, protocol, test_fraction, val_fraction
        As in `RunSpec`: a chain of capsules is a run whose sites never meet.
    judge : Component
        Generator of the synthetic held-out sets; the learner's own, else corr_gauss.
    held_out : int
        Synthetic held-out subjects per site (0: no metrics on past sites, no abstention).
    calibrate : {"inner_val", "synthetic", "none"}
        What the temperature of the probabilities is fitted on.
    roi_names : tuple of str
        Empty where unknown; every hospital's ROIs must have these names, in this order.
    classes : tuple of two
        What controls and patients are called: numbers or texts.
    harmonise : {"none", "site_demean", "combat"}
        How every site is brought to the first one (or to public people); see
        `fcforge.sites.harmonise`.
    """

    kind: ClassVar[str] = "chain"
    learner: LearnerSpec
    n_rois: Annotated[int, _up_to(2, MAX_ROIS)]
    seed: int = 0
    training: Training = field(default_factory=Training)
    protocol: Protocol = "strict"
    test_fraction: Fraction = RunSpec.test_fraction
    val_fraction: ShareBelowOne = RunSpec.val_fraction
    judge: Component = field(default_factory=lambda: Component("corr_gauss"))
    held_out: Annotated[int, _up_to(0, MAX_NUMBER)] = 64
    calibrate: Literal["inner_val", "synthetic", "none"] = "inner_val"
    roi_names: tuple[str, ...] = ()
    classes: tuple[int | float | str, int | float | str] = (0, 1)
    harmonise: Literal["none", "site_demean", "combat"] = "none"

    def spec(self, order: Sequence[str]) -> RunSpec:
        """The run this chain is, up to and including the last site of `order`."""
        alike = (
            "learner",
            "seed",
            "training",
            "protocol",
            "test_fraction",
            "val_fraction",
        )
        known = {name: getattr(self, name) for name in alike}
        return RunSpec(dataset=Component("capsule"), order=tuple(order), **known)

    def to_json(self) -> dict[str, Any]:
        """Plain nested dict."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """What every ledger line says of the settings: the manifest has them in full."""
        return sha256(canonical(self.to_json()))

    def build(self) -> Learner:
        """The learner, as a chain trains it."""
        return build_learner(self.learner, self.n_rois, has_start=False)

    @property
    def learns_val(self) -> bool:
        """Whether the validation part is trained on: nothing is chosen on it."""
        return self.training.selection == "fixed"

    @property
    def keeps(self) -> str:
        """What travels beyond the network."""
        kept = METHODS[self.learner.method.name].keeps
        return "statistics" if kept == "nothing" and self.harmonise != "none" else kept

    @property
    def copies_real(self) -> bool:
        """Whether the method keeps real subjects, or a generator copies them."""
        made_by = [
            GENERATORS[g.name].releases
            for g in (self.learner.generator, self.judge)
            if g
        ]
        return "real subjects" in (self.keeps, *made_by)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; odd names, types or sizes raise `CapsuleError`."""
        if missing := [f.name for f in fields(cls) if f.name not in data]:
            raise CapsuleError(f"its settings do not say {missing[0]}.")
        if max(_largest(v) for k, v in data.items() if k != "seed") > MAX_NUMBER:
            raise CapsuleError(f"a setting is larger than {MAX_NUMBER}.")
        try:
            settings = read_json(cls, data)
            settings.check()
        except CapsuleError:
            raise
        except (FCForgeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise CapsuleError(f"its settings cannot be read ({error}).") from error
        return settings

    def check(self) -> None:
        """Raise `CapsuleError` on values that no hospital can have meant."""
        names, classes = self.roi_names, {str(c) for c in self.classes}
        if len(names) not in (0, self.n_rois) or any(len(n) > MAX_NAME for n in names):
            raise CapsuleError(f"it names {len(names)} ROIs, but has {self.n_rois}.")
        if len(classes) != 2 or any(len(c) > MAX_NAME for c in classes):
            raise CapsuleError("its settings do not name two classes.")
        parts = {
            "method": self.learner.method,
            "model": self.learner.model,
            "judge": self.judge,
        }
        if self.learner.generator is not None:
            parts["generator"] = self.learner.generator
        for what, part in parts.items():
            if not isinstance(part.name, str) or not isinstance(part.params, Mapping):
                raise CapsuleError(f"its settings name no {what}.")
            known = {
                "method": [*METHODS],
                "judge": [*GENERATORS],
                "generator": [*GENERATORS],
            }
            if part.name not in known.get(what, [part.name]):
                raise CapsuleError(
                    f"this version of fcforge does not know '{part.name}'."
                )
            named = part.params.get(SETTING, "")
            if named and not re.fullmatch(PREFIX + "[0-9a-f]{64}", str(named)):
                raise CapsuleError(f"'{part.name}' names a file by its path.")
        self.check_harmonise()

    def check_harmonise(self) -> None:
        """Raise `CapsuleError` where exact means would break a method's promise of privacy."""
        name = self.learner.method.name
        if self.harmonise != "none" and hasattr(METHODS.get(name), "epsilon"):
            raise CapsuleError(
                f"harmonise = '{self.harmonise}' hands on exact means of every site's people, "
                f"which breaks the promise of method '{name}'.",
                do="Set harmonise = 'none', or choose a method that adds no noise.",
            )


def _largest(value: Any) -> float:
    """Largest magnitude of the whole numbers in nested settings."""
    inside = [*value.values()] if isinstance(value, Mapping) else value
    if isinstance(inside, (list, tuple)):
        return max(map(_largest, inside), default=0)
    return abs(value) if isinstance(value, int) else 0


def settings_for(learner: LearnerSpec, n_rois: int, **rest: Any) -> ChainSettings:
    """Settings whose held-out sets come from the learner's own generator, if it has one.

    Templates are named by their content.
    """
    if learner.generator is not None and learner.generator.name not in GENERATORS:
        raise ConfigError(f"unknown generator '{learner.generator.name}'.")

    def content(part: Component) -> str:
        named = str(part.params[SETTING])
        return named if named.startswith(PREFIX) else _digest(named)

    # a path means another file at every hospital, and would carry a user's name along
    learner = _renamed(learner, content)
    judge = learner.generator or Component("corr_gauss")
    return ChainSettings(learner=learner, n_rois=n_rois, **{"judge": judge, **rest})


def first_settings(
    cohort: Cohort, experiment: Experiment | None, given: Mapping[str, Any]
) -> ChainSettings:
    """Settings of a new chain, from a config's learner or from names."""
    training = experiment.training if experiment is not None else Training()
    if "epochs" in given:
        training = replace(training, epochs=given["epochs"])
    rest: dict[str, Any] = {"training": training, "roi_names": cohort.roi_names}
    rest["classes"] = (0, 1) if cohort.classes == NUMBERED else cohort.classes
    if experiment is not None:
        if experiment.leaks.active():
            raise ConfigError(
                "a capsule is never made with a leak on.", do="Remove [leaks]."
            )
        rest["seed"] = experiment.seeds[0]
        alike = ("protocol", "test_fraction", "val_fraction")
        rest |= {name: getattr(experiment, name) for name in alike}
    own = ("seed", "held_out", "calibrate", "harmonise")
    rest |= {k: given[k] for k in own if k in given}
    return settings_for(learner_of(experiment, given), cohort.n_rois, **rest)


def learner_of(experiment: Experiment | None, given: Mapping[str, Any]) -> LearnerSpec:
    """The only learner of a config or the one so called, or of ``--method`` and its like."""
    if experiment is None:
        if "learner" in given:
            raise ConfigError(
                "--learner was given without --config.", do="Use --method."
            )
        if "method" not in given:
            do = "Give --method (see `fcforge list methods`) or --config."
            raise ConfigError("the first site needs a method.", do=do)
        method = look_up("method", given["method"], METHODS)
        model = given.get("model") or next(iter(method.models), "gcn")
        generator = Component(given["generator"]) if "generator" in given else None
        return LearnerSpec(Component(given["method"]), Component(model), generator)
    for key in ("method", "model", "generator"):
        if key in given:
            raise ConfigError(
                f"--{key} was given together with --config.", do="Use --learner."
            )
    names = {spec.title: spec for spec in experiment.learners}
    if "learner" not in given and len(names) > 1:
        do = f"Choose one with --learner: {', '.join(names)}."
        raise ConfigError(f"the config has {len(names)} learners.", do=do)
    return look_up("learner", given.get("learner", next(iter(names))), names)


# -- files that a method draws on besides its subjects, named by their content ---------------
def _digest(path: str | Path) -> str:
    path = Path(path)
    if (
        not path.is_file() or path.stat().st_size > MAX_TEMPLATE
    ):  # a pipe would never end
        raise ConfigError("the template is not a readable file.", where=str(path))
    return PREFIX + sha256(path.read_bytes())


def template_of(learner: LearnerSpec) -> str | None:
    """Path of the template that a learner names, if it does."""
    named = [
        str(p.params.get(SETTING, "")) for p in (learner.method, learner.generator) if p
    ]
    return next((n for n in named if n and not n.startswith(PREFIX)), None)


def _renamed(learner: LearnerSpec, name: Callable[[Component], str]) -> LearnerSpec:
    """The learner with another name of the template wherever one is named."""
    parts = {"method": learner.method, "generator": learner.generator}
    new: dict[str, Any] = {
        what: replace(part, params={**part.params, SETTING: name(part)})
        for what, part in parts.items()
        if part is not None and part.params.get(SETTING, "")
    }
    return replace(learner, **new)


def unpinned(learner: LearnerSpec, template: str | Path | None) -> LearnerSpec:
    """The learner with the path of this hospital's own copy; another content is refused."""

    def own_copy(part: Component) -> str:
        named = part.params[SETTING]
        if template is None or _digest(template) != named:
            raise ConfigError(
                f"'{part.name}' needs the template {str(named)[:23]}..."
                + ("" if template is None else f", which '{template}' is not."),
                do="Ask the first hospital for the public template and name it with --template.",
            )
        return str(template)

    return _renamed(learner, own_copy)
