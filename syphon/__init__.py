"""syphon forwards messages from the backlog queues of a secondary Service Bus namespace to their primary."""

__version__ = "0.1.0"
