"""Describe any consortium file, and state what a step would cost, whichever model it holds."""

from fcforge_consortium.contributions.model import contributions_of
from fcforge_consortium.options import ContinueRequest, ContributeRequest
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.report import contributions
from fcforge_consortium.report.description import Description


def describe(exchange: Exchange) -> Description:
    """Return the description of a consortium file.

    Parameters
    ----------
    exchange : Exchange

    Returns
    -------
    Description
    """
    if exchange.root.kind == "chain":
        from fcforge_consortium.chains.chain import chain_of  # needs torch
        from fcforge_consortium.report.chains import describe_chain

        return describe_chain(chain_of(exchange))
    return contributions.describe_contributions(contributions_of(exchange))


def promise(exchange: Exchange, request: ContinueRequest) -> str:
    """Return the budget that each person of a site would spend, in words.

    Parameters
    ----------
    exchange : Exchange
        The file that would be added to.
    request : ContinueRequest
    """
    if exchange.root.kind == "chain" or not isinstance(request, ContributeRequest):
        return (
            "nothing is promised; `fcforge consortium audit` measures what a chain "
            "gives away"
        )
    return contributions.promise(exchange, request)
