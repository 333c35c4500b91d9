"""."""

from .connection_string import BadConnectionString, ConnectionString, first_label, is_host, is_this_machine
from .counters import Counters
from .durations import SECONDS_BUCKETS, Durations
from .entity_path import EntityPath, PathPatterns
from .errors import (
    DestinationBusy,
    DestinationDisabled,
    DestinationFailed,
    DestinationMissing,
    DestinationSilent,
    DestinationUnreachable,
    Faulted,
    Impossible,
    Interrupted,
    LockLost,
    MessageTooLarge,
    NamespaceGone,
    NotAllowedByEntity,
    NotAuthorized,
    PausedByOperator,
    SyphonError,
    Waits,
    connection_ended,
    from_condition,
    link_ended,
)
from .formatting import counted, duration, harmless, moment, volume
from .message_filter import MessageFilter
from .outcome import Outcome, Result
from .stats import MOST_DESTINATIONS, DestinationStats, QueueKey, Stats, earlier

__all__ = [
    "BadConnectionString",
    "ConnectionString",
    "Counters",
    "DestinationBusy",
    "DestinationDisabled",
    "DestinationFailed",
    "DestinationMissing",
    "DestinationSilent",
    "DestinationStats",
    "DestinationUnreachable",
    "Durations",
    "EntityPath",
    "Faulted",
    "Impossible",
    "Interrupted",
    "LockLost",
    "MOST_DESTINATIONS",
    "MessageFilter",
    "MessageTooLarge",
    "NamespaceGone",
    "NotAllowedByEntity",
    "NotAuthorized",
    "Outcome",
    "PathPatterns",
    "PausedByOperator",
    "QueueKey",
    "Result",
    "SECONDS_BUCKETS",
    "Stats",
    "SyphonError",
    "Waits",
    "connection_ended",
    "counted",
    "duration",
    "earlier",
    "first_label",
    "from_condition",
    "harmless",
    "is_host",
    "is_this_machine",
    "link_ended",
    "moment",
    "volume",
]
