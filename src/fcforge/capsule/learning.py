"""One hospital's turn: open a capsule, learn the site, hand over the next capsule.

A chain of capsules is the run `fcforge run` would do for that order and seed, bit by bit: the
split depends on (seed, site), the site is trained by the same engine call with one torch thread,
and remembered synthetic subjects travel as the exact float32 numbers they were.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from fcforge.capsule import ledger
from fcforge.capsule.container import require_place
from fcforge.capsule.contents import (
    Capsule,
    ChainSettings,
    require_fit,
    settings_for,
    template_of,
)  # fmt: skip
from fcforge.capsule.home import Receipt
from fcforge.capsule.keys import read_private
from fcforge.capsule.ledger import PrivateKey
from fcforge.capsule.opening import Trust, open_capsule
from fcforge.capsule.requests import LearnRequest
from fcforge.capsule.sealing import require_allowed, seal
from fcforge.capsule.turn import (
    Tick,
    Turn,
    counts_of,
    people_learned,
    require_alike,
    require_budget,
)  # fmt: skip
from fcforge.components import check_names, look_up
from fcforge.errors import CapsuleError, ConfigError, at
from fcforge.methods import METHODS
from fcforge.runner.config import load_experiment
from fcforge.runner.environment import describe
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import Progress
from fcforge.sites import Cohort, load_dataset, require_valid, split_site
from fcforge.sites.cohort import NUMBERED
from fcforge.sites.harmonise import Harmony, arrive
from fcforge.types import Component, FCBatch, LearnerSpec, Site, Training

ALIKE = ("allow_real_subjects", "overwrite", "epsilon", "accept")  # called so in a request, too


def check_turn(
    capsule: Capsule | None, settings: ChainSettings, site_name: str, n_rois: int
) -> None:
    """Raise when this site cannot be learned next."""
    settings.check_harmonise()
    if settings.build().method.depends_on == "all":
        what = f"learner '{settings.learner.title}' needs all sites at once: nothing to hand over."
        raise CapsuleError(what, do="Choose a continual method; see `fcforge list methods`.")
    if n_rois != settings.n_rois:
        what = f"the data have {n_rois} ROIs, the capsule {settings.n_rois}."
        raise CapsuleError(what, do="All hospitals of a chain use one atlas.")
    if capsule is not None and site_name in capsule.sites:
        raise CapsuleError("was learned already.", do="Give the new site another name.")


def learn_next(
    capsule: Capsule | None, settings: ChainSettings, site: Site, *,
    template: str | Path | None = None, weight: Tensor | None = None, tick: Tick = lambda: None,
    time_stamp: str | None = None, flags: Sequence[str] = (), public: FCBatch | None = None,
) -> Capsule:  # fmt: skip
    """The capsule after one more site (not sealed yet).

    Parameters
    ----------
    capsule : Capsule or None
        What came in; None starts a chain.
    settings : ChainSettings
        Those of `capsule`, where there is one.
    site : Site
        The hospital's own subjects, split. `test` may be empty.
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    weight : Tensor, optional
        What each learned subject counts, for methods that weigh; recorded as a flag.
    tick : callable
        Called after every epoch.
    time_stamp : str, optional
        UTC; now, unless given.
    flags : sequence of str
        What was accepted, to be recorded.
    public : FCBatch, optional
        People that a chain's first site is harmonised to; else it is itself the reference.
    """
    check_turn(capsule, settings, site.name, site.n_rois)
    known = _harmony(settings, public) if capsule is None else capsule.harmony
    harmony, moved = arrive(known, settings.harmonise, site)
    turn = Turn(capsule, settings, moved, template)
    started = time.perf_counter()
    lane = turn.train(with_val=settings.learns_val, tick=tick, weight=weight)
    seconds = round(time.perf_counter() - started, 3)
    packed, remembered = turn.packed(lane)
    synthetic = turn.held_out(capsule)
    receipt = Receipt(site.name, people_learned(settings, site))
    before = capsule or Capsule(settings, (), packed, remembered, synthetic, ())
    entry = {
        "kind": "learn",
        "site": site.name,
        "settings": settings.digest,
        "counts": counts_of(site),
        "metrics": turn.metrics(lane, synthetic),
        "calibration": turn.calibration(lane, synthetic),
        "reference": turn.reference(synthetic),
        "environment": describe("cpu"),
        "seconds": seconds,
        "time": time_stamp or ledger.now(),
        "parent": before.id,
        "commitment": receipt.commitment,
        "flags": [*flags, *([] if weight is None else ["weighted subjects"])],
        **({} if harmony is None else {"harmonised": harmony.digest(len(turn.past))}),
    }
    sites, entries = (*turn.past, site.name), ledger.append(before.entries, entry)
    made = Capsule(settings, sites, packed, remembered, synthetic, entries, parent=before.id)
    return replace(made, receipts=(*before.receipts, receipt), harmony=harmony)


def _harmony(settings: ChainSettings, public: FCBatch | None) -> Harmony | None:
    """What a chain starts from: public people as the reference, or nothing."""
    if public is None:
        return None
    if settings.harmonise == "none":
        do = "Set harmonise to 'site_demean' or 'combat'."
        raise CapsuleError("public people to harmonise with were given.", do=do)
    if public.fc.shape[1] != settings.n_rois:
        raise CapsuleError(
            f"the public people have {public.fc.shape[1]} ROIs, the site {settings.n_rois}."
        )
    return Harmony.to_public(settings.harmonise, public.fc.numpy(), public.y.numpy())


@dataclass(frozen=True)
class LearnOptions:
    """What a hospital may ask for besides learning.

    Attributes
    ----------
    key : PrivateKey, optional
        Signs the new ledger line and the capsule.
    trust : Trust
        Whose capsules are accepted.
    allow_real_subjects, overwrite
        As in `seal`.
    epsilon : float, optional
        The most that each person may spend.
    template : path, optional
        This hospital's copy of a template that the settings name by its content.
    accept : sequence of str
        What may look odd (`turn.ACCEPT_LABELS`, `turn.ACCEPT_SCANS`); recorded.
    public : FCBatch, optional
        People that the first site is harmonised to.
    agree : callable
        Called with the capsule that is about to be continued; raises where it must not be.
    progress : callable
        Called with (epochs done, in all, what is going on) as the site is learned.
    say : callable
        Told what is about to be spent.
    """

    key: PrivateKey | None = None
    trust: Trust = field(default_factory=Trust)
    allow_real_subjects: bool = False
    overwrite: bool = False
    epsilon: float | None = None
    template: str | Path | None = None
    accept: Sequence[str] = ()
    public: FCBatch | None = None
    agree: Callable[[Capsule], Any] = lambda capsule: None
    progress: Progress = lambda done, total, last: None
    say: Callable[[str], Any] = lambda text: None


def learn(
    state: str | Path | None,
    site_name: str,
    cohort: Cohort,
    out: str | Path,
    *,
    settings: ChainSettings | None = None,
    options: LearnOptions = LearnOptions(),  # noqa: B008 (frozen)
) -> Capsule:
    """What `fcforge learn` does: open, split the site, learn it, seal the next capsule.

    Receipts are written beside the capsule and must stay at home.

    Parameters
    ----------
    state : path or None
        Capsule that came in; None starts a chain with `settings`.
    site_name : str
        Site of `cohort` to learn; other sites of the cohort are not looked at.
    cohort : Cohort
    out : path
        Where the next capsule goes; nothing is written unless everything went well.
    settings : ChainSettings, optional
        Only for the first site; later ones follow the capsule.
    options : LearnOptions, optional
    """
    capsule = open_capsule(state, trusted=options.trust) if state is not None else None
    settings = capsule.settings if capsule is not None else settings
    if settings is None:
        raise CapsuleError("the first site needs settings.", do="Name a method, or a config.")
    with at(f"site '{site_name}'"):
        require_fit(cohort, settings.roi_names, settings.classes)
        check_turn(capsule, settings, site_name, cohort.n_rois)
    site = _own_site(settings, cohort, site_name)
    require_place(out, overwrite=options.overwrite)
    flags = _allowed(capsule, settings, site, options)
    epochs, total = count(1), settings.training.epochs
    tick = lambda: options.progress(next(epochs), total, f"epochs, {site_name}")  # noqa: E731
    following = learn_next(
        capsule,
        settings,
        site,
        template=options.template,
        tick=tick,
        flags=flags,
        public=options.public,
    )
    real, overwrite = options.allow_real_subjects, options.overwrite
    return seal(following, out, key=options.key, allow_real_subjects=real, overwrite=overwrite)


def _own_site(settings: ChainSettings, cohort: Cohort, name: str) -> Site:
    """The hospital's subjects, split."""
    mine = cohort.select_sites([name])
    require_valid(mine)
    return split_site(mine, name, settings.seed, settings.test_fraction, settings.val_fraction)


