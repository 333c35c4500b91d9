"""The same application on a pair of namespaces: it goes on sending while the primary is unavailable.

Only its constructor has changed.

    python examples/orders_paired.py COUNT

The connection strings are in the environment (PRIMARY, SECONDARY), or else those of `syphon emulator`.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from syphon.sender import PairedClient, PairOptions, pair

EMULATOR = (
    "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
    "UseDevelopmentEmulator=true"
)


def client() -> PairedClient:
    options = PairOptions(
        failover_interval=timedelta(0),  # at the first failure, to keep the example short
        ping_primary_interval=timedelta(seconds=1),
        primary_name="contoso",  # the emulator's host is an IP address; contoso.servicebus.windows.net needs none
        on_change=lambda change: print(f"    {change}", flush=True),
    )
    primary = os.environ.get("PRIMARY", EMULATOR.format(port=5672))
    secondary = os.environ.get("SECONDARY", EMULATOR.format(port=5673))
    return pair(primary, secondary, options)


def main() -> None:
    count = int(sys.argv[1])
    with client() as bus, bus.get_queue_sender("orders") as sender:
        for number in range(count):
            sender.send_messages(ServiceBusMessage(f"order {number}", message_id=f"order-{number}"))
            print(f"order {number} is on its way", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
