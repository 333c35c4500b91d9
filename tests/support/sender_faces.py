"""The old name of `tests.support.sender_apis`."""

from .sender_apis import eventually as eventually
