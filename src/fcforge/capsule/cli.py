"""The capsule commands of the command line: ``fcforge learn, predict, inspect, verify, keys``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fcforge.runner.experiment import Experiment

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
CapsulePath = Annotated[Path, typer.Argument(help="Capsule file or folder.", show_default=False)]
Trust = Annotated[
    list[Path] | None,
    typer.Option(help="Public key (PEM) the capsule must be signed by; may be repeated."),
]
KindOption = Annotated[str, typer.Option(help="What files hold: auto, fc or timeseries.")]


def _say(text: str) -> None:
    typer.secho(text, err=True)


def _quiet(done: int, total: int, last: str) -> None:
    """Draw nothing."""


def register(
    app: typer.Typer,
    load_experiment: Callable[[Path], Experiment],
    progress: Callable[[str], AbstractContextManager[Any]] = lambda what: nullcontext(_quiet),
) -> None:
    """Add the capsule commands to `app`.

    Parameters
    ----------
    app : Typer
    load_experiment : callable
        Reads a config file; the config layer is above this one and is handed in.
    progress : callable
        Draws how far a job is; handed in likewise.
    """

    @app.command()
    def learn(
        site: Annotated[str, typer.Option(help="Name of the site to learn.")],
        data: Annotated[Path, typer.Option(help="Its data: .npz file or folder.")],
        out: Annotated[Path, typer.Option(help="Capsule to write (no suffix: a folder).")],
        state: Annotated[Path | None, typer.Option(help="Capsule of the sites before.")] = None,
        config: Annotated[Path | None, typer.Option(help="First site: config (TOML).")] = None,
        learner: Annotated[str | None, typer.Option(help="Which learner of the config.")] = None,
        method: Annotated[str | None, typer.Option(help="First site: method.")] = None,
        model: Annotated[str | None, typer.Option(help="First site: model.")] = None,
        generator: Annotated[str | None, typer.Option(help="First site: generator.")] = None,
        epochs: Annotated[int | None, typer.Option(min=1, help="First site: epochs.")] = None,
        seed: Annotated[int | None, typer.Option(help="First site: seed.")] = None,
        held_out: Annotated[
            int | None, typer.Option(min=0, help="First site: synthetic held-out subjects.")
        ] = None,
        calibrate: Annotated[
            str | None, typer.Option(help="First site: inner_val, synthetic or none.")
        ] = None,
        kind: KindOption = "auto",
        sign: Annotated[Path | None, typer.Option(help="Private key (PEM) to sign with.")] = None,
        trust: Trust = None,
        allow_real_subjects: Annotated[
            bool,
            typer.Option(
                "--allow-real-subjects",
                help="Seal a method that keeps real subjects; recorded in the ledger.",
            ),
        ] = False,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    ) -> None:
        """Learn one site on top of a capsule and seal the next one."""
        from fcforge.capsule.commands import learn_command

        with progress("learning") as report:
            text = learn_command(
                site=site,
                data=data,
                out=out,
                state=state,
                experiment=load_experiment(config) if config is not None else None,
                learner=learner,
                method=method,
                model=model,
                generator=generator,
                epochs=epochs,
                seed=seed,
                held_out=held_out,
                calibrate=calibrate,
                kind=kind,
                sign=sign,
                trust=trust or (),
                allow_real_subjects=allow_real_subjects,
                overwrite=overwrite,
                progress=report,
                say=_say,
            )
        print(text)

    @app.command()
    def predict(
        capsule: CapsulePath,
        scans: Annotated[list[Path], typer.Argument(help="Files or folders of scans.")],
        out: Annotated[
            Path | None, typer.Option(help="File to write; without it, to stdout.")
        ] = None,
        kind: KindOption = "auto",
        trust: Trust = None,
        as_json: AsJson = False,
    ) -> None:
        """Probability of each scan, or silence where it is unlike anything seen."""
        from fcforge.capsule.commands import predict_command

        text = predict_command(
            capsule=capsule,
            scans=scans,
            kind=kind,
            trust=trust or (),
            as_json=as_json,
            out=out,
            say=_say,
        )
        if text:
            print(text)

    @app.command()
    def inspect(capsule: CapsulePath, trust: Trust = None, as_json: AsJson = False) -> None:
        """Say in plain words what is in a capsule: who, when, what is kept, how good."""
        from fcforge.capsule.commands import inspect_command

        print(inspect_command(capsule=capsule, trust=trust or (), as_json=as_json))

    @app.command()
    def verify(capsule: CapsulePath, trust: Trust = None, as_json: AsJson = False) -> None:
        """Check a capsule bit by bit; exit code 1 when it must not be used."""
        from fcforge.capsule.commands import verify_command

        text, ok = verify_command(capsule=capsule, trust=trust or (), as_json=as_json)
        print(text)
        raise typer.Exit(0 if ok else 1)

    @app.command()
    def keys(out: Annotated[Path, typer.Argument(help="Private key to write.")]) -> None:
        """Make an Ed25519 key pair for signing capsules."""
        from fcforge.capsule.commands import keys_command

        print(keys_command(out=out))
