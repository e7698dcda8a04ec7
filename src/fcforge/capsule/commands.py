"""What the commands learn, predict, inspect and verify do, without a command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.components import check_names, look_up
from fcforge.errors import CapsuleError, ConfigError, FCForgeError

if TYPE_CHECKING:
    from fcforge.capsule.contents import Capsule, Settings
    from fcforge.runner.execute import Progress
    from fcforge.runner.experiment import Experiment
    from fcforge.sites import Cohort

Say = Callable[[str], Any]


def learn_command(
    *,
    site: str,
    data: str | Path,
    out: str | Path,
    state: str | Path | None = None,
    experiment: Experiment | None = None,
    learner: str | None = None,
    method: str | None = None,
    model: str | None = None,
    generator: str | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    held_out: int | None = None,
    calibrate: str | None = None,
    kind: str = "auto",
    sign: str | Path | None = None,
    trust: Sequence[str | Path] = (),
    allow_real_subjects: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda done, total, last: None,
    say: Say = lambda text: None,
) -> str:
    """Learn one site and seal the next capsule; returns what to print.

    The first site (`state` is None) fixes the settings: those of `experiment` (one of its
    learners), or of a method, model and generator by name. Later sites follow the capsule, and
    saying something else is an error.
    """
    from fcforge.capsule.learning import learn
    from fcforge.capsule.signing import read_private, read_public
    from fcforge.report.inspect import inspect_words

    asked = {
        "method": method, "model": model, "generator": generator, "epochs": epochs,
        "seed": seed, "held_out": held_out, "calibrate": calibrate, "learner": learner,
    }  # fmt: skip
    given = {key: value for key, value in asked.items() if value is not None}
    if state is not None and (given or experiment is not None):
        name = next(iter(given), "config")
        raise ConfigError(
            f"--{name.replace('_', '-')} was given together with --state.",
            do="Only the first site of a chain chooses; later ones follow the capsule.",
        )
    cohort = load_site(data, site, kind)
    settings = first_settings(cohort, experiment, given) if state is None else None
    say(f"learning site '{site}' ({len(cohort)} subjects, {cohort.n_rois} ROIs)")
    capsule = learn(
        state,
        site,
        cohort,
        out,
        settings=settings,
        key=read_private(sign) if sign is not None else None,
        trusted=[read_public(path) for path in trust],
        allow_real_subjects=allow_real_subjects,
        overwrite=overwrite,
        progress=progress,
        say=say,
    )
    say(f"sealed {out}; send this one file on, nothing else.")
    return "\n".join(inspect_words(capsule))


def load_site(data: str | Path, site: str, kind: str) -> Cohort:
    """Subjects of one site from a dataset file or folder."""
    from fcforge.sites import load_dataset
    from fcforge.types import Component

    return load_dataset(Component("folder", {"path": str(data), "kind": kind, "sites": [site]}))


def first_settings(
    cohort: Cohort, experiment: Experiment | None, given: Mapping[str, Any]
) -> Settings:
    """Settings of a new chain, from a config's learner or from names."""
    from fcforge.capsule.contents import settings_for
    from fcforge.capsule.learning import rois_sha256
    from fcforge.types import Training

    training = experiment.training if experiment is not None else Training()
    if "epochs" in given:
        training = replace(training, epochs=given["epochs"])
    rest: dict[str, Any] = {"training": training, "rois": rois_sha256(cohort)}
    if experiment is not None:
        _refuse_unfit(experiment)
        rest |= {
            "seed": experiment.seeds[0],
            "protocol": experiment.protocol,
            "test_fraction": experiment.test_fraction,
            "val_fraction": experiment.val_fraction,
        }
    rest |= {k: given[k] for k in ("seed", "held_out", "calibrate") if k in given}
    if "calibrate" in rest:
        check_names("calibration", [rest["calibrate"]], ("inner_val", "synthetic", "none"))
    return settings_for(_choose_learner(experiment, given), cohort.n_rois, **rest)


def _refuse_unfit(experiment: Experiment) -> None:
    if experiment.leaks.active():
        raise ConfigError("a capsule is never made with a leak on.", do="Remove [leaks].")
    if experiment.harmonise != "none":
        raise ConfigError(
            f"harmonise = '{experiment.harmonise}' needs other sites' data.",
            do="Set harmonise = 'none' for hospitals that do not share data.",
        )


