"""The exit code of a command that could not reach some queues: the worst error decides."""

from __future__ import annotations

import pytest

from syphon.model import (
    DestinationMissing,
    DestinationUnreachable,
    ExitCode,
    Faulted,
    Interrupted,
    NotAuthorized,
    SyphonError,
    exit_code_for,
)


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([], ExitCode.OK),
        ([DestinationMissing("x")], ExitCode.LEFT),
        ([SyphonError("x")], ExitCode.LEFT),
        ([DestinationUnreachable("x")], ExitCode.UNAVAILABLE),
        ([Interrupted("x")], ExitCode.UNAVAILABLE),
        ([Faulted("x")], ExitCode.UNAVAILABLE),
        ([NotAuthorized("x")], ExitCode.NOT_AUTHORIZED),
        ([Interrupted("x"), SyphonError("x")], ExitCode.UNAVAILABLE),
        ([NotAuthorized("x"), Interrupted("x")], ExitCode.NOT_AUTHORIZED),
    ],
)
def test_the_worst_error_decides(errors: list[SyphonError], code: ExitCode) -> None:  # X7
    assert exit_code_for(errors) is code
