"""Commands around exchange files: learning one site at a time, predicting, inspecting, auditing."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fcforge.cli.commands import at_work, progress_on_stderr, say, takes
from fcforge.core import files
from fcforge.core.errors import ConfigError, at
from fcforge.core.formatting import counted, listed
from fcforge_consortium import options as requests

if TYPE_CHECKING:
    from fcforge_consortium.contributions.prediction import Prediction
    from fcforge_consortium.records.exchange import Exchange
    from fcforge_consortium.records.keys import Trust
    from fcforge_consortium.records.kinds import Record


@takes
def start(asked: requests.StartRequest) -> None:
    """Make a public start: what hospitals add their releases to, made of public people alone."""
    from fcforge_consortium.operations import public_start, start_file
    from fcforge_consortium.report.terminal import described_text

    with at_work("making the start"):
        if asked.given().keys() == {"public"}:
            place = public_start(asked.public, say)
            say(f"wrote {place}; in Python: ForgeClassifier(start='{asked.public}').")
            return
        made = start_file(asked)
    say(f"wrote {asked.out}; give this file to every hospital.")
    print(described_text(made.model.describe()))
    planned = made.root.plan.epsilon
    if warning := made.root.hopeless(planned, bool(asked.keeper)):
        way = "exact sums" if planned is None else f"epsilon {planned:g}"
        _warn(f"WARNING: this start plans {way}; {warning}.")


@takes
def learn(request: requests.LearnRequest) -> None:
    """Learn one site: add its release to a start, or take the next step of a chain."""
    from fcforge_consortium.operations import learn_site, private_place, share_place
    from fcforge_consortium.report.terminal import continued_text, learned_text

    def agree(before: "Exchange") -> None:
        say(continued_text(before, request))
        if request.yes:
            return
        if not sys.stdin.isatty():
            raise ConfigError(
                "there is no terminal on which to ask whether to go on with this.",
                do="Read the lines above; if they are what you expect, add --yes.",
            )
        if not typer.confirm("Go on with this?", err=True):
            raise typer.Exit(1)

    with progress_on_stderr("learning") as tick:
        done = learn_site(request, agree=agree, warn=_warn, tick=tick)
    say(learned_text(done))
    for keeper in done.files:
        say(f"wrote {share_place(request.out, keeper)}: send it to {keeper} alone.")
    say(f"wrote {request.out}, which may leave; {private_place(request)} must not.")


def _warn(text: str) -> None:
    say(text, style="yellow")


@takes
def merge(asked: requests.MergeRequest) -> None:
    """Join the records of several files with one root; the order does not matter."""
    from fcforge_consortium.operations import merge_files

    merge_files(asked)
    say(f"wrote {asked.out}; `fcforge inspect` shows what it holds.")


@takes
def withdraw(asked: requests.WithdrawRequest) -> None:
    """Take a site's releases back: the model becomes what it would be without them."""
    from fcforge_consortium.operations import withdraw_file

    withdraw_file(asked, warn=_warn)
    say(f"wrote {asked.out}; the withdrawal holds wherever it is merged.")


@takes
def threshold(request: requests.ThresholdRequest) -> None:
    """Fit the hospital's own threshold for a file; nothing leaves the hospital."""
    from fcforge_consortium.operations import refit_threshold

    own = refit_threshold(request)
    shared = f"{own.slope:.3f} x the exchange's log odds"
    print(f"own log odds = {own.intercept:.3f} + {shared}")


@takes
def evaluate(asked: requests.EvaluateRequest) -> None:
    """Measure a file's model on people with known diagnoses, next to the majority class."""
    from fcforge.data.datasets import left_out, load_people
    from fcforge.report.tables import as_json
    from fcforge_consortium.contributions import prediction
    from fcforge_consortium.ledger.ledger import PrivateRecord
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.records.keys import Trust
    from fcforge_consortium.report.terminal import evaluation_text

    opened = open_exchange(asked.file, Trust.asked(asked))
    private = None
    if asked.register is not None:
        private = PrivateRecord.read(asked.register)
    loading = asked.loading | opened.root.policy.loading
    cohort = load_people(asked.data, listed(asked.site), **loading)
    for text in left_out(cohort):
        _warn(text)
    with at_work("predicting"):
        found = prediction.evaluate(opened, cohort, private)
    if found.warning:
        say(found.warning, style="red")
    print(as_json(found.to_json()) if asked.as_json else evaluation_text(found))