def _allowed(
    capsule: Capsule | None, settings: ChainSettings, site: Site, options: LearnOptions
) -> list[str]:
    """Flags of what was accepted; refuses before training what sealing would refuse after it."""
    if settings.copies_real or (capsule is not None and capsule.holds_real):
        require_allowed(settings, options.allow_real_subjects)
    before = capsule.entries if capsule is not None else ()
    ledger.require_same_signing([line["key"] for line in before], options.key is not None)
    with at(f"site '{site.name}'"):
        if spends := require_budget(settings, options.epsilon):
            options.say(spends)
        if capsule is None:
            return []
        options.agree(capsule)
        return require_alike(capsule, site, options.accept, options.say)


# -- as ``fcforge learn`` asks: the first site of a chain chooses, later ones follow -------------
def learn_site(request: LearnRequest, **told: Any) -> Capsule:
    """Learn one site and seal the next capsule.

    The first site (no `state`) fixes the settings: those of a config (one of its learners), or of
    a method, model and generator by name. Later sites follow the capsule, and saying something
    else is an error. `told` are the callables of `LearnOptions`: agree, progress, say.
    """
    odd = [name for name in request.release if name not in ("epsilon", "accept_labels")]
    if odd:
        raise ConfigError(
            f"--{odd[0].replace('_', '-')} is for releases around a public start.",
            do="Give such a capsule as --state (`fcforge start` makes it).",
        )
    data = {"path": str(request.data), "kind": request.kind, "positive": request.positive}
    cohort = load_dataset(Component("folder", {**data, "sites": [request.site]}))
    settings, template = _settings(request, cohort)
    options = LearnOptions(
        key=read_private(request.sign) if request.sign is not None else None,
        trust=Trust.of(request.trust, request.require_signature or None),
        template=request.template or template,
        public=_public(request),
        **{name: getattr(request, name) for name in ALIKE},
        **told,
    )
    site, rois = request.site, cohort.n_rois
    options.say(f"learning site '{site}' ({len(cohort)} subjects, {rois} ROIs)")
    return learn(request.state, site, cohort, request.out, settings=settings, options=options)


