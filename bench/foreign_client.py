"""`python -m bench.foreign_client CONNECTION_STRING ENTITY PER_SECOND`: a client that sends at a steady rate.

It is the live traffic beside which syphon works. It is not told to wait: what the service refuses is dropped.
"""

from __future__ import annotations

import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

TURN = 0.1


def main(connection_string: str, entity: str, per_second: float) -> None:
    """Sends until it is stopped."""
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(entity) as sender,
    ):
        due, at = 0.0, time.monotonic()
        while True:
            time.sleep(TURN)
            now = time.monotonic()
            due, at = due + (now - at) * per_second, now
            count = min(int(due), 1000)
            due -= count
            try:
                if count:
                    sender.send_messages([ServiceBusMessage(b"x") for _ in range(count)])
            except ServiceBusError:
                continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
