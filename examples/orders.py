"""An application for azure-servicebus that sends orders, one after another.

python examples/orders.py COUNT            with the connection string of a namespace in PRIMARY
"""

from __future__ import annotations

import os
import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage


def client() -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(os.environ["PRIMARY"])


def main() -> None:
    count = int(sys.argv[1])
    with client() as bus, bus.get_queue_sender("orders") as sender:
        for number in range(count):
            sender.send_messages(ServiceBusMessage(f"order {number}", message_id=f"order-{number}"))
            print(f"order {number} is on its way", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