def _public(request: LearnRequest) -> FCBatch | None:
    """The public people that a first site is harmonised to, where they are named."""
    if request.harmonise_to is None:
        return None
    options = {"path": str(request.harmonise_to), "kind": request.kind}
    people = load_dataset(Component("folder", {**options, "positive": request.positive}))
    return FCBatch.from_numpy(people.fc, people.y)


def _settings(
    request: LearnRequest, cohort: Cohort
) -> tuple[ChainSettings | None, str | Path | None]:
    """What a first site chooses, and its template; a later one may not choose."""
    chosen = request.chosen
    if request.state is None:
        experiment = load_experiment(request.config) if request.config is not None else None
        return first_settings(cohort, experiment, chosen), template_of(_learner(experiment, chosen))
    if chosen:
        raise ConfigError(
            f"--{next(iter(chosen)).replace('_', '-')} was given together with --state.",
            do="Only the first site of a chain chooses; later ones follow the capsule.",
        )
    return None, None


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
            raise ConfigError("a capsule is never made with a leak on.", do="Remove [leaks].")
        rest["seed"] = experiment.seeds[0]
        alike = ("protocol", "test_fraction", "val_fraction", "harmonise")
        rest |= {name: getattr(experiment, name) for name in alike}
    own = ("seed", "held_out", "calibrate", "harmonise")
    rest |= {k: given[k] for k in own if k in given}
    if "calibrate" in rest:
        check_names("calibration", [rest["calibrate"]], ("inner_val", "synthetic", "none"))
    return settings_for(_learner(experiment, given), cohort.n_rois, **rest)


def _learner(experiment: Experiment | None, given: Mapping[str, Any]) -> LearnerSpec:
    """Learner of a config, or of ``--method``, ``--model`` and ``--generator``."""
    if experiment is not None:
        return _of_config(experiment, given)
    if "learner" in given:
        raise ConfigError("--learner was given without --config.", do="Use --method.")
    if "method" not in given:
        raise ConfigError(
            "the first site needs a method.",
            do="Give --method (see `fcforge list methods`) or --config.",
        )
    method = look_up("method", given["method"], METHODS)
    model = given.get("model") or next(iter(method.models), "gcn")
    generator = Component(given["generator"]) if "generator" in given else None
    return LearnerSpec(Component(given["method"]), Component(model), generator)


def _of_config(experiment: Experiment, given: Mapping[str, Any]) -> LearnerSpec:
    """Learner of a config: its only one, or the one of that title."""
    for key in ("method", "model", "generator"):
        if key in given:
            raise ConfigError(f"--{key} was given together with --config.", do="Use --learner.")
    names = {spec.title: spec for spec in experiment.learners}
    if "learner" not in given and len(names) > 1:
        raise ConfigError(
            f"the config has {len(names)} learners.",
            do=f"Choose one with --learner: {', '.join(names)}.",
        )
    return look_up("learner", given.get("learner", next(iter(names))), names)
