"""The address of a Spark Connect server, its token, what is missing, and how the loss of a server is noticed."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from syphon.config import PipelineSettings, config_from
from syphon.spark.classic import SparkNotStarted
from syphon.spark.connect import ConnectWatch, _with_parameter, endpoint_of, warn_of_plain_connection
from syphon.spark.session_access import shown_master
from syphon.yaml_settings import SettingsError
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("sc://spark.internal", ("spark.internal", 15002)),
        ("sc://localhost:4040/;use_ssl=true", ("localhost", 4040)),
        ("sc://[::1]:15003", ("::1", 15003)),
    ],
)
def test_an_address_names_a_host_and_a_port(url: str, endpoint: tuple[str, int]) -> None:
    assert endpoint_of(url) == endpoint


@pytest.mark.parametrize("url", ["sc://", "sc://:15002", "sc://host:port", "sc:host"])
def test_an_address_that_names_none_is_an_error(url: str) -> None:
    with pytest.raises(SparkNotStarted, match=r"write sc://host:15002"):
        endpoint_of(url)


def test_a_master_is_shown_without_its_parameters() -> None:
    assert shown_master("sc://host:15002/;use_ssl=true;user_id=me") == "sc://host:15002"
    assert shown_master("local[2]") == "local[2]"


def test_a_token_is_refused_in_the_master_which_is_printed_and_accepted_as_a_secret() -> None:
    pair = {"name": "a", "primary": {"namespace": "a.example"}, "secondary": {"namespace": "b.example"}}
    token = "t0ken-that-must-not-be-seen"
    with pytest.raises(SettingsError, match=r"contains a token; .*spark\.connect\.authenticate\.token") as caught:
        config_from({"pairs": [pair], "pipeline": {"master": f"sc://host/;token={token}"}})
    assert token not in str(caught.value)
    settings = {"master": "sc://host", "spark": {"spark.connect.authenticate.token": token}}
    assert token not in repr(config_from({"pairs": [pair], "pipeline": settings}))


def test_a_token_joins_the_other_parameters() -> None:
    assert _with_parameter("sc://host:1", "token", "t") == "sc://host:1/;token=t"
    assert _with_parameter("sc://host:1/", "token", "t") == "sc://host:1/;token=t"
    assert _with_parameter("sc://host:1/;use_ssl=true", "token", "t") == "sc://host:1/;use_ssl=true;token=t"


def test_missing_packages_are_named_with_the_extra_that_brings_them() -> None:
    code = """
import sys
sys.modules["grpc"] = None
from syphon.config import PipelineSettings
from syphon.model import ExtraMissing
from syphon.spark.connect import connect_session
try:
    connect_session(PipelineSettings(master="sc://localhost:1"))
except ExtraMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "(grpc): pip install 'syphon-servicebus[connect]'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("host", "secure", "warned"),
    [("spark.internal", False, True), ("spark.internal", True, False), ("::1", False, False)],
)
def test_a_connection_that_is_not_encrypted_is_warned_of(
    host: str, secure: bool, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:  # T9
    client = SimpleNamespace(_builder=SimpleNamespace(host=host, secure=secure))
    warn_of_plain_connection(SimpleNamespace(client=client))
    assert ("is not encrypted: anyone on the network path can read connection strings" in caplog.text) == warned


class Session:
    """As much of a session as the watch uses. It answers while `answers` is set, as PySpark tries again and again."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0
        self.error: Exception | None = None

        self.conf = self

    def get(self, key: str) -> str:
        self.asked += 1
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return f"the value of {key}"


@contextmanager
def watched(endpoint: tuple[str, int] | None) -> Iterator[tuple[Any, ConnectWatch]]:
    session: Any = Session()
    watch = ConnectWatch(session, endpoint)
    watch.start()
    try:
        yield session, watch
    finally:
        watch.stop()
        session.answers.set()


def test_a_server_that_answers_is_not_lost() -> None:
    with watched(None) as (session, watch):
        eventually(lambda: session.asked > 1, what="it is asked again")
        assert watch.failure is None


def test_a_server_whose_port_is_closed_is_lost_although_the_call_hangs() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with watched(listening.getsockname()) as (session, watch):
            eventually(lambda: session.asked, what="it is asked")
            session.answers.clear()
            eventually(lambda: session.asked > 1, what="a question is open")
            assert watch.failure is None  # its port answers: it may only be busy
            listening.close()
            lost = eventually(lambda: watch.failure, what="the loss is noticed")
            assert "is unreachable: Connection refused. No message is lost" in str(lost)
            assert watch.wait_for_failure(0) is lost


def test_a_server_that_has_ended_the_session_is_lost() -> None:
    with watched(None) as (session, watch):
        session.error = RuntimeError("[INVALID_HANDLE.SESSION_NOT_FOUND] no such session.\nmore")
        lost = eventually(lambda: watch.failure, what="the loss is noticed")
        assert "ended the session: [INVALID_HANDLE.SESSION_NOT_FOUND] no such session. No message is lost" in str(lost)


def test_a_session_that_is_ended_on_purpose_is_not_lost() -> None:
    with watched(None) as (session, watch):
        watch.stop()
        session.error = RuntimeError("closed")
        assert watch.failure is None


def test_the_default_master_is_as_it_was() -> None:
    assert PipelineSettings().master == "local[*]"
