"""What a capsule holds: settings of the chain, one lane, subjects that may travel, the ledger."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from fcforge.capsule.arrays import Subjects
from fcforge.capsule.home import Receipt
from fcforge.capsule.ledger import Entry, canonical, learned, sha256
from fcforge.engine import Learner
from fcforge.errors import CapsuleError, ConfigError, FCForgeError
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS, Lane
from fcforge.runner.learners import build_learner
from fcforge.settings import Bound, Checked, Fraction, ShareBelowOne, read_json
from fcforge.sites.cohort import NUMBERED, Cohort
from fcforge.sites.harmonise import Harmony, Unseen
from fcforge.types import Component, Harmonise, LearnerSpec, Protocol, RunSpec, Training

MAX_ROIS, MAX_NUMBER, MAX_NAME = 2_000, 100_000, 200
SETTING, PREFIX = "public", "sha256:"
MAX_TEMPLATE = 1 << 28  # bytes
ANYWHERE = (NUMBERED, ("control", "patient"))  # mean the same in all data


def _up_to(low: int, high: int) -> Bound:
    return Bound(lambda n: low <= n <= high, "cannot be used", f"Use {low} to {high}.")


def wrong_rois(names: Sequence[str], ours: Sequence[str]) -> str:
    """What is wrong with the ROI names of some data; empty where either side has none."""
    if not names or not ours:
        return ""
    if len(names) != len(ours):
        return f"it has {len(names)} ROI names, the capsule {len(ours)}."
    odd = [k for k, (mine, our) in enumerate(zip(names, ours, strict=True)) if mine != our]
    if not odd:
        return ""
    return f"ROI {odd[0] + 1} is '{names[odd[0]]}', the capsule has '{ours[odd[0]]}' there."


def require_fit(cohort: Cohort, roi_names: Sequence[str], ours: Sequence[Any]) -> None:
    """Raise `CapsuleError` for other ROIs, or other patients, than those of the capsule.

    0 and 1 are controls and patients everywhere, and so are the words.

    Parameters
    ----------
    cohort : Cohort
    roi_names : sequence of str
        The capsule's.
    ours : sequence of two
        What the capsule calls controls and patients.
    """
    if wrong := wrong_rois(cohort.roi_names, roi_names):
        raise CapsuleError(wrong, do="All hospitals use one atlas with its ROIs in one order.")
    mine = cohort.classes
    both = [tuple(str(c).lower() for c in said) for said in (ours, mine)]
    if both[0] == both[1] or any(said in ANYWHERE for said in both):
        return
    turned = " The other way round." if both[0] == both[1][::-1] else ""
    raise CapsuleError(
        f"the capsule's patients are '{ours[1]}' and its controls '{ours[0]}', those of these data "
        f"'{mine[1]}' and '{mine[0]}'.{turned}",
        do=f"Say which diagnosis is the capsule's '{ours[1]}': --positive VALUE, and name it so in "
        "the data.",
    )


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
    harmonise: Harmonise = "none"

    def spec(self, order: Sequence[str]) -> RunSpec:
        """The run this chain is, up to and including the last site of `order`."""
        return RunSpec(
            dataset=Component("capsule"),
            learner=self.learner,
            order=tuple(order),
            seed=self.seed,
            training=self.training,
            protocol=self.protocol,
            test_fraction=self.test_fraction,
            val_fraction=self.val_fraction,
            harmonise=self.harmonise,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain nested dict; "none" is not written: such a capsule reads as it always did."""
        found = asdict(self)
        return {k: v for k, v in found.items() if (k, v) != ("harmonise", "none")}

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
        made_by = [GENERATORS[g.name].releases for g in (self.learner.generator, self.judge) if g]
        return "real subjects" in (self.keeps, *made_by)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; odd names, types or sizes raise `CapsuleError`."""
        try:
            if max(_largest(v) for k, v in data.items() if k != "seed") > MAX_NUMBER:
                raise CapsuleError(f"a setting is larger than {MAX_NUMBER}.")
            missing = [f.name for f in fields(cls) if f.name not in {*data, "harmonise"}]
            if missing:
                raise CapsuleError(f"its settings do not say {missing[0]}.")
            settings = read_json(cls, data)
            settings.check()
        except CapsuleError:
            raise
        except (FCForgeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise CapsuleError(f"its settings cannot be read ({error}).") from error
        return settings

    def check(self) -> None:
        """Raise `CapsuleError` on values that no hospital can have meant."""
        names = self.roi_names
        if len(names) not in (0, self.n_rois) or any(len(n) > MAX_NAME for n in names):
            raise CapsuleError(f"it names {len(names)} ROIs, but has {self.n_rois}.")
        if len({str(c) for c in self.classes}) != 2 or any(
            len(str(c)) > MAX_NAME for c in self.classes
        ):
            raise CapsuleError("its settings do not name two classes.")
        parts = {"method": self.learner.method, "model": self.learner.model, "judge": self.judge}
        if self.learner.generator is not None:
            parts["generator"] = self.learner.generator
        for what, part in parts.items():
            if not isinstance(part.name, str) or not isinstance(part.params, Mapping):
                raise CapsuleError(f"its settings name no {what}.")
            known = {"method": [*METHODS], "judge": [*GENERATORS], "generator": [*GENERATORS]}
            if part.name not in known.get(what, [part.name]):
                raise CapsuleError(f"this version of fcforge does not know '{part.name}'.")
            check_pinned(part)
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
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, (list, tuple)):
        return max(map(_largest, value), default=0)
    return abs(value) if isinstance(value, int) else 0


@dataclass(frozen=True)
class Capsule:
    """An opened (or not yet sealed) capsule.

    Attributes
    ----------
    settings : ChainSettings
    sites : tuple of str
        Sites learned, in order.
    lane : Lane
        Parameters, batch-norm statistics, method state. The state's `row_keys` hold places in
        `remembered` (-1: empty slot) instead of bank rows.
    remembered, held_out : Subjects
    entries : tuple of dict
        The ledger.
    id : str
        SHA-256 of the manifest, which covers everything; empty until sealed.
    parent : str
        Id of the capsule it was made from.
    signed_by : str
        Hex of the Ed25519 public key whose signature was checked; empty without signature.
    harmony : Harmony or None
        Of a harmonised chain: the reference, and how each site is moved to it.
    receipts : tuple of Receipt
        Who was learned: known to the hospital that just did, and never sealed.
    """

    settings: ChainSettings
    sites: tuple[str, ...]
    lane: Lane
    remembered: Subjects
    held_out: Subjects
    entries: tuple[Entry, ...]
    id: str = ""
    parent: str = ""
    signed_by: str = ""
    harmony: Harmony | None = None
    receipts: tuple[Receipt, ...] = ()

    def moved(
        self, fc: np.ndarray, site: str | Sequence[str] | None, unseen: Unseen = "refuse"
    ) -> np.ndarray:
        """FC (n, R, R) of people of a site (or of one site each) as the model wants them.

        Without harmonisation they stay as they are; with it the sites must be told.
        """
        if self.harmony is None:
            return fc
        if site is None or len(site) == 0:
            raise CapsuleError(
                f"the model is harmonised ({self.harmony.how}), so that a scan's site matters.",
                do=f"Say which: --site (or site=), one of {', '.join(self.sites)}.",
            )
        names = [site] * len(fc) if isinstance(site, str) else list(site)
        return self.harmony.apply(fc, names, self.sites, unseen)

    def line(self, site: str) -> Entry:
        """The ledger line in which a site was learned; else `CapsuleError`."""
        for entry in learned(self.entries):
            if entry["site"] == site:
                return entry
        raise CapsuleError(f"site '{site}' was not learned; it holds {', '.join(self.sites)}.")

    @property
    def temperature(self) -> float:
        """Geometric mean of the temperatures measured at the hospitals; 1 without any."""
        found = [e["calibration"]["temperature"] for e in learned(self.entries)]
        logs = [math.log(t) for t in found if t is not None]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    @property
    def holds_real(self) -> bool:
        """Whether sealing it needs the named flag."""
        return self.settings.copies_real or bool(self.remembered.real.any())


def settings_for(learner: LearnerSpec, n_rois: int, **rest: Any) -> ChainSettings:
    """Settings whose held-out sets come from the learner's own generator, if it has one."""
    if learner.generator is not None and learner.generator.name not in GENERATORS:
        raise ConfigError(f"unknown generator '{learner.generator.name}'.")
    learner = pinned(learner)
    judge = learner.generator or Component("corr_gauss")
    return ChainSettings(learner=learner, n_rois=n_rois, **{"judge": judge, **rest})


# -- files that a method draws on besides its subjects, named by their content ---------------
def _digest(path: str | Path) -> str:
    path = Path(path)
    if not path.is_file() or path.stat().st_size > MAX_TEMPLATE:  # a pipe would never end
        raise ConfigError("the template is not a readable file.", where=str(path))
    return PREFIX + sha256(path.read_bytes())


def check_pinned(component: Component) -> None:
    """Raise `CapsuleError` for a component that names a template by anything but its content."""
    named = component.params.get(SETTING, "")
    if named and not (isinstance(named, str) and re.fullmatch(PREFIX + "[0-9a-f]{64}", named)):
        raise CapsuleError(f"'{component.name}' names a file by its path.")


def template_of(learner: LearnerSpec) -> str | None:
    """Path of the template that a learner names, if it does."""
    named = [str(p.params.get(SETTING, "")) for p in (learner.method, learner.generator) if p]
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


def pinned(learner: LearnerSpec) -> LearnerSpec:
    """The learner with its templates named by content.

    A path means another file at every hospital, and would carry a user's name along.
    """

    def content(part: Component) -> str:
        named = str(part.params[SETTING])
        return named if named.startswith(PREFIX) else _digest(named)

    return _renamed(learner, content)


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
