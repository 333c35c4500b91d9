"""A secret that names a file is as its file is now."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from syphon.config import Config, load_config
from syphon.status.status_server import AccessDenied, AccessRules
from syphon.yaml_settings import RenewableSecret

HERE = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=owner;SharedAccessKey="
AWAY = HERE.replace("contoso", "contoso-dr")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "key").write_text("first\n")
    (tmp_path / "away").write_text(AWAY + "first")
    (tmp_path / "token").write_text("first-token")
    (tmp_path / "config.yaml").write_text(
        f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{HERE}${{file:key}}'}}\n"
        "    secondary: {connection_string: '${file:away}'}\n"
        "status: {listen: '0.0.0.0:8080', token: '${file:token}'}\n"
        "pipeline: {spark: {spark.x: '${file:key}'}}\n"
    )
    return load_config(tmp_path / "config.yaml")


def key_of(config: Config, side: str) -> str:
    secret = getattr(config.pairs[0], side).connection_string
    return str(secret.get_secret_value()).rpartition("=")[2]


def test_a_key_is_read_again_wherever_its_file_is_named(config: Config, tmp_path: Path) -> None:  # T10
    assert (key_of(config, "primary"), key_of(config, "secondary")) == ("first", "first")
    (tmp_path / "key").write_text("second\n")
    (tmp_path / "away").write_text(AWAY + "second")
    assert (key_of(config, "primary"), key_of(config, "secondary")) == ("second", "second")


@pytest.mark.parametrize("content", [None, "", "nonsense", HERE + "of-another-namespace", AWAY + "a\nb"])
def test_a_file_that_is_missing_or_half_written_changes_nothing(
    config: Config, tmp_path: Path, content: str | None
) -> None:  # T10
    if content is None:
        (tmp_path / "away").unlink()
    else:
        (tmp_path / "away").write_text(content)
    assert key_of(config, "secondary") == "first"


def test_an_address_of_a_proxy_that_is_half_written_changes_nothing(tmp_path: Path) -> None:  # T10
    (tmp_path / "proxy").write_text("http://proxy.example:3128\n")
    side = "{namespace: a.example, transport: websockets, proxy: {url: '${file:proxy}'}}"
    (tmp_path / "config.yaml").write_text(
        f"pairs:\n- name: contoso\n  primary: {side}\n  secondary: {{namespace: b.example}}\n"
    )
    proxy = load_config(tmp_path / "config.yaml").pairs[0].primary.proxy
    assert proxy is not None
    for text in ("http://prox", "http://proxy.example:x", "nonsense"):
        (tmp_path / "proxy").write_text(text)
        assert (proxy.host, proxy.port) == ("proxy.example", 3128)
    (tmp_path / "proxy").write_text("http://other.example:8080\n")
    assert (proxy.host, proxy.port) == ("other.example", 8080)


def test_a_task_on_another_machine_has_the_key_that_was_there_when_it_was_sent(
    config: Config, tmp_path: Path
) -> None:  # T10
    (tmp_path / "key").write_text("second")
    sent = pickle.dumps(config)  # the driver has not used the new key yet
    (tmp_path / "key").unlink()
    assert key_of(pickle.loads(sent), "primary") == "second"
    assert key_of(pickle.loads(pickle.dumps(config)), "primary") == "second"  # the file cannot be read


def test_the_secret_is_in_no_repr(config: Config) -> None:
    assert isinstance(config.pairs[0].primary.connection_string, RenewableSecret)
    assert "first" not in repr(config) + str(config.pairs[0].primary.connection_string) + config.model_dump_json()


def test_the_token_of_the_status_server_is_read_again(config: Config, tmp_path: Path) -> None:  # T10
    rules = AccessRules(config.status)

    def check(token: str) -> None:
        rules.check("GET", "/status", CIMultiDictProxy(CIMultiDict({"Authorization": f"Bearer {token}"})))

    check("first-token")
    (tmp_path / "token").write_text("second-token")
    check("second-token")
    with pytest.raises(AccessDenied):
        check("first-token")
