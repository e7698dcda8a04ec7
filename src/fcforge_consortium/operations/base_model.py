"""Make a base model from public people and write it as a consortium file."""

from typing import Any

import numpy as np

from fcforge.core.errors import ConfigError
from fcforge.core.formatting import listed
from fcforge.core.names import check_names
from fcforge.core.overrides import override_only
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import dataset_of, load_dataset
from fcforge_consortium.aggregation.aggregators import read_card
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.base_model.vectors import noise_units
from fcforge_consortium.operations.published import published_people
from fcforge_consortium.options import BaseModelRequest
from fcforge_consortium.privacy.noise import DELTA, EPSILON, check_budget
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import read_signer
from fcforge_consortium.records.policy import Policy


def write_base_model(request: BaseModelRequest) -> Exchange:
    """Make a base model from public people and write it as a file without a hospital.

    Parameters
    ----------
    request : BaseModelRequest

    Returns
    -------
    Exchange
        The base model with its policy, without contributions.
    """
    if request.out is None:
        raise ConfigError("--out is missing.", do="Name the file to write.")
    archive.require_place(request.out)
    if request.aggregator and request.sign is None:
        raise ConfigError(
            "a base model that names aggregators must be signed: anybody could put other "
            "aggregators in.",
            do="Add --sign KEY (`fcforge consortium keys new KEY` makes one).",
        )
    epsilon = planned_epsilon(request)
    plan = records.Plan(
        people=request.people, hospitals=request.hospitals, epsilon=epsilon
    )
    allowed = {"exact_allowed": True} if request.exact else {}
    defaults = {"base_model": {}, "policy": allowed, "dataset": {}}
    given = override_only(defaults, request.overrides)
    cards = [read_card(path) for path in request.aggregator]
    policy = Policy.of(given["policy"], cards)
    require_plan_in_policy(plan, policy)
    cohort = _public_people(request, given["dataset"])
    key = read_signer(request.sign)
    removed = listed(request.remove)
    made = make_base_model(cohort, removed, given["base_model"], policy, key, plan)
    exchange.save(made, request.out)
    return made


def planned_epsilon(request: BaseModelRequest) -> float | None:
    """Return the epsilon that each person is planned to spend; None for exact sums."""
    if not request.exact:
        planned = EPSILON if request.epsilon is None else request.epsilon
        check_budget(planned, DELTA, "--epsilon")
        noise_units(planned)  # raises for a budget whose noise cannot be drawn
        return planned
    if request.epsilon is not None:
        raise ConfigError("--exact has no --epsilon.", do="Leave one of them out.")
    return None


def require_plan_in_policy(plan: records.Plan, policy: Policy) -> None:
    """Raise `ConfigError` for a plan that the policy of the same file would refuse.

    Parameters
    ----------
    plan : Plan
    policy : Policy
    """
    if plan.epsilon is None and not policy.exact_allowed:
        message = "--exact plans exact sums, which policy.exact_allowed=false refuses."
        raise ConfigError(message, do="Leave one of them out.")
    if plan.epsilon is not None and plan.epsilon > policy.max_epsilon:
        raise ConfigError(
            f"--epsilon {plan.epsilon:g} is above the policy's largest epsilon "
            f"({policy.max_epsilon:g}).",
            do=f"Plan a smaller one, or add --set policy.max_epsilon={plan.epsilon:g}.",
        )
    if policy.aggregators and plan.hospitals < policy.fewest_hospitals:
        raise ConfigError(
            f"--hospitals {plan.hospitals} plans fewer hospitals than a round needs by the policy "
            f"({policy.fewest_hospitals}).",
            do=f"Plan at least {policy.fewest_hospitals}, or set policy.fewest_hospitals.",
        )
    fewest = plan.hospitals * policy.fewest_people
    if plan.people < fewest:
        raise ConfigError(
            f"--people {plan.people} --hospitals {plan.hospitals} plans fewer than "
            f"{policy.fewest_people} people per hospital, which the policy refuses.",
            do=f"Plan at least {fewest} people, or set policy.fewest_people.",
        )


def _public_people(request: BaseModelRequest, settings: dict[str, Any]) -> Cohort:
    """Load the people of the public sites, from a data set or as published.

    Parameters
    ----------
    request : BaseModelRequest
        Names the data, the sites to use and those to leave out.
    settings : dict
        Settings of the data set, from ``--set dataset.*``.
    """
    sites = listed(request.sites)
    without = listed(request.without)
    data = request.data
    if request.public:
        if data is not None:
            raise ConfigError("--public has no --data.", do="Leave one of them out.")
        data = published_people(request.public)
    chosen = {"path": "" if data is None else str(data), "sites": sites}
    known = {name: value for name, value in chosen.items() if value}
    cohort = load_dataset(dataset_of(request.dataset, known, settings))
    check_names("site", without, cohort.site_names, where="--without")
    return cohort.select(~np.isin(cohort.site, without))
