"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.capsule.requests import AuditRequest, LearnRequest
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
from fcforge.errors import ConfigError, FCForgeError


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
    from fcforge.capsule.first_site import learn_site
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
    from fcforge.consortium import write_consortium
    from fcforge.consortium.trusting import union_of
    from fcforge.report.consortium import consortium_words

    group = union_of(files, trust or ())
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
    from fcforge.consortium.evaluating import evaluate_file
    from fcforge.consortium.turn import local_home, names_in, own_data
    from fcforge.report.hospital import evaluation_text

    cohort = own_data(data, names_in(site), kind, positive)
    found = evaluate_file(capsule, cohort, local_home(local), tuple(trust or ()))
    print(json.dumps(found.to_json(), indent=1) if as_json else evaluation_text(found))


def predict(
    capsule: Capsule,
    scans: Annotated[list[Path], typer.Argument(help="Files or folders of scans.")],
    out: Annotated[Path | None, typer.Option(help="File to write (standard output).")] = None,
    local: Local = None,
    explain: Annotated[
        Path | None, typer.Option(help="Folder for a page and tables that say why.")
    ] = None,
    atlas: Annotated[
        str, typer.Option(help="Atlas of the scans, for --explain [AAL by its ROI names].")
    ] = "",
    kind: Kind = "auto",
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Predict each scan, or abstain where it is unlike anything seen; exit code 1 if none works."""
    from fcforge.capsule import prediction
    from fcforge.consortium.explaining import explain_file
    from fcforge.consortium.turn import predict_file
    from fcforge.imaging.atlas import load_atlas
    from fcforge.report.explaining import write_explanation
    from fcforge.report.terminal import prediction_text
    from fcforge.writing import write_text

    if atlas and explain is None:
        raise FCForgeError("--atlas was given without --explain.", do="Give both or neither.")
    places = load_atlas(atlas) if atlas else None
    found = predict_file(capsule, scans, local, kind, trust or ())
    for note in found.notes:
        say(note, style="yellow")
    say(prediction_text(found.rows, found.sites))
    text = prediction.as_json(found) if as_json else prediction.as_csv(found.rows, found.sites)
    if out is None:
        print(text.rstrip("\n"))
    else:
        write_text(out, f"{text.rstrip()}\n")
    if explain is not None:
        why = explain_file(capsule, scans, found.rows, kind, trust or (), places)
        write_explanation(why, found.rows, explain, found.capsule)
        say(f"wrote {explain}/index.html, edges.csv and matrices.npz")
    raise typer.Exit(0 if any(row.usable for row in found.rows) else 1)


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
    from fcforge.capsule.opening import open_trusted
    from fcforge.capsule.summary import summary
    from fcforge.consortium.files import is_consortium
    from fcforge.report.inspect import inspect_words

    if card:
        from fcforge.report.card import card_of

        print(card_of(capsule, trust or ()), end="")
        return
    if is_consortium(capsule) or capsule.suffix == ".release":
        _inspect_group(capsule, release, trust, as_json)
        return
    if release is not None:
        raise FCForgeError("is a chained capsule, which holds no releases.", where=str(capsule))
    opened = open_trusted(capsule, trust or (), require_signature or None)
    words = json.dumps(summary(opened), indent=1) if as_json else "\n".join(inspect_words(opened))
    print(words)


def _inspect_group(
    capsule: Path, release: str | None, trust: list[Path] | None, as_json: bool
) -> None:
    from fcforge.consortium.trusting import open_group, open_release
    from fcforge.report import consortium as words

    if capsule.suffix == ".release":
        record = open_release(capsule, trust or ())
        print(json.dumps(record.to_json()) if as_json else "\n".join(words.record_words(record)))
        return
    group = open_group(capsule, trust or ())
    shown = group.only(release) if release is not None else group
    if as_json:
        print(json.dumps(words.consortium_json(shown), indent=1))
    elif release is None:
        print("\n".join(words.consortium_words(group)))
    else:
        print("\n\n".join("\n".join(words.release_words(r)) for r in shown.releases))


def verify(
    capsule: Capsule,
    trust: Trust = None,
    require_signature: RequireSignature = False,
    as_json: AsJson = False,
) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    from fcforge.capsule import opening
    from fcforge.consortium import trusting
    from fcforge.consortium.files import is_consortium
    from fcforge.report.terminal import verify_json, verify_text

    if is_consortium(capsule):
        checks = trusting.verify(capsule, trust or ())
        ok = all(check.ok for check in checks)
    else:
        checks = opening.verify(
            capsule, trusted=opening.Trust.of(trust or (), require_signature or None)
        )
        ok = opening.intact(checks)
    print((verify_json if as_json else verify_text)(checks, ok))
    raise typer.Exit(0 if ok else 1)


@takes(AuditRequest)
def audit(request: AuditRequest) -> None:
    """Attack what would be released: who was trained on, who can be identified."""
    from fcforge.capsule.auditing import audit_as_asked
    from fcforge.consortium.files import is_consortium
    from fcforge.report import audits

    if request.capsule is not None and is_consortium(request.capsule):
        from fcforge.consortium.audit import audit_as_asked as audit_release_as_asked

        found, capsule = audit_release_as_asked(request), None
    else:
        found, capsule = audit_as_asked(request, say)
    if capsule is not None and request.record is not None:
        audits.record(capsule, found, request.record, request.sign)
    if request.record is not None:
        say(f"sealed {request.record} with the audit inside.")
        _write_card(request.record)
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json and audit.md")
    print(audits.as_json(found) if request.as_json else audits.as_text(found))