@takes
def predict(asked: requests.PredictRequest) -> int:
    """Predict each scan, or abstain where it is too unusual; exit code 1 if none has an answer."""
    from fcforge_consortium.contributions import prediction
    from fcforge_consortium.ledger.ledger import PrivateRecord
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.records.keys import Trust
    from fcforge_consortium.report.terminal import prediction_text

    if asked.atlas and asked.explain is None:
        what = "--atlas was given without --explain."
        raise ConfigError(what, do="Give both or neither.")
    opened = open_exchange(asked.file, Trust.asked(asked))
    own = None
    if asked.register is not None:
        own = PrivateRecord.read(asked.register).require_threshold()
        for note in own.stale(opened.id):
            say(note, style="yellow")
    with at_work("predicting"):
        rows = prediction.predict(opened, asked.scans, asked.kind, own)
    say(prediction_text(rows))
    written = prediction.as_json if asked.as_json else prediction.as_csv
    _put(written(rows, opened).rstrip(), asked.out)
    if asked.explain is not None:
        _explain(asked, asked.explain, opened, rows)
    return 0 if any(row.status == prediction.OK for row in rows) else 1


def _put(text: str, out: Path | None) -> None:
    """Print a result, or write it where its owner alone can read it."""
    if out is None:
        print(text)
    else:
        files.write_text(out, f"{text}\n", private=True)


def _explain(
    asked: requests.PredictRequest,
    folder: Path,
    opened: "Exchange",
    rows: "list[Prediction]",
) -> None:
    from fcforge.imaging.atlas import load_atlas
    from fcforge.report.explaining import write_explanation
    from fcforge_consortium.contributions.prediction import explain_scans

    atlas = load_atlas(asked.atlas) if asked.atlas else None
    with at_work("explaining"):
        why = explain_scans(opened, asked.scans, rows, asked.kind, atlas)
        write_explanation(why, folder, opened.id)
    say(f"wrote {folder}/index.html and edges.csv")


@takes
def inspect(asked: requests.InspectRequest) -> None:
    """Describe a file in plain words: who contributed, when, what it keeps, how good it is."""
    from fcforge.report.tables import as_json
    from fcforge_consortium.aggregation.rounds import read_share
    from fcforge_consortium.records import archive
    from fcforge_consortium.records.exchange import require_trusted
    from fcforge_consortium.records.keys import Trust
    from fcforge_consortium.report.terminal import records_text

    known = Trust.asked(asked)
    single: Sequence[Record]
    if asked.file.suffix == ".share":
        single = [read_share(asked.file, known).notice]
    else:
        single = archive.read(asked.file).records
        if any(record.is_root for record in single):
            _inspect_exchange(asked, known)
            return
        with at(asked.file):
            require_trusted(single, known)
    text = records_text(single)
    if asked.html is not None:
        what = "only a whole exchange has a page; this is a share, or single records."
        raise ConfigError(what, where=asked.file, do="Leave out --html.")
    if asked.as_json:
        text = as_json([record.model_dump() for record in single])
    print(text)


def _inspect_exchange(asked: requests.InspectRequest, known: "Trust") -> None:
    from fcforge.report.tables import as_json
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.report.page import write_page
    from fcforge_consortium.report.terminal import described_text

    opened = open_exchange(asked.file, known)
    if asked.html is not None:
        write_page(opened, asked.file.name, asked.html)
        say(f"wrote {asked.html}")
    found = opened.model.describe()
    print(as_json(asdict(found)) if asked.as_json else described_text(found))


@takes
def verify(asked: requests.VerifyRequest) -> int:
    """Check a file bit by bit; exit code 1 when it must not be used."""
    from fcforge.report.tables import as_json
    from fcforge_consortium.records.keys import Trust
    from fcforge_consortium.records.verification import verify as verified
    from fcforge_consortium.report.terminal import verify_text

    checks = verified(asked.file, Trust.asked(asked), asked.expect)
    ok = all(check.ok for check in checks)
    found = {"ok": ok, "checks": [asdict(check) for check in checks]}
    print(as_json(found) if asked.as_json else verify_text(checks))
    return 0 if ok else 1


@takes
def keep(asked: requests.KeepRequest) -> None:
    """Add the shares of a round and a dose of noise, sign, and write this keeper's half."""
    from fcforge_consortium.operations import keep_files

    kept = keep_files(asked)
    names = [one.site for one in kept.half.hospitals]
    size = counted(len(names), "hospital")
    print(f"wrote {asked.out}: half of round {kept.half.round}, {size}")
    print(f"added: {', '.join(names)}")
    print(
        "It says nothing by itself; `fcforge merge` joins it with the other keeper's."
    )


@takes
def audit(request: requests.AuditRequest) -> None:
    """Attack what would be given away: who was trained on, who can be identified."""
    from fcforge.report import audits
    from fcforge_consortium.audit import audit_as_asked

    with at_work("attacking"):
        found = audit_as_asked(request, say)
    if request.record is not None:
        say(f"wrote {request.record} with the audit inside.")
    if request.out is not None:
        audits.write_files(found, request.out)
        say(f"wrote {request.out}/audit.json")
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
    keep,
)
