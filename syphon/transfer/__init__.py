"""Moves messages from a queue to their destinations: pump, breakers, listener, and the replay of dead letters."""

from .backlog_listener import Listener
from .backoff_gate import BackoffGate
from .canary import ProbeResult, send_probe
from .congestion import DEFAULT_SHARE, Congestion
from .dead_letter_replay import NewId, Removal, Replay, ReplayResult
from .deferred_scan import Ring, WaitingMessages
from .destinations import DestinationBackoff
from .duplicate_detection import DuplicateGuard, DuplicateWindows
from .entity_sender import EntitySender, OutgoingMessage
from .letter_import import ImportMessage, ImportResult, LetterImport
from .pump import Pump
from .pump_options import MOST_QUEUES, PumpOptions
from .queue_transfer import QueueTransfer
from .route import MovePlan, Route, route_to_backlog, route_to_destination
from .settlement import Ended, wall_clock
from .traces import BatchTrace

__all__ = [
    "DEFAULT_SHARE",
    "MOST_QUEUES",
    "MovePlan",
    "BackoffGate",
    "BatchTrace",
    "Congestion",
    "DestinationBackoff",
    "DuplicateGuard",
    "DuplicateWindows",
    "Ended",
    "EntitySender",
    "ImportMessage",
    "ImportResult",
    "LetterImport",
    "Listener",
    "NewId",
    "OutgoingMessage",
    "Pump",
    "PumpOptions",
    "QueueTransfer",
    "ProbeResult",
    "Removal",
    "Replay",
    "ReplayResult",
    "Ring",
    "Route",
    "WaitingMessages",
    "route_to_backlog",
    "route_to_destination",
    "send_probe",
    "wall_clock",
]
