"""syphon with exporters that wait for hours for a collector that does not answer, also at their end."""

from __future__ import annotations

from opentelemetry.sdk._shared_internal import BatchProcessor
from opentelemetry.sdk.metrics import MeterProvider

from syphon.cli import main
from syphon.status import otlp

HOURS = 10_000.0

if __name__ == "__main__":
    vars(otlp)["EXPORT_TIMEOUT"] = HOURS
    for end in (MeterProvider.shutdown, BatchProcessor.shutdown):
        end.__defaults__ = (HOURS * 1000,)  # how long it waits for its thread
    main()
