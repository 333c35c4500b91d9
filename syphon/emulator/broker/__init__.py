"""What Service Bus does with messages, without a wire: entities, locks, rules, faults, counts."""
