"""Commands of the consortium: parse arguments, call the operations, print."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from fcforge.cli.messages import at_work, progress_on_stderr, say
from fcforge.cli.options import takes
from fcforge.core import files
from fcforge.core.errors import ConfigError, at
from fcforge.core.formatting import counted, listed
from fcforge_consortium import options as requests

if TYPE_CHECKING:
    from fcforge_consortium.contributions.prediction import Prediction
    from fcforge_consortium.records.exchange import Exchange
    from fcforge_consortium.records.kinds import Record
    from fcforge_consortium.records.trust import Trust


chain = typer.Typer(
    no_args_is_help=True, help="Hand one model from hospital to hospital (needs torch)."
)


def demo(
    out: Annotated[Path, Option(help="Folder to write.")] = Path("runs/consortium"),
) -> None:
    """Play a round of two aggregators among six simulated hospitals and write its page."""
    from fcforge.report.tables import interval_text
    from fcforge_consortium.operations.demo import MERGED, PAGE, play_round
    from fcforge_consortium.report.page import round_section, write_page

    with at_work("playing a round of two aggregators"):
        played = play_round(out)
        gained = round_section(played)
        write_page(played.exchange, MERGED, out / PAGE, gained)
    for title, auroc in played.auroc.items():
        print(f"{title}: AUROC {interval_text(auroc)}")
    say(f"page of the round: {out / PAGE}")


@takes
def base_model(request: requests.BaseModelRequest) -> None:
    """Make a base model of public people, to which hospitals add their contributions."""
    from fcforge_consortium.operations.base_model import write_base_model
    from fcforge_consortium.operations.published import published_base_model
    from fcforge_consortium.report.describe import describe
    from fcforge_consortium.report.terminal import described_text

    with at_work("making the base model"):
        if request.given().keys() == {
            "public"
        }:  # no other option: the one in the cache
            place = published_base_model(request.public, say)
            say(
                f"wrote {place}; in Python: ConsortiumClassifier(base_model='{request.public}')."
            )
            return
        made = write_base_model(request)
    say(f"wrote {request.out}; give this file to every hospital.")
    print(described_text(describe(made)))
    planned = made.root.plan.epsilon
    if warning := made.root.hopeless(planned, bool(request.aggregator)):
        plan = "exact sums" if planned is None else f"epsilon {planned:g}"
        _warn(f"WARNING: this base model plans {plan}; {warning}.")


@takes
def contribute(request: requests.ContributeRequest) -> None:
    """Add your hospital's contribution to a base model; no scan leaves."""
    from fcforge_consortium.operations.contribute import contribute, share_place
    from fcforge_consortium.operations.people import ledger_of
    from fcforge_consortium.report.terminal import step_text

    done = contribute(request, agree=_ask(request), warn=_warn)
    say(step_text(done))
    for name in done.files:
        place = share_place(request.out, name)
        say(f"wrote {place}: send it to {name}; nobody else can read it.")
    say(f"wrote {request.out}, which may leave; {ledger_of(request)} must not.")


@chain.command("begin")
@takes
def begin_chain(request: requests.ChainBeginRequest) -> None:
    """Train the first hospital of a chain, by the learner of a config."""
    from fcforge_consortium.operations.chain import begin_chain
    from fcforge_consortium.operations.people import ledger_of
    from fcforge_consortium.report.terminal import step_text

    with progress_on_stderr("training") as tick:
        done = begin_chain(request, warn=_warn, tick=tick)
    say(step_text(done))
    say(f"wrote {request.out}, which may leave; {ledger_of(request)} must not.")


@chain.command("continue")
@takes
def continue_chain(request: requests.ChainContinueRequest) -> None:
    """Train the model that you received on your hospital, the next of its chain."""
    from fcforge_consortium.operations.chain import continue_chain
    from fcforge_consortium.operations.people import ledger_of
    from fcforge_consortium.report.terminal import step_text

    with progress_on_stderr("training") as tick:
        done = continue_chain(request, agree=_ask(request), warn=_warn, tick=tick)
    say(step_text(done))
    say(f"wrote {request.out}, which may leave; {ledger_of(request)} must not.")


def _ask(request: requests.ContinueRequest) -> "Callable[[Exchange], None]":
    """Return a function that shows the file to continue and asks whether to go on."""
    from fcforge_consortium.report.terminal import continued_text

    def agree(before: "Exchange") -> None:
        say(continued_text(before, request))
        if request.yes:
            return
        if not sys.stdin.isatty():
            raise ConfigError(
                "there is no terminal on which to ask whether to go on with this.",
                do="Read the lines above; if they are as you expect, add --yes.",
            )
        if not typer.confirm("Go on with this?", err=True):
            raise typer.Exit(1)

    return agree


