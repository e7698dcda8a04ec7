"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fcforge import requests, writing
from fcforge.cli import _options as given
from fcforge.cli._options import capsule as chain
from fcforge.cli._options import consortium, report, studies, takes
from fcforge.errors import ConfigError
from fcforge.progress import at_work, progress_on_stderr, say


def _wrote(said: str, out: Path, words: list[str] | None = None) -> None:
    """Say that a capsule was written, with its model card, and print it in words.

    A release alone has no card: it is read with `inspect`.
    """
    say(said)
    if out.suffix != ".release":
        say(f"wrote {report.card.write_card(out)}, its model card.")
    if words:
        print("\n".join(words))


def _trust(keys: list[Path] | None, required: bool = False) -> Any:
    """Trust in the public keys of these files."""
    return chain.sealing.Trust.of(keys or (), required or None)


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
    source = {"name": dataset, **({} if data is None else {"path": str(data)})}
    names, taken = (consortium.turn.names_in(text) for text in (sites, remove))
    with at_work("making the start"):
        made = consortium.turn.start_file(
            source, names, taken, out, overrides or [], overwrite
        )
    said = f"wrote {out}; give this file to every hospital."
    _wrote(said, out, report.consortium.start_words(made))


@takes(requests.LearnRequest)
def learn(request: requests.LearnRequest) -> None:
    """Learn one site: add its release to a consortium, or seal the next capsule of a chain."""
    shown, out = report.consortium, request.out
    if request.state is not None and consortium.files.is_consortium(request.state):
        done = consortium.turn.take_turn(
            request,
            lambda found: say("\n".join(shown.found_words(found))),
            lambda group: _agree(shown.continued_group(group, request), request.yes),
        )
        said = f"wrote {out}, which may leave; the home file beside the data must not."
        _wrote(said, out, report.consortium.release_words(done.release))
        return
    with progress_on_stderr("learning") as progress:
        told = {"progress": progress, "say": say}
        told["agree"] = lambda capsule: _agree(
            shown.continued_chain(capsule), request.yes
        )
        capsule = chain.learning.learn_site(request, **told)
    said = f"sealed {out}; send this one file on, nothing else."
    _wrote(said, out, report.inspect.inspect_words(capsule))


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
    group = consortium.files.union_of(files, _trust(trust))
    consortium.files.write_consortium(group, out, overwrite=overwrite)
    _wrote(f"wrote {out}", out, report.consortium.consortium_words(group))


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
    group = consortium.turn.withdraw_file(site, state, out, sign, overwrite)
    said = f"wrote {out}; whoever holds an older capsule merges it, and the withdrawal holds there."
    _wrote(said, out, report.consortium.consortium_words(group))


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
    home = chain.home.read_home(local, must_exist=True)
    group = consortium.files.read_consortium(capsule, _trust(None))
    cohort = studies.audit_inputs.load_sites(data, [site], kind)
    found = consortium.learning.refit_threshold(group, cohort, site, home)
    chain.home.write_own(found, local)
    own = found.threshold
    print(
        f"own log odds = {own.intercept:.3f} + {own.slope:.3f} x consortium's log odds"
    )


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
    home = chain.home.read_home(local, must_exist=True) if local else chain.home.Home()
    sites = consortium.turn.names_in(site)
    cohort = studies.audit_inputs.load_sites(data, sites, kind, positive)
    opened = consortium.predicting.open_either(capsule, _trust(trust))
    with at_work("predicting"):
        found = consortium.predicting.evaluate(opened, cohort, home, unseen)
    if found.warning:
        say(found.warning, style="red")
    shown = report.consortium.evaluation_text
    print(json.dumps(found.to_json(), indent=1) if as_json else shown(found))


@takes(requests.PredictRequest)
def predict(asked: requests.PredictRequest) -> int:
    """Predict each scan, or abstain where it is too unusual; exit code 1 if no scan can be used."""
    if asked.atlas and asked.explain is None:
        raise ConfigError(
            "--atlas was given without --explain.", do="Give both or neither."
        )
    places = given.imaging.atlases.load_atlas(asked.atlas) if asked.atlas else None
    opened = consortium.predicting.open_either(asked.capsule, _trust(asked.trust))
    own = consortium.turn.own_threshold(asked.local, opened)
    model = consortium.predicting.predictor(opened, asked.site, asked.unseen)
    with at_work("predicting"):
        rows = chain.prediction.predict_scans(model, asked.scans, asked.kind, own)
    for note in own.stale(model.id) if own is not None else ():
        say(note, style="yellow")
    say(report.frame.spoken("prediction", rows=rows, sites=model.sites))
    written = chain.prediction.as_json if asked.as_json else chain.prediction.as_csv
    text = written(rows, model).rstrip()
    if asked.out is None:
        print(text)
    else:
        writing.write_text(asked.out, f"{text}\n")
    if asked.explain is not None:
        told = (asked.kind, places, asked.site, asked.unseen)
        with at_work("explaining"):
            why = consortium.predicting.explain_file(opened, asked.scans, rows, *told)
            report.explaining.write_explanation(why, rows, asked.explain, model.id)
        say(f"wrote {asked.explain}/index.html, edges.csv and matrices.npz")
    return 0 if any(row.usable for row in rows) else 1


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
    known, words = _trust(trust, require_signature), report.consortium
    if card:
        print(report.card.card_of(capsule, known), end="")
    elif capsule.suffix == ".release":
        record = consortium.files.read_release(capsule, known)
        print(
            json.dumps(record.to_json())
            if as_json
            else "\n".join(words.record_words(record))
        )
    else:
        opened = consortium.predicting.open_either(capsule, known)
        print(words.either_text(opened, release, as_json))


def verify(
    capsule: given.Capsule,
    trust: given.Trust = None,
    require_signature: given.RequireSignature = False,
    as_json: given.AsJson = False,
) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    room = (
        consortium.files if consortium.files.is_consortium(capsule) else chain.sealing
    )
    checks = room.verify(capsule, _trust(trust, require_signature))
    ok = all(check.ok for check in checks)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [asdict(c) for c in checks]}, indent=1))
    else:
        print(report.frame.spoken("verify", checks=checks, ok=ok))
    raise typer.Exit(0 if ok else 1)


@takes(requests.AuditRequest)
def audit(request: requests.AuditRequest) -> None:
    """Attack what would be released: who was trained on, who can be identified."""
    with at_work("attacking"):
        found, audits = consortium.turn.audit_as_asked(request, say), report.audits
    if request.record is not None:
        _wrote(f"sealed {request.record} with the audit inside.", request.record)
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json and audit.md")
    print(audits.as_json(found) if request.as_json else audits.as_text(found))


COMMANDS, PANEL = (
    (
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
    ),
    given.CAPSULES,
)
