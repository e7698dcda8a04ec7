"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fcforge import requests, writing
from fcforge.cli import _options as given
from fcforge.cli._options import takes
from fcforge.errors import ConfigError
from fcforge.progress import at_work, progress_on_stderr, say

if TYPE_CHECKING:
    from fcforge.capsule.prediction import Prediction
    from fcforge.capsule.sealing import Trust
    from fcforge.consortium.predicting import Either


def _wrote(said: str, out: Path, words: list[str] | None = None) -> None:
    """Say that a capsule was written, with its model card, and print it in words.

    A release alone has no card: it is read with `inspect`.
    """
    from fcforge.report.card import write_card

    say(said)
    if out.suffix != ".release":
        say(f"wrote {write_card(out)}, its model card.")
    if words:
        print("\n".join(words))


def _trust(keys: list[Path] | None, required: bool = False) -> Trust:
    """Trust in the public keys of these files."""
    from fcforge.capsule.sealing import Trust

    return Trust.of(keys or (), required or None)


def start(
    out: Annotated[Path, Option(help="Capsule to write.")],
    data: Annotated[
        Path | None, Option(help="Public people: .npz file or folder.")
    ] = None,
    sites: Annotated[str, Option(help="Public sites, separated by commas (all).")] = "",
    remove: Annotated[
        str, Option(help="Covariates to remove, e.g. mean_fd,age,sex.")
    ] = "",
    dataset: Annotated[
        str, Option(help="Loader; see `fcforge list datasets`.")
    ] = "folder",
    overrides: Annotated[
        list[str] | None, Option("--set", help="E.g. start.axes=8.")
    ] = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Make a public start: what a consortium begins from, made of public people alone."""
    from fcforge.consortium.turn import names_in, start_file
    from fcforge.report.consortium import start_words

    source = {"name": dataset, **({} if data is None else {"path": str(data)})}
    names = names_in(sites)
    taken = names_in(remove)
    with at_work("making the start"):
        made = start_file(source, names, taken, out, overrides or [], overwrite)
    said = f"wrote {out}; give this file to every hospital."
    _wrote(said, out, start_words(made))


@takes(requests.LearnRequest)
def learn(request: requests.LearnRequest) -> None:
    """Learn one site: add its release to a consortium, or seal the next capsule of a chain."""
    from fcforge.consortium.files import is_consortium

    if request.state is not None and is_consortium(request.state):
        _learn_release(request)
    else:
        _learn_link(request)


def _learn_release(request: requests.LearnRequest) -> None:
    from fcforge.consortium.turn import take_turn
    from fcforge.report import consortium as shown

    out = request.out
    done = take_turn(
        request,
        lambda found: say("\n".join(shown.found_words(found))),
        lambda group: _agree(shown.continued_group(group, request), request.yes),
    )
    said = f"wrote {out}, which may leave; the home file beside the data must not."
    _wrote(said, out, shown.release_words(done.release))


def _learn_link(request: requests.LearnRequest) -> None:
    from fcforge.capsule.contents import Capsule
    from fcforge.capsule.learning import learn_site
    from fcforge.report.consortium import continued_chain
    from fcforge.report.inspect import inspect_words

    def agree(before: Capsule) -> None:
        _agree(continued_chain(before), request.yes)

    with progress_on_stderr("learning") as progress:
        capsule = learn_site(request, progress=progress, say=say, agree=agree)
    said = f"sealed {request.out}; send this one file on, nothing else."
    _wrote(said, request.out, inspect_words(capsule))


def _agree(words: list[str], yes: bool) -> None:
    """Show what is about to be continued, and ask unless `yes` was said."""
    say("\n".join(words))
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal on which to ask whether to go on with this.",
            do="Read the lines above; if they are what you expect, add --yes.",
        )
    if not typer.confirm("Go on with this?", err=True):
        raise typer.Exit(1)


def merge(
    files: Annotated[list[Path], Argument(help="Capsules and .release files.")],
    out: Annotated[Path, Option(help="Capsule to write.")],
    trust: given.Trust = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Join the releases of several capsules with one start; the order does not matter."""
    from fcforge.consortium.files import union_of, write_consortium
    from fcforge.report.consortium import consortium_words

    group = union_of(files, _trust(trust))
    write_consortium(group, out, overwrite=overwrite)
    _wrote(f"wrote {out}", out, consortium_words(group))


def withdraw(
    site: Annotated[str, Argument(help="Site whose releases are taken back.")],
    state: Annotated[Path, Option(help="Capsule with its releases.")],
    out: Annotated[Path, Option(help="Capsule to write, or a .release to send round.")],
    sign: Annotated[
        Path | None, Option(help="Private key its releases are signed by.")
    ] = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Take a site's releases back: the model becomes what it would be without them."""
    from fcforge.consortium.turn import withdraw_file
    from fcforge.report.consortium import consortium_words

    group = withdraw_file(site, state, out, sign, overwrite)
    said = f"wrote {out}; whoever holds an older capsule merges it, and the withdrawal holds there."
    _wrote(said, out, consortium_words(group))


def threshold(
    capsule: given.Capsule,
    data: Annotated[
        Path, Option(help="The hospital's own people: .npz file or folder.")
    ],
    site: Annotated[str, Option(help="Name of its site.")],
    local: Annotated[Path, Option(help="Its home file, which is updated.")],
    kind: given.FileKind = "auto",
) -> None:
    """Fit the hospital's own threshold again for a newer capsule; nothing leaves the hospital."""
    from fcforge.capsule.home import read_home, write_own
    from fcforge.consortium.files import read_consortium
    from fcforge.consortium.learning import refit_threshold
    from fcforge.sites import load_people

    home = read_home(local, must_exist=True)
    group = read_consortium(capsule, _trust(None))
    cohort = load_people(data, [site], kind)
    found = refit_threshold(group, cohort, site, home)
    write_own(found, local)
    own = found.threshold
    if own is not None:
        odds = f"{own.intercept:.3f} + {own.slope:.3f} x consortium's log odds"
        print(f"own log odds = {odds}")


def evaluate(
    capsule: given.Capsule,
    data: Annotated[Path, Argument(help="People with diagnoses: .npz file or folder.")],
    site: Annotated[str, Option(help="Sites to use, separated by commas (all).")] = "",
    local: given.Local = None,
    unseen: given.Unseen = "refuse",
    kind: given.FileKind = "auto",
    trust: given.Trust = None,
    as_json: given.AsJson = False,
    positive: given.Positive = None,
) -> None:
    """Measure a capsule on people with known diagnoses, next to the majority class."""
    from fcforge.capsule.home import Home, read_home
    from fcforge.consortium import predicting
    from fcforge.consortium.turn import names_in
    from fcforge.report.consortium import evaluation_text
    from fcforge.sites import load_people

    home = read_home(local, must_exist=True) if local else Home()
    cohort = load_people(data, names_in(site), kind, positive)
    opened = predicting.open_either(capsule, _trust(trust))
    with at_work("predicting"):
        found = predicting.evaluate(opened, cohort, home, unseen)
    if found.warning:
        say(found.warning, style="red")
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        print(evaluation_text(found))


@takes(requests.PredictRequest)
def predict(asked: requests.PredictRequest) -> int:
    """Predict each scan, or abstain where it is too unusual; exit code 1 if no scan can be used."""
    from fcforge.capsule import prediction
    from fcforge.consortium import predicting
    from fcforge.consortium.turn import own_threshold
    from fcforge.report.terminal import prediction_text

    if asked.atlas and asked.explain is None:
        raise ConfigError(
            "--atlas was given without --explain.", do="Give both or neither."
        )
    opened = predicting.open_either(asked.capsule, _trust(asked.trust))
    own = own_threshold(asked.local, opened)
    model = predicting.predictor(opened, asked.site, asked.unseen)
    with at_work("predicting"):
        rows = prediction.predict_scans(model, asked.scans, asked.kind, own)
    for note in own.stale(model.id) if own is not None else ():
        say(note, style="yellow")
    say(prediction_text(rows, model.sites))
    written = prediction.as_json if asked.as_json else prediction.as_csv
    text = written(rows, model).rstrip()
    if asked.out is None:
        print(text)
    else:
        writing.write_text(asked.out, f"{text}\n")
    if asked.explain is not None:
        _explain(asked, asked.explain, opened, rows)
    return 0 if any(row.usable for row in rows) else 1


def _explain(
    asked: requests.PredictRequest, folder: Path, opened: Either, rows: list[Prediction]
) -> None:
    from fcforge.consortium import predicting
    from fcforge.imaging.atlases import load_atlas
    from fcforge.report.explaining import write_explanation

    atlas = load_atlas(asked.atlas) if asked.atlas else None
    place = (asked.site, asked.unseen)
    with at_work("explaining"):
        why = predicting.explain_file(
            opened, asked.scans, rows, asked.kind, atlas, *place
        )
        write_explanation(why, rows, folder, predicting.predictor(opened).id)
    say(f"wrote {folder}/index.html, edges.csv and matrices.npz")


def inspect(
    capsule: given.Capsule,
    release: Annotated[
        str | None, Option(help="Print every number that left this site.")
    ] = None,
    trust: given.Trust = None,
    require_signature: given.RequireSignature = False,
    card: Annotated[
        bool, Option("--card", help="Print the model card (Markdown).")
    ] = False,
    as_json: given.AsJson = False,
) -> None:
    """Describe a capsule in plain words: who contributed, when, what it keeps, how good it is."""
    from fcforge.consortium.files import read_release
    from fcforge.consortium.predicting import open_either
    from fcforge.report.card import card_of
    from fcforge.report.consortium import either_text, record_words

    known = _trust(trust, require_signature)
    if card:
        print(card_of(capsule, known), end="")
    elif capsule.suffix == ".release":
        record = read_release(capsule, known)
        if as_json:
            print(json.dumps(record.to_json()))
        else:
            print("\n".join(record_words(record)))
    else:
        print(either_text(open_either(capsule, known), release, as_json))


def verify(
    capsule: given.Capsule,
    trust: given.Trust = None,
    require_signature: given.RequireSignature = False,
    as_json: given.AsJson = False,
) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    from fcforge.capsule import sealing
    from fcforge.consortium import files
    from fcforge.report.terminal import verify_text

    known = _trust(trust, require_signature)
    if files.is_consortium(capsule):
        checks = files.verify(capsule, known)
    else:
        checks = sealing.verify(capsule, known)
    ok = all(check.ok for check in checks)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [asdict(c) for c in checks]}, indent=1))
    else:
        print(verify_text(checks))
    raise typer.Exit(0 if ok else 1)


@takes(requests.AuditRequest)
def audit(request: requests.AuditRequest) -> None:
    """Attack what would be released: who was trained on, who can be identified."""
    from fcforge.consortium.turn import audit_as_asked
    from fcforge.report import audits

    with at_work("attacking"):
        found = audit_as_asked(request, say)
    if request.record is not None:
        _wrote(f"sealed {request.record} with the audit inside.", request.record)
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json and audit.md")
    print(audits.as_json(found) if request.as_json else audits.as_text(found))


COMMANDS = (
    start,
    learn,
    merge,
    withdraw,
    threshold,
    evaluate,
    predict,
    inspect,
    verify,
    audit,
)
PANEL = given.CAPSULES
