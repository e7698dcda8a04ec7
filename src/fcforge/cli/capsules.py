"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.capsule.requests import AuditRequest, LearnRequest, PredictRequest
from fcforge.cli._console import progress_on_stderr, say
from fcforge.cli._options import (
    CAPSULES,
    AsJson,
    Capsule,
    Kind,
    Local,
    Overwrite,
    Positive,
    RequireSignature,
    Trust,
    takes,
)
from fcforge.errors import ConfigError


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (
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
    ):
        app.command(rich_help_panel=CAPSULES)(command)


def _write_card(out: Path | None) -> None:
    """The model card beside a capsule; a release alone is read with `inspect`."""
    from fcforge.report.card import write_card

    if out is not None and out.suffix != ".release":
        say(f"wrote {write_card(out)}, its model card.")


def start(
    out: Annotated[Path, typer.Option(help="Capsule to write.")],
    data: Annotated[Path | None, typer.Option(help="Public people: .npz file or folder.")] = None,
    sites: Annotated[str, typer.Option(help="Public sites, separated by commas (all).")] = "",
    remove: Annotated[
        str, typer.Option(help="Covariates to take out of every scan, e.g. mean_fd,age,sex.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="Loader; see `fcforge list datasets`.")] = "folder",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, e.g. start.axes=8 or dataset.quality=all."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a public start: what a consortium begins from, made of public people alone."""
    from fcforge.consortium.turn import names_in, start_file
    from fcforge.report.consortium import start_words

    source = {"name": dataset, **({} if data is None else {"path": str(data)})}
    made = start_file(
        source, names_in(sites), names_in(remove), out, overrides or [], overwrite=overwrite
    )
    say(f"wrote {out}; give this file to every hospital.")
    _write_card(out)
    print("\n".join(start_words(made)))


@takes(LearnRequest)
def learn(request: LearnRequest) -> None:
    """Learn one site: add its release to a consortium, or seal the next capsule of a chain."""
    from fcforge.consortium.files import is_consortium

    if request.state is not None and is_consortium(request.state):
        _learn_release(request)
    else:
        _learn_link(request)


def _learn_release(request: LearnRequest) -> None:
    from fcforge.consortium.turn import take_turn
    from fcforge.report.consortium import release_words
    from fcforge.report.hospital import continued_group, found_words

    done = take_turn(
        request,
        lambda found: say("\n".join(found_words(found))),
        lambda group: _agree(continued_group(group, request), request.yes),
    )
    say(f"wrote {request.out}, which may leave; the home file beside the data must not.")
    _write_card(request.out)
    print("\n".join(release_words(done.release)))


def _learn_link(request: LearnRequest) -> None:
    from fcforge.capsule.learning import learn_site
    from fcforge.report.hospital import continued_chain
    from fcforge.report.inspect import inspect_words

    def agree(capsule: Any) -> None:
        _agree(continued_chain(capsule), request.yes)

    with progress_on_stderr("learning") as progress:
        capsule = learn_site(request, progress=progress, say=say, agree=agree)
    say(f"sealed {request.out}; send this one file on, nothing else.")
    _write_card(request.out)
    print("\n".join(inspect_words(capsule)))


def _agree(words: list[str], yes: bool) -> None:
    """Show what is about to be continued, and ask unless `yes` was said."""
    say("\n".join(words))
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal on which to ask whether to go on with this.",
            do="Read the lines above; if they are what you expect, say --yes.",
        )
    if not typer.confirm("Go on with this?", err=True):
        raise typer.Exit(1)


def merge(
    files: Annotated[list[Path], typer.Argument(help="Capsules and .release files.")],
    out: Annotated[Path, typer.Option(help="Capsule to write.")],
    trust: Trust = None,
    overwrite: Overwrite = False,
) -> None:
    """Join the releases of capsules around one start; any order gives the same capsule."""
    from fcforge.capsule.opening import Trust
    from fcforge.consortium.files import union_of, write_consortium
    from fcforge.report.consortium import consortium_words

    group = union_of(files, Trust.of(trust or ()))
    write_consortium(group, out, overwrite=overwrite)
    say(f"wrote {out}")
    _write_card(out)
    print("\n".join(consortium_words(group)))


def withdraw(
    site: Annotated[str, typer.Argument(help="Site whose releases are taken back.")],
    state: Annotated[Path, typer.Option(help="Capsule with its releases.")],
    out: Annotated[Path, typer.Option(help="Capsule to write, or a .release to send round.")],
    sign: Annotated[
        Path | None, typer.Option(help="Private key its releases are signed by.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Take a site's releases back: the head is as if it had never taken part."""
    from fcforge.consortium.turn import withdraw_file
    from fcforge.report.consortium import consortium_words

    group = withdraw_file(site, state, out, sign, overwrite=overwrite)
    say(f"wrote {out}; whoever holds an older capsule merges it, and the withdrawal holds there.")
    _write_card(out)
    print("\n".join(consortium_words(group)))


def threshold(
    capsule: Capsule,
    data: Annotated[Path, typer.Option(help="The hospital's own people: .npz file or folder.")],
    site: Annotated[str, typer.Option(help="Its site.")],
    local: Annotated[Path, typer.Option(help="Its home file, which is written anew.")],
    kind: Kind = "auto",
) -> None:
    """Fit the hospital's own threshold again for a newer capsule; nothing leaves, no cost."""
    from fcforge.consortium.turn import refit_file

    found = refit_file(capsule, data, site, local, kind)
    print(f"own log odds = {found.intercept:.3f} + {found.slope:.3f} x consortium's log odds")


def evaluate(
    capsule: Capsule,
    data: Annotated[Path, typer.Argument(help="People with diagnoses: .npz file or folder.")],
    site: Annotated[str, typer.Option(help="Sites to take, separated by commas (all).")] = "",
    local: Local = None,
    kind: Kind = "auto",
    trust: Trust = None,
    as_json: AsJson = False,
    positive: Positive = None,
) -> None:
    """Measure a capsule on people whose diagnoses are known, beside the majority class."""
    from fcforge.capsule.opening import Trust
    from fcforge.consortium.predicting import evaluate, open_either
    from fcforge.consortium.turn import local_home, names_in
    from fcforge.report.hospital import evaluation_text
    from fcforge.studies.audit_inputs import load_sites

    cohort = load_sites(data, names_in(site), kind, positive)
    found = evaluate(open_either(capsule, Trust.of(trust or ())), cohort, local_home(local))
    if found.warning:
        say(found.warning, style="red")
    print(json.dumps(found.to_json(), indent=1) if as_json else evaluation_text(found))


@takes(PredictRequest)
def predict(asked: PredictRequest) -> int:
    """Predict each scan, or abstain where it is unlike anything seen; exit code 1 if none works."""
    from fcforge.capsule import opening, prediction
    from fcforge.consortium.predicting import explain_file, open_either, predictor
    from fcforge.consortium.turn import own_threshold
    from fcforge.imaging.atlases import load_atlas
    from fcforge.report.explaining import write_explanation
    from fcforge.report.terminal import prediction_text

    if asked.atlas and asked.explain is None:
        raise ConfigError("--atlas was given without --explain.", do="Give both or neither.")
    places = load_atlas(asked.atlas) if asked.atlas else None
    opened = open_either(asked.capsule, opening.Trust.of(asked.trust))
    own = own_threshold(asked.local, opened)
    model = predictor(opened, asked.site, asked.unseen)
    rows = prediction.predict_scans(model, asked.scans, asked.kind, own)
    for note in own.stale(model.id) if own is not None else ():
        say(note, style="yellow")
    say(prediction_text(rows, model.sites))
    _put((prediction.as_json if asked.as_json else prediction.as_csv)(rows, model), asked.out)
    if asked.explain is not None:
        told = (asked.kind, places, asked.site, asked.unseen)
        why = explain_file(opened, asked.scans, rows, *told)
        write_explanation(why, rows, asked.explain, model.id)
        say(f"wrote {asked.explain}/index.html, edges.csv and matrices.npz")
    return 0 if any(row.usable for row in rows) else 1


def _put(text: str, out: Path | None) -> None:
    from fcforge.writing import write_text

    if out is None:
        print(text.rstrip("\n"))
    else:
        write_text(out, f"{text.rstrip()}\n")


def inspect(
    capsule: Capsule,
    release: Annotated[
        str | None, typer.Option(help="Print every number that left this site.")
    ] = None,
    trust: Trust = None,
    require_signature: RequireSignature = False,
    card: Annotated[bool, typer.Option("--card", help="Print the model card (Markdown).")] = False,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what is in a capsule: who, when, what is kept, how good."""
    from fcforge.capsule.opening import Trust
    from fcforge.consortium.files import read_release
    from fcforge.consortium.predicting import open_either
    from fcforge.report import consortium as words
    from fcforge.report.card import card_of

    known = Trust.of(trust or (), require_signature or None)
    if card:
        print(card_of(capsule, known), end="")
    elif capsule.suffix == ".release":
        record = read_release(capsule, known)
        print(json.dumps(record.to_json()) if as_json else "\n".join(words.record_words(record)))
    else:
        print(words.either_text(open_either(capsule, known), release, as_json))


def verify(
    capsule: Capsule,
    trust: Trust = None,
    require_signature: RequireSignature = False,
    as_json: AsJson = False,
) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    from fcforge.capsule import opening
    from fcforge.consortium import files
    from fcforge.report.terminal import verify_json, verify_text

    known = opening.Trust.of(trust or (), require_signature or None)
    if files.is_consortium(capsule):
        checks = files.verify(capsule, known)
        ok = all(check.ok for check in checks)
    else:
        checks = opening.verify(capsule, trusted=known)
        ok = opening.intact(checks)
    print((verify_json if as_json else verify_text)(checks, ok))
    raise typer.Exit(0 if ok else 1)


@takes(AuditRequest)
def audit(request: AuditRequest) -> None:
    """Attack what would be released: who was trained on, who can be identified."""
    from fcforge.consortium.turn import audit_as_asked
    from fcforge.report import audits

    found = audit_as_asked(request, say)
    if request.record is not None:
        say(f"sealed {request.record} with the audit inside.")
        _write_card(request.record)
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json and audit.md")
    print(audits.as_json(found) if request.as_json else audits.as_text(found))
