"""One Service Bus namespace: connections, raw senders and receivers, administration; and the pair of two of them."""
