"""Commands under ``fcforge analyse``: analyses of a stored run, and of head motion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from fcforge.cli.messages import at_work, warn
from fcforge.cli.options import AllowCode, AsJson, Config, Folder, Overrides

if TYPE_CHECKING:
    from fcforge.evaluation.study import Study

analyse = typer.Typer(
    no_args_is_help=True,
    help="Analyse a run: unseen hospitals, calibration, subgroups, head motion.",
)


@analyse.command()
def unseen(
    folder: Folder,
    metric: Annotated[
        str, Option(help="accuracy, balanced_accuracy, auroc ...")
    ] = "accuracy",
    as_json: AsJson = False,
) -> None:
    """Show the accuracy of a run's learners at hospitals that they have not learned."""
    from fcforge.evaluation.unseen import unseen_of

    with at_work("measuring"):
        studies = unseen_of(folder, metric)
    _print_studies(studies, as_json)


@analyse.command()
def calibration(folder: Folder, as_json: AsJson = False) -> None:
    """Show calibration and decision curves of a run's scores."""
    from fcforge.evaluation.calibration import calibration_of

    with at_work("measuring"):
        studies = calibration_of(folder)
    _print_studies(studies, as_json)


@analyse.command()
def subgroups(folder: Folder, as_json: AsJson = False) -> None:
    """Show the accuracy of a run's learners by sex, age and other covariates."""
    from fcforge.evaluation.subgroups import subgroups_of

    with at_work("measuring"):
        studies = subgroups_of(folder)
    _print_studies(studies, as_json)


@analyse.command()
def motion(
    config: Config,
    overrides: Overrides = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Measure how well head motion alone predicts, on the splits of a config."""
    from fcforge.evaluation.motion import motion_rows
    from fcforge.experiments.config import load_experiment
    from fcforge.report.results_table import print_table, rows_json

    experiment = load_experiment(config, overrides or [], allow_code=allow_code)
    with at_work("measuring"):
        rows = motion_rows(experiment, warn=warn)
    if as_json:
        print(rows_json(rows), end="")
    else:
        print_table(rows)


def _print_studies(studies: "Sequence[Study]", as_json: bool) -> None:
    """Print tables of learners as Markdown, or all as one JSON object by title."""
    from fcforge.report.results_table import study_json
    from fcforge.report.tables import interval_table
    from fcforge.report.text import json_text

    if as_json:
        print(json_text({study.title: study_json(study.rows) for study in studies}))
    else:
        tables = [interval_table(study).markdown() for study in studies]
        print("\n".join(tables), end="")
