"""Commands about generators of synthetic FC: ``judge`` and ``audit``."""

from fcforge.cli.messages import at_work, say, warn
from fcforge.cli.options import (
    AllowCode,
    Config,
    Device,
    Out,
    Overrides,
    run_folder,
    takes,
)
from fcforge.evaluation.privacy.options import GeneratorAuditRequest


def judge(
    config: Config,
    overrides: Overrides = None,
    out: Out = None,
    device: Device = "auto",
    allow_code: AllowCode = False,
) -> None:
    """Judge generators of synthetic FC: fidelity, diversity, usefulness."""
    from fcforge.evaluation.generator_quality.experiment import judge_config
    from fcforge.experiments.execute import pick_device
    from fcforge.report.judge import write_judgement

    folder = out or run_folder(config)
    where = pick_device(device)
    with at_work("judging"):
        collapsed = judge_config(
            config,
            overrides or [],
            folder,
            where,
            say,
            allow_code=allow_code,
            warn=warn,
        )
    for text in collapsed:
        say(text, style="red")
    print(write_judgement(folder))


@takes
def audit(request: GeneratorAuditRequest) -> None:
    """Attack generators of synthetic FC: who was trained on, who can be identified."""
    from fcforge.evaluation.privacy.generator_audit import audit_request
    from fcforge.report import audits

    with at_work("attacking"):
        result = audit_request(request, say)
    if request.out is not None:
        audits.write_files(result, request.out)
        say(f"wrote {request.out}/audit.json")
    print(audits.as_json(result) if request.as_json else audits.as_text(result))


COMMANDS = (judge, audit)
