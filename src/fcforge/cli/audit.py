"""The command ``fcforge audit``: attack generators on a hospital's data."""

from fcforge.cli.messages import at_work, say
from fcforge.cli.options import takes
from fcforge.evaluation.privacy.options import GeneratorAuditRequest


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
