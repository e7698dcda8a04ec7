"""The methods, one short file each. To add one: write its file, add its class to the table."""

from __future__ import annotations

from fcforge.components import build
from fcforge.strategies.analytic import Analytic
from fcforge.strategies.base import Batch, Lane, Replay, Strategy
from fcforge.strategies.cumulative import Cumulative, Joint
from fcforge.strategies.der import DER, DERPP
from fcforge.strategies.dp_analytic import DPAnalytic
from fcforge.strategies.er import ER
from fcforge.strategies.ewc import EWC
from fcforge.strategies.finetune import Finetune
from fcforge.strategies.forge import Forge
from fcforge.strategies.forge_ridge import ForgeRidge
from fcforge.strategies.independent import Independent
from fcforge.strategies.lwf import LwF
from fcforge.strategies.majority import Majority
from fcforge.strategies.packnet import PackNet
from fcforge.strategies.pdgnn import PDGNN
from fcforge.strategies.si import SI
from fcforge.strategies.twp import TWP
from fcforge.strategies.ugcl import UGCL
from fcforge.types import Component

STRATEGIES: dict[str, type[Strategy]] = {
    cls.name: cls
    for cls in (
        Finetune,
        Cumulative,
        Joint,
        Independent,
        Majority,
        Analytic,
        DPAnalytic,
        ER,
        DER,
        DERPP,
        EWC,
        SI,
        LwF,
        PackNet,
        TWP,
        UGCL,
        PDGNN,
        Forge,
        ForgeRidge,
    )
}

__all__ = ["STRATEGIES", "Batch", "Lane", "Replay", "Strategy", "make_strategy"]


def make_strategy(component: Component) -> Strategy:
    """Method by name with its hyper-parameters; a wrong name or setting says what is known."""
    return build("method", component, STRATEGIES)