def _choose_learner(experiment: Experiment | None, given: Mapping[str, Any]) -> Any:
    from fcforge.types import Component, LearnerSpec

    if experiment is None:
        if "learner" in given:
            raise ConfigError("--learner was given without --config.", do="Use --method.")
        if "method" not in given:
            raise ConfigError(
                "the first site needs a method.",
                do="Give --method (see `fcforge list methods`) or --config.",
            )
        model = given.get("model") or _first_model(given["method"])
        generator = Component(given["generator"]) if "generator" in given else None
        return LearnerSpec(Component(given["method"]), Component(model), generator)
    names = {spec.title: spec for spec in experiment.learners}
    for key in ("method", "model", "generator"):
        if key in given:
            raise ConfigError(f"--{key} was given together with --config.", do="Use --learner.")
    wanted = given.get("learner")
    if wanted is None and len(names) > 1:
        raise ConfigError(
            f"the config has {len(names)} learners.",
            do=f"Choose one with --learner: {', '.join(names)}.",
        )
    return experiment.learners[0] if wanted is None else look_up("learner", wanted, names)


def _first_model(method: str) -> str:
    from fcforge.methods import METHODS

    return next(iter(look_up("method", method, METHODS).models), "gcn")


def open_trusted(path: str | Path, trust: Sequence[str | Path]) -> Capsule:
    """Open a capsule that must be signed by one of the keys in `trust`, if any are given."""
    from fcforge.capsule.opening import open_capsule
    from fcforge.capsule.signing import read_public

    return open_capsule(path, trusted=[read_public(key) for key in trust])


def predict_command(
    *,
    capsule: str | Path,
    scans: Sequence[str | Path],
    kind: str = "auto",
    trust: Sequence[str | Path] = (),
    as_json: bool = False,
    out: str | Path | None = None,
    say: Say = lambda text: None,
) -> str:
    """Predict files or folders; returns CSV or JSON (empty when it went to `out`)."""
    from typing import get_args

    from fcforge.capsule import prediction
    from fcforge.sites.reading import Kind
    from fcforge.writing import write_text

    check_names("kind", [kind], get_args(Kind))
    opened = open_trusted(capsule, trust)
    rows = prediction.predict(opened, list(scans), kind)  # type: ignore[arg-type]
    silent = sum(row.status == "unlike anything seen" for row in rows)
    unusable = sum(row.status == "cannot be used" for row in rows)
    say(
        f"{len(rows)} scans; {silent} unlike anything seen at {', '.join(opened.sites)}; "
        f"{unusable} cannot be used."
    )
    text = prediction.as_json(rows, opened) if as_json else prediction.as_csv(rows, opened.sites)
    if out is None:
        return text.rstrip("\n")
    try:
        write_text(Path(out), text if text.endswith("\n") else f"{text}\n")
    except OSError as error:
        raise FCForgeError(f"cannot be written ({error.strerror}).", where=str(out)) from error
    return ""


def inspect_command(
    *, capsule: str | Path, trust: Sequence[str | Path] = (), as_json: bool = False
) -> str:
    """A capsule in plain words, or as JSON."""
    from fcforge.capsule.summary import summary
    from fcforge.report.inspect import inspect_words

    opened = open_trusted(capsule, trust)
    return json.dumps(summary(opened), indent=1) if as_json else "\n".join(inspect_words(opened))


def verify_command(
    *, capsule: str | Path, trust: Sequence[str | Path] = (), as_json: bool = False
) -> tuple[str, bool]:
    """What was checked, and whether all of it holds."""
    from fcforge.capsule.opening import STEPS, verify
    from fcforge.capsule.signing import read_public

    checks = verify(capsule, trusted=[read_public(key) for key in trust])
    ok = all(check.ok for check in checks) and len(checks) == len(STEPS)
    if as_json:
        return json.dumps({"ok": ok, "checks": [asdict(c) for c in checks]}, indent=1), ok
    lines = [f"{'ok ' if c.ok else 'BAD'}  {c.name}: {c.detail}" for c in checks]
    return "\n".join([*lines, "intact" if ok else "DO NOT USE THIS CAPSULE"]), ok


def keys_command(*, out: str | Path) -> str:
    """Make a signing key: OUT (private, keep it) and OUT.pub (give it to the others)."""
    from fcforge.capsule.signing import write_keys

    if Path(out).exists() or Path(f"{out}.pub").exists():
        raise CapsuleError("exists already.", where=str(out), do="Choose another name.")
    return f"wrote {out} (private: keep it) and {out}.pub, key {write_keys(out)[:16]}"
