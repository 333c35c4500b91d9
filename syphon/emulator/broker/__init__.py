"""What Service Bus does with messages, without a network: entities, locks, rules, faults and counts."""

from .access import Grant, Policy, key_name
from .actions import SqlAction
from .admission import FRAGMENTS
from .counters import Kind
from .description_rules import default_message_size, validate
from .descriptions import (
    DEFAULT_RULE,
    AuthorizationRule,
    Claim,
    EntityDescription,
    EntityRuntime,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from .entities import QueueEntity, SubscriptionEntity, TopicEntity
from .entity_templates import EntityTemplates
from .faults import MANAGEMENT_CREDITS, Action, BadFault, ConnectionDropped, Fault, MessageIds, Operation, Outage
from .filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from .journal import Journal, NoJournal
from .message import BrokeredMessage, StoredState
from .namespace import BrokerNamespace, NamespaceIdentity
from .queue import MessageQueue, Settlement
from .refusals import (
    KNOW_MORE,
    BadArgument,
    EntityExists,
    EntityNotFound,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    NotImplementedHere,
    QuotaExceeded,
    Refusal,
    ServerBusy,
    TimedOut,
    Unauthorized,
)
from .sessions import MessageSession, SessionQueue, SessionWaiter
from .transactions import OpenTransactions
from .virtual_hosts import VirtualHosts

__all__ = [
    "Action",
    "AuthorizationRule",
    "BadArgument",
    "BadFault",
    "BrokerNamespace",
    "BrokeredMessage",
    "Claim",
    "ConnectionDropped",
    "CorrelationFilter",
    "DEFAULT_RULE",
    "EntityDescription",
    "EntityExists",
    "EntityNotFound",
    "EntityRuntime",
    "EntityStatus",
    "EntityTemplates",
    "FRAGMENTS",
    "FalseFilter",
    "Fault",
    "Filter",
    "Grant",
    "Journal",
    "KNOW_MORE",
    "Kind",
    "MANAGEMENT_CREDITS",
    "MessageIds",
    "MessageNotFound",
    "MessageQueue",
    "MessageSession",
    "MessageSizeExceeded",
    "NamespaceIdentity",
    "NoJournal",
    "NotAllowed",
    "NotImplementedHere",
    "OpenTransactions",
    "Operation",
    "Outage",
    "Policy",
    "QueueDescription",
    "QueueEntity",
    "QuotaExceeded",
    "Refusal",
    "RuleDescription",
    "ServerBusy",
    "SessionQueue",
    "SessionWaiter",
    "Settlement",
    "SqlAction",
    "SqlFilter",
    "StoredState",
    "SubscriptionDescription",
    "SubscriptionEntity",
    "Tier",
    "TimedOut",
    "TopicDescription",
    "TopicEntity",
    "TrueFilter",
    "Unauthorized",
    "VirtualHosts",
    "default_message_size",
    "key_name",
    "validate",
]
