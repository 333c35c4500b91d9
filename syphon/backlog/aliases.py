"""The aliases of a backlog message, and what notes the form of the sender's message.

They are application properties that keep what the message cannot have in the backlog (M1). A backlog queue has
no sessions and must keep a message however long the outage lasts. So the sender's failover moves session id, time to
live and scheduled time into application properties, and adds the path of its destination. `aliasing`
does that; `restoration` is the exact inverse (M2).

Two things about the sender's message cannot be seen in a backlog message, so the pair of `x-ms-path` notes them in its
form, which has no meaning in AMQP:
- Its key is in the long form: the message had no `durable` field. (Brokers write `durable=true` into each header.)
- It is the first pair: the application properties were in the long form although the short one would have sufficed.
  (Aliases push a short map into the long form, too.)
A message that another sender has put into the backlog has no such notes.
"""

from __future__ import annotations

from typing import Final

from syphon.amqp import encode
from syphon.amqp.section_edit import keys, long_string

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"
PATH_KEY, PATH_KEY_NO_DURABLE = encode(PATH), long_string(PATH)
ALIASES = keys((PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME))

PATH_LIMIT = 260
"""How many characters the path of an entity may have."""
