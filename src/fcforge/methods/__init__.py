"""The methods, one short file each. To add one: write its file, add its class to the table."""

from __future__ import annotations

from fcforge.components import build
from fcforge.methods.analytic import Analytic
from fcforge.methods.base import Batch, Lane, Method, Replay
from fcforge.methods.cumulative import Cumulative, Joint
from fcforge.methods.der import DER, DERPP
from fcforge.methods.dp_analytic import DPAnalytic
from fcforge.methods.er import ER
from fcforge.methods.ewc import EWC
from fcforge.methods.finetune import Finetune, Independent
from fcforge.methods.forge import Forge
from fcforge.methods.forge_release import ForgeRelease
from fcforge.methods.forge_ridge import ForgeRidge
from fcforge.methods.lwf import LwF
from fcforge.methods.majority import Majority
from fcforge.methods.packnet import PackNet
from fcforge.methods.pdgnn import PDGNN
from fcforge.methods.public_head import PublicHead
from fcforge.methods.si import SI
from fcforge.methods.twp import TWP
from fcforge.methods.ugcl import UGCL
from fcforge.types import Component

METHODS: dict[str, type[Method]] = {
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
        ForgeRelease,
        PublicHead,
    )
}

__all__ = ["METHODS", "Batch", "Lane", "Method", "Replay", "make_method"]


def make_method(component: Component) -> Method:
    """Method by name with its hyper-parameters; a wrong name or setting says what is known."""
    return build("method", component, METHODS)
