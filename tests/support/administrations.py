"""Both administrations of a namespace, on the same emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from azure.core.credentials import AccessToken
from pydantic import SecretStr

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings
from syphon.emulator.broker.descriptions import Claim
from syphon.emulator.broker.faults import Fault, Outage
from syphon.emulator.broker.namespace import BrokerNamespace as Namespace
from syphon.emulator.settings import PolicySettings
from syphon.servicebus.administration import Administration
from syphon.servicebus.arm_administration import ArmAdministration
from syphon.servicebus.data_plane_administration import DataPlaneAdministration

KEY = "cm9vdCBvZiBhbGwgZXZpbA=="
SENDERS_KEY = "c2VuZCBhbmQgbm90aGluZyBlbHNl"
TOKEN = "eyJ0b2tlbiI6InNlY3JldCJ9"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"


class Token:
    """A credential like those of azure-identity."""

    def __init__(self, token: str = TOKEN) -> None:
        self._token = token

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self._token, 4_102_444_800)


@dataclass
class Site:
    """A namespace, contoso-dr, with a policy that may do everything and one that may send."""

    emulator: BackgroundEmulator

    @property
    def namespace(self) -> Namespace:
        return self.emulator["contoso-dr"].namespace

    @property
    def port(self) -> int:
        return self.emulator["contoso-dr"].amqp_port

    @property
    def ca_file(self) -> str:
        return str(self.emulator.ca_file)

    def do(self, *changes: Callable[[Namespace], object]) -> None:
        for change in changes:
            self.emulator.call(lambda change=change: change(self.namespace))  # type: ignore[misc]

    def arm(self, *faults: Fault) -> None:
        self.do(*(lambda namespace, fault=fault: namespace.faults.add(fault) for fault in faults))

    def go_out(self, outage: Outage) -> None:
        self.do(lambda namespace: namespace.faults.begin_outage(outage))

    def connection_string(self, policy: str = "Root", key: str = KEY, port: int | None = None) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{port or self.port};SharedAccessKeyName={policy};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true;"
        )


@contextmanager
def site(*, tls: bool = False, accept_any_jwt: bool = True) -> Iterator[Site]:
    policies = [
        PolicySettings(name="Root", key=SecretStr(KEY)),
        PolicySettings(name="Sender", key=SecretStr(SENDERS_KEY), claims=frozenset({Claim.SEND})),
    ]
    namespace = NamespaceSettings(name="contoso-dr", policies=policies, accept_any_jwt=accept_any_jwt)
    with BackgroundEmulator(EmulatorSettings(namespaces=[namespace], tls=tls)) as emulator:
        yield Site(emulator)


MakeAdministration = Callable[[Site], Administration]


def with_connection_string(here: Site) -> Administration:
    return DataPlaneAdministration.from_connection_string(here.connection_string(), timeout=20)


def with_resource_manager(here: Site) -> Administration:
    base_url = f"http://127.0.0.1:{here.port}"
    return ArmAdministration(SUBSCRIPTION, "rg", "contoso-dr", Token(), base_url=base_url, timeout=20)


BOTH = (with_connection_string, with_resource_manager)


@contextmanager
def entered(make: MakeAdministration, here: Site) -> Iterator[Administration]:
    with closing(make(here)) as administration:
        yield administration
