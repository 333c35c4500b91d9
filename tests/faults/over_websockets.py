"""The scenarios in which connections are lost, with AMQP over WebSockets. Messages are put and found that way too."""

from __future__ import annotations

import random

from syphon.config import Transport
from tests.faults import on_the_pump
from tests.faults.environment import Site
from tests.faults.scenario import Ending, Scenario


class OverWebSockets(Scenario):
    """A scenario whose connections are WebSockets."""

    def __init__(self, site: Site, rng: random.Random, ending: Ending) -> None:
        super().__init__(site, rng, ending)
        site.transport = Transport.WEBSOCKETS

    @classmethod
    def name(cls) -> str:
        return f"{super().name()} over WebSockets"


class ResetDuringSend(OverWebSockets, on_the_pump.ResetDuringSend):
    title = "connection reset during send (outcome unknown), over WebSockets"


class HalfOpen(OverWebSockets, on_the_pump.HalfOpen):
    title = "half-open connection, over WebSockets"


class DestinationCutsTheConnection(OverWebSockets, on_the_pump.DestinationCutsTheConnection):
    title = "a destination whose sends cut the connection, over WebSockets"


class PrimaryOut(OverWebSockets, on_the_pump.PrimaryOut):
    title = "primary out, and back again, over WebSockets"


class SecondaryOut(OverWebSockets, on_the_pump.SecondaryOut):
    title = "secondary out, and back again, over WebSockets"


class BothOut(OverWebSockets, on_the_pump.BothOut):
    title = "both out, and back again, over WebSockets"