def _warn(text: str) -> None:
    """Print a warning to stderr."""
    say(text, style="yellow")


@takes
def merge(request: requests.MergeRequest) -> None:
    """Join the records of several files with one base model or chain, in any order."""
    from fcforge_consortium.operations.records import merge_files

    for text in merge_files(request).model.absent():
        _warn(text)
    say(f"wrote {request.out}; `fcforge consortium inspect` shows its contents.")


@takes
def withdraw(request: requests.WithdrawRequest) -> None:
    """Withdraw a site's contributions: the model becomes what it would be without them."""
    from fcforge_consortium.operations.records import withdraw_file

    withdraw_file(request, warn=_warn)
    say(f"wrote {request.out}; the withdrawal holds wherever it is merged.")


@takes
def threshold(request: requests.ThresholdRequest) -> None:
    """Fit the hospital's own threshold for a file; nothing leaves the hospital."""
    from fcforge_consortium.operations.threshold import fit_threshold

    fitted = fit_threshold(request)
    shared = f"{fitted.slope:.3f} x the model's log odds"
    print(f"own log odds = {fitted.intercept:.3f} + {shared}")


@takes
def evaluate(request: requests.EvaluateRequest) -> None:
    """Measure a file's model on people with known diagnoses, next to the majority class."""
    from fcforge.data.checks import data_warnings
    from fcforge.data.datasets import load_people
    from fcforge.report.text import json_text
    from fcforge_consortium.contributions import prediction
    from fcforge_consortium.ledger.ledger import Ledger
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.records.trust import Trust
    from fcforge_consortium.report.terminal import evaluation_text

    opened = open_exchange(request.file, Trust.asked(request))
    ledger = None
    if request.ledger is not None:
        ledger = Ledger.read(request.ledger)
    loading = request.loading | opened.root.policy.loading
    cohort = load_people(request.data, listed(request.site), **loading)
    for text in data_warnings(cohort):
        _warn(text)
    with at_work("predicting"):
        result = prediction.evaluate(opened, cohort, ledger)
    if result.warning:
        say(result.warning, style="red")
    print(json_text(result.to_json()) if request.as_json else evaluation_text(result))


@takes
def predict(request: requests.PredictRequest) -> int:
    """Predict each scan, or abstain where it is too unusual; exit code 1 if none has an answer."""
    from fcforge_consortium.contributions import prediction
    from fcforge_consortium.ledger.ledger import Ledger
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.records.trust import Trust
    from fcforge_consortium.report.terminal import prediction_text

    if request.atlas and request.explain is None:
        message = "--atlas was given without --explain."
        raise ConfigError(message, do="Give both or neither.")
    opened = open_exchange(request.file, Trust.asked(request))
    for text in opened.model.absent():
        _warn(text)
    threshold = None
    if request.ledger is not None:
        threshold = Ledger.read(request.ledger).require_threshold()
        for note in threshold.stale(opened.id):
            say(note, style="yellow")
    with at_work("predicting"):
        rows = prediction.predict(opened, request.scans, request.kind, threshold)
    say(prediction_text(rows))
    written = prediction.as_json if request.as_json else prediction.as_csv
    _print_or_write(written(rows, opened).rstrip(), request.out)
    if request.explain is not None:
        _explain(request, request.explain, opened, rows)
    return 0 if any(row.status == prediction.OK for row in rows) else 1


def _print_or_write(text: str, out: Path | None) -> None:
    """Print a result, or write it to a file that its owner alone can read."""
    if out is None:
        print(text)
    else:
        files.write_text(out, f"{text}\n", private=True)


def _explain(
    request: requests.PredictRequest,
    folder: Path,
    opened: "Exchange",
    rows: "list[Prediction]",
) -> None:
    """Explain the predictions of scans and write the page and the table of edges.

    Parameters
    ----------
    request : PredictRequest
    folder : Path
        Folder to write.
    opened : Exchange
        The file whose model predicted.
    rows : list of Prediction
    """
    from fcforge.imaging.atlas import load_atlas
    from fcforge.report.explaining import write_explanation
    from fcforge_consortium.contributions.prediction import explain_scans

    atlas = load_atlas(request.atlas) if request.atlas else None
    with at_work("explaining"):
        why = explain_scans(opened, request.scans, rows, request.kind, atlas)
        write_explanation(why, folder, opened.id)
    say(f"wrote {folder}/index.html, edges.csv and matrices.npz")


