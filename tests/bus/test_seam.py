"""The seam to the SDK's private layer: it says loudly when it no longer fits."""

from __future__ import annotations

import azure.servicebus
import pytest

from syphon.bus import seam


def test_the_installed_sdk_has_everything_the_seam_relies_on() -> None:
    seam.check_contract()


@pytest.mark.parametrize("version", ["7.14.2", "7.16.0", "8.0.0"])
def test_another_version_of_the_sdk_is_refused_by_name(version: str) -> None:
    with pytest.raises(seam.SeamBroken, match=rf"version is {version}.*azure-servicebus==7\.15"):
        seam.check_contract(version)


def test_a_private_name_that_has_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(azure.servicebus.ServiceBusClient, "_create_session_browser")
    with pytest.raises(seam.SeamBroken, match=r"ServiceBusClient\._create_session_browser is gone"):
        seam.check_contract()


def test_a_module_that_has_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(seam.CONTRACT, "azure.servicebus._no_such_module:Thing", ("x",))
    with pytest.raises(seam.SeamBroken, match="_no_such_module:Thing is gone"):
        seam.check_contract()
