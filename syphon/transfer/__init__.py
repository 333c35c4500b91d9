"""One backlog queue's way home: receive, restore, forward, settle. Destinations have a state, outcomes are values."""
