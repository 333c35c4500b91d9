"""The names of a destination's errors: another process reads them, which may have an older version."""

from __future__ import annotations

import pytest

from syphon.model import DestinationError
from syphon.model.errors import CONDITIONS, DestinationUnreachable, SyphonError, Waits

FROM_SERVICE = sorted({*CONDITIONS.values(), DestinationUnreachable}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", FROM_SERVICE)
def test_an_error_of_the_service_keeps_its_class_and_text_on_the_way_to_another_process(
    kind: type[SyphonError],
) -> None:  # S4
    named = DestinationError(DestinationError.of(kind("why")).value)
    found = named.error("why")
    assert (type(found), str(found)) == (kind, "why")


def test_an_error_that_a_later_version_names_waits() -> None:  # S4
    assert type(DestinationError("DestinationOfALaterVersion").error("why")) is Waits