@takes
def inspect(request: requests.InspectRequest) -> None:
    """Describe a file in plain words: who contributed, when, what it keeps, how good it is."""
    from fcforge.report.text import json_text
    from fcforge_consortium.aggregation.rounds import read_share
    from fcforge_consortium.records import archive
    from fcforge_consortium.records.exchange import require_trusted
    from fcforge_consortium.records.trust import Trust
    from fcforge_consortium.report.terminal import records_text, share_text

    trust = Trust.asked(request)
    single: Sequence[Record]
    if request.file.suffix == ".share":
        share = read_share(request.file, trust)
        single = [share.notice]
        text = share_text(share)
    else:
        single = archive.read(request.file).records
        if any(record.is_root for record in single):
            _inspect_whole(request, trust)
            return
        with at(request.file):
            require_trusted(single, trust)
        text = records_text(single)
    if request.html is not None:
        message = "only a whole consortium file has a page; this is a share, or single records."
        raise ConfigError(message, where=request.file, do="Leave out --html.")
    if request.as_json:
        text = json_text([record.model_dump() for record in single])
    print(text)


def _inspect_whole(request: requests.InspectRequest, trust: "Trust") -> None:
    """Print the description of a whole consortium file, and write its page if one is requested."""
    from fcforge.report.text import json_text
    from fcforge_consortium.records.exchange import open_exchange
    from fcforge_consortium.report.describe import describe
    from fcforge_consortium.report.page import write_page
    from fcforge_consortium.report.terminal import described_text

    opened = open_exchange(request.file, trust)
    if request.html is not None:
        write_page(opened, request.file.name, request.html)
        say(f"wrote {request.html}")
    summary = describe(opened)
    print(json_text(asdict(summary)) if request.as_json else described_text(summary))


@takes
def verify(request: requests.VerifyRequest) -> int:
    """Check a file bit by bit; exit code 1 when it must not be used."""
    from fcforge.report.text import json_text
    from fcforge_consortium.operations.verification import verify as verified
    from fcforge_consortium.records.trust import Trust
    from fcforge_consortium.report.terminal import verify_text

    checks = verified(request.file, Trust.asked(request), request.expect)
    ok = all(check.ok for check in checks)
    result = {"ok": ok, "checks": [asdict(check) for check in checks]}
    print(json_text(result) if request.as_json else verify_text(checks))
    return 0 if ok else 1


@takes
def close(request: requests.CloseRequest) -> None:
    """Sign the set of hospitals of a round, before either aggregator publishes it."""
    from fcforge_consortium.operations.aggregate import close_files

    done = close_files(request)
    names = [one.site for one in done.closing.hospitals]
    size = counted(len(names), "hospital")
    print(f"wrote {request.out}: closing record of round {done.closing.round}, {size}")
    print(f"closed over: {', '.join(names)}")
    first = min(card.name for card in done.exchange.root.policy.aggregators)
    (second,) = {card.name for card in done.exchange.root.policy.aggregators} - {first}
    if done.closing.site == first:
        print(f"send it to {second}, who confirms it with `fcforge consortium close`.")
    else:
        print(
            f"send it to {first}; both now run `fcforge consortium aggregate` with it."
        )


@takes
def aggregate(request: requests.AggregateRequest) -> None:
    """Add the shares of a round with noise; write this aggregator's signed aggregate share."""
    from fcforge_consortium.operations.aggregate import aggregate_files

    share = aggregate_files(request).aggregate_share
    names = [one.site for one in share.hospitals]
    size = counted(len(names), "hospital")
    print(f"wrote {request.out}: aggregate share of round {share.round}, {size}")
    print(f"added: {', '.join(names)}")
    print(
        "It reveals nothing by itself; `fcforge consortium merge` joins it with the other "
        "aggregator's."
    )


@takes
def audit(request: requests.AuditRequest) -> None:
    """Attack your own contribution: who was in it, who can be identified. Stays at home."""
    from fcforge.report import audits
    from fcforge_consortium.operations.audit import audit_file

    with at_work("attacking"):
        result = audit_file(request)
    if request.out is not None:
        audits.write_files(result, request.out)
        say(f"wrote {request.out}/audit.json, which must not leave.")
    print(audits.as_json(result) if request.as_json else audits.as_text(result))
