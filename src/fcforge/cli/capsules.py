"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fcforge.capsule.requests import AuditRequest, LearnRequest
from fcforge.cli._console import progress_on_stderr, say
from fcforge.cli._options import CAPSULES, AsJson, Capsule, Kind, Trust, takes


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (learn, predict, inspect, verify, audit, keys):
        app.command(rich_help_panel=CAPSULES)(command)


@takes(LearnRequest)
def learn(request: LearnRequest) -> None:
    """Learn one site on top of a capsule and seal the next one."""
    from fcforge.capsule.first_site import learn_site
    from fcforge.report.inspect import inspect_words

    with progress_on_stderr("learning") as progress:
        capsule = learn_site(request, progress=progress, say=say)
    say(f"sealed {request.out}; send this one file on, nothing else.")
    print("\n".join(inspect_words(capsule)))


def predict(
    capsule: Capsule,
    scans: Annotated[list[Path], typer.Argument(help="Files or folders of scans.")],
    out: Annotated[Path | None, typer.Option(help="File to write [standard output].")] = None,
    kind: Kind = "auto",
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Predict each scan, or abstain where it is unlike anything seen; exit code 1 if none works."""
    from fcforge.capsule import prediction
    from fcforge.capsule.opening import open_trusted
    from fcforge.report.terminal import prediction_text
    from fcforge.writing import write_text

    opened = open_trusted(capsule, trust or ())
    rows = prediction.predict(opened, scans, kind)
    say(prediction_text(rows, opened.sites))
    text = prediction.as_json(rows, opened) if as_json else prediction.as_csv(rows, opened.sites)
    if out is None:
        print(text.rstrip("\n"))
    else:
        write_text(out, f"{text.rstrip()}\n")
    raise typer.Exit(0 if any(row.usable for row in rows) else 1)


def inspect(capsule: Capsule, trust: Trust = None, as_json: AsJson = False) -> None:
    """Say in plain words what is in a capsule: who, when, what is kept, how good."""
    from fcforge.capsule.opening import open_trusted
    from fcforge.capsule.summary import summary
    from fcforge.report.inspect import inspect_words

    opened = open_trusted(capsule, trust or ())
    words = json.dumps(summary(opened), indent=1) if as_json else "\n".join(inspect_words(opened))
    print(words)


def verify(capsule: Capsule, trust: Trust = None, as_json: AsJson = False) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    from fcforge.capsule.opening import intact
    from fcforge.capsule.opening import verify as checks_of
    from fcforge.capsule.signing import read_public
    from fcforge.report.terminal import verify_json, verify_text

    checks = checks_of(capsule, trusted=[read_public(key) for key in trust or ()])
    print((verify_json if as_json else verify_text)(checks))
    raise typer.Exit(0 if intact(checks) else 1)


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
        say(f"sealed {request.record} with the audit in its ledger.")
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json and audit.md")
    print(audits.as_json(found) if request.as_json else audits.as_text(found))


def keys(out: Annotated[Path, typer.Argument(help="Private key to write.")]) -> None:
    """Make an Ed25519 key pair for signing capsules."""
    from fcforge.capsule.signing import write_keys

    public = write_keys(out)
    print(f"wrote {out} (private: keep it) and {out}.pub, key {public[:16]}")
