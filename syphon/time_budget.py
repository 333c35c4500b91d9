"""The time budget: every timeout, interval and deadline of the product, in seconds, except the emulator's.

`tests/unit/test_time_budget.py` asserts what must be shorter than what; D25 says how to print it. Not here are the
settings of an operator (`syphon.config`), the steps of an ending (`syphon.control`), and the parameters of congestion
control, which tune a control loop and limit no wait.
"""

# --- Connections -----------------------------------------------------------------------------------------------------

OPEN_WITHIN = 30.0
"""A connection opens, or the attempt has failed."""
HANDSHAKE_WITHIN = 2.5
"""Each answer until AMQP is open, where the end of an outage must be noticed soon."""
ATTACH_WITHIN = 15.0
"""A link attaches."""
STABLE_AFTER = 10.0
"""An open link or connection has worked: the back-off starts over."""
FIRST_RECONNECT_DELAY = 1.0
"""First delay before a reconnect; each failure doubles it."""
LONGEST_RECONNECT_DELAY = 120.0
"""Longest delay before a reconnect."""
NOTICING_DELAY = 2.5
"""Longest delay where the end of an outage must be noticed within 5 s (D16)."""
IDLE_TIMEOUT = 60
"""The peer must send at least a heartbeat; the SDK asks for none by default."""
WEBSOCKET_ANSWER_WITHIN = 10.0
"""Each answer until a WebSocket is open: of the proxy, TLS and the service."""
SDK_WAIT = 0.2
"""The SDK waits for a frame, twice per opening, whether or not one comes."""
WIRE_SILENCE = 60.0
"""A connection that owes an answer and sends no byte counts as broken."""
LATEST_ANSWER = 120.0
"""An answer on a connection that is alive; an owner with less time closes the link earlier."""
ADMINISTRATION_TIMEOUT = 60.0
"""An answer of the administration."""
PAGE_WITHIN = 30.0
"""A page of a peek."""
PEEK_TURN = 0.2
"""A peek checks whether it was cancelled."""
REACHED_ELSEWHERE_FOR = 5.0
"""A namespace counts as reachable after another connection has reached it."""
GIVE_UP_OPENING_AFTER = 2 * OPEN_WITHIN
"""An opening that overruns its own limit, which may start over once, is abandoned."""
OTHER_SIDE_ENDS_WITHIN = 5.0
"""The other side of a pair ends after a fault (C1)."""

# --- Pump ------------------------------------------------------------------------------------------------------------

LONG_POLL = 900.0
"""One receive of the listener."""
DOORBELL_CHECK_EVERY = 60.0
"""A doorbell verifies that it still has credit."""
DOORBELL_CALM = 0.5
"""Without a message, a credit of one is enough again."""
LISTENER_TURN = 0.5
"""Longest wait of the listener for traffic."""
LISTENER_TICK = 5.0
"""Heartbeats and tokens of the listener."""
LISTEN_RETRY_AFTER = 30.0
"""The listener retries a queue that it could not listen to."""
PUMP_TURN = 0.2
"""Longest wait of the pump for traffic."""
OPENING_TURN = 0.02
"""The same while a connection opens: no socket announces that it is open."""
PACED_TURN = 0.05
"""The same while congestion control holds messages back."""
PUMP_TICK = 0.5
"""Heartbeats, tokens and locks of the pump."""
PAUSED_BY_OS_AFTER = 0.5
"""Between two reads of the sockets: messages may have waited there while their locks ran."""
UNREACHABLE_AFTER = 5.0
"""Without a connection to the primary, after a failed attempt, the slot returns its queues to the driver."""
FIRST_OPENING_WITHIN = 35.0
"""The same without a failed attempt: the first may still succeed."""
LOCK_DURATION = 60.0
"""A lock, as backlog queues are created (P2)."""
SHORTEST_LOCK = 5.0
"""The shortest lock of any queue."""
LONGEST_LOCK = 300.0
"""The longest lock of any queue."""
SEND_ANSWER_WITHIN = 60.0
"""A destination answers a batch."""
SETTLED_WITHIN = 20.0
"""The answer to a settlement; then its place in the window is free."""
CREDIT_RETURNED_WITHIN = 20.0
"""The service confirms that it has no more credit; then the link is closed."""
RELEASE_TURN = 0.2
"""Released messages are being confirmed."""
HELD_CHECK_FIRST = 0.5
"""A peek shows whether a message has gone that a session waits for."""
HELD_CHECK_EVERY = 5.0
"""The longest time between two such peeks: each that shows no change doubles it."""
HELD_WARNING_AFTER = 65.0
"""Sessions have waited for longer than a lock lasts."""
DEFERRED_RETRY_AFTER = 5.0
"""Deferred messages are received again after an error."""
CHECK_ALL_EVERY = 0.5
"""Destinations without a link are checked: there may be hundreds."""
OWNER_AWAY_AFTER = 5.0
"""Without a turn, the owner was busy with something else."""
PEEK_ALL_EVERY = 6 * 3600.0
"""The whole queue is peeked again: another consumer may have deferred messages."""

# --- Retries ---------------------------------------------------------------------------------------------------------

RECHECK_AFTER = 30.0
"""A destination that is missing or disabled is retried."""
RECHECK_RIGHTS_AFTER = 60.0
"""A destination without the right to send is retried."""
CUT_OFF_RETRY_AFTER = 15.0
"""A destination whose messages cut the connection is first retried."""
LONGEST_DESTINATION_DELAY = 120.0
"""Longest back-off of a destination; each failure doubles it (S9)."""
BETWEEN_SUSPECTS = 2.0
"""After an attempt that lost the connection: other destinations send meanwhile."""
ISOLATED_WITHIN = 5.0
"""An isolated attempt waits until nothing else is in flight, and may then last."""

# --- Dead letters ----------------------------------------------------------------------------------------------------

REPLAY_QUIET = 5.0
"""Without a new message, the missing ones are completed, deferred or locked elsewhere."""
REPLAY_PATIENCE = 60.0
"""A replay waits for an unavailable destination."""
REPLAY_RELEASE_WITHIN = 5.0
"""A replay releases the messages that it does not settle."""
DUPLICATE_WINDOW_WITHIN = 15.0
"""A namespace says whether a queue detects duplicates: a person waits for it."""

# --- Worker and drain ------------------------------------------------------------------------------------------------

WORKER_TURN = 0.2
"""The worker's loop."""
DISPATCHER_TURN = 0.2
"""The dispatcher while nothing happens."""
LINGER = 5.0
"""A slot waits for another queue before it ends: starting a slot takes longer."""
BACKSTOP = 30.0
"""Beyond its lease, a slot ends by itself."""
PROVEN_AFTER = 10.0
"""A pair that was set up again has both connections, and counts as working."""
FIRST_SET_UP_DELAY = 30.0
"""First delay before a faulted pair is set up again."""
LONGEST_SET_UP_DELAY = 300.0
"""Longest delay before a faulted pair is set up again."""
FIRST_JOB_RETRY = 2.0
"""First delay before a failed job is retried."""
LONGEST_JOB_RETRY = 120.0
"""Longest delay before a failed job is retried."""
SLOT_STARTS_WITHIN = 5.0
"""A slot that has a place sends its first report."""
SHORT_LEASE = 10.0
"""A slot makes room if another pair has none."""
JVM_IS_GONE_WITHIN = 1.0
"""From the first failed Spark call to the end of the JVM, if that is the cause."""
DRAIN_QUIET = 1.0
"""Without a message, a slot of a drain ends, and a peek verifies that the queue is empty."""
SETTLING_INTERVAL = 5.0
"""Between peeks into empty queues that must stay empty."""
SHORTEST_REST = 2.0
"""Shortest delay between jobs on locked messages or destinations that back off."""
LONGEST_REST = 15.0
"""Longest delay between these jobs."""
SHOWN_WITHIN = 900.0
"""Service Bus shows every message that it has accepted (S11)."""

# --- Slots and driver ------------------------------------------------------------------------------------------------

REPORT_EVERY = 1.0
"""A slot reports to the driver."""
SHORTEST_REPORT_DELAY = 0.05
"""Shortest delay between two reports."""
ROWS_SENT_EVERY = 5.0
"""A slot sends the rows of the ledger to the driver: a killed slot loses no older ones."""
UNATTENDED_LEASE = 10.0
"""The lease of a slot that no order reaches, at most: a drain that is stopped waits for its end."""
JOB_WATCHED_EVERY = 2.0
"""Spark's UI gets the counters of a job, and slots on executors that leave are told to stop."""
DRIVER_SILENCE = 5.0
"""Without an answer of the driver, a slot stops: its work would not be on record."""
JOB_SETTLES_WITHIN = 20.0
"""The slots of a job that Spark gave up send their last reports."""
REPORT_ANSWER_WITHIN = REPORT_EVERY + DRIVER_SILENCE / 2
"""A slot waits for one answer, which the driver may hold for REPORT_EVERY."""
LONGEST_HOLD = 2.0
"""Longest time for which the driver holds an answer."""
SLOT_SHARES_FOR = 5.0
"""After its last report, a slot still shares the rate of its pair."""
DRILL_LOOKS_EVERY = 2.0
"""A drill counts the messages in the backlog, and retries to enable its entity."""
DRILL_RESTORES_WITHIN = 300.0
"""A drill insists on enabling its entity; then a person must."""
CANARY_TURN = 0.2
"""A canary waits for its probe in turns of this length."""
CANARY_PEEKS_EVERY = 0.5
"""A canary peeks at its queue."""
CANARY_SETTLES_WITHIN = 10.0
"""The backlog accepts a canary's probe, and a peek for it is answered."""
CANARY_LOOKS_EVERY = 5.0
"""A worker whose pair cannot move a probe checks whether it can."""
RETRY_REACHES_SLOTS = 10.0
"""Slots hear that the operator wants a destination to be retried."""
CONNECTION_LIFE = 10.0
"""A connection to the control or status server."""
REQUEST_WITHIN = 3.0
"""The head of its request arrives."""

# --- Ledger ----------------------------------------------------------------------------------------------------------

RECORD_WITHIN = 5.0
"""A job waits for its record: no transfer waits for a network drive that hangs."""
LEDGER_RETRY_AFTER = 5.0
"""Rows that could not be written are retried."""
LEDGER_STALLED_AFTER = 30.0
"""Without one file written, the ledger counts as unwritable."""
MERGE_NEEDS = 2.0
"""Must be left for the last merge, which is optional."""
LEDGER_KEEP_ALIVE_EVERY = 20.0
"""The ledger learns of jobs that wait to be written."""
PARQUET_PROCESS_KEPT_FOR = 20.0
"""Without a job, the process that makes a worker's Parquet files ends."""
LEDGER_TICK = 0.5
"""The writer's loop."""
MERGE_LONGEST_WAIT = 600.0
"""Longest wait of a small file to be merged."""

# --- Spark -----------------------------------------------------------------------------------------------------------

EXECUTORS_REGISTER_WITHIN = 15.0
"""A new session of a cluster has its first executors; until then a job waits to know how many slots there are."""
EXECUTORS_SETTLE = 2.0
"""No other executor has registered: a job starts with those that are there."""
EXECUTORS_CHECK_EVERY = 0.1
"""Executors are counted."""
FIRST_SPARK_RETRY = 2.0
"""First delay before Spark is started again that did not start or was lost; each failure in a row doubles it."""
LONGEST_SPARK_RETRY = 120.0
"""Longest delay before Spark is started again."""
LOST_JOBS_END_WITHIN = 60.0
"""The jobs of a lost Spark end; a worker in which one hangs ends, too."""
SPARK_CHECK_EVERY = 0.5
"""The watch checks the JVM."""
CONNECT_ASK_EVERY = 2.0
"""The watch asks the Connect server."""
CONNECT_ANSWER_LATE = 1.0
"""An open question makes the watch check the port."""
CONNECT_SILENT_AFTER = 60.0
"""Without an answer, the server counts as lost, although its port answers."""
COUNTED_AFTER = 0.2
"""Outcomes are counted, if fewer than a thousand wait."""
SATURATED_AFTER = 3.0
"""A full window, or most of a core in use: the slot counts as saturated."""
PEEK_RETRY_AFTER = 1.0
"""A peek of the data source reconnects."""
STREAM_POLL_EVERY = 1.0
"""A stream polls entities that had no new messages."""
FIRST_CONSUMED_WITHIN = 0.5
"""A consuming stream waits for the first message of a batch,"""
CONSUMED_WITHIN = 0.2
"""and for one more."""
STREAM_LIST_EVERY = 60.0
"""A stream lists the queues that its patterns fit."""
STREAM_CONNECTION_KEPT_FOR = 30.0
"""An unused connection of a stream is kept."""
STREAM_CHECK_EVERY = 600.0
"""A stream verifies that the entity's numbers have not restarted."""
CLOCK_TOLERANCE = 900.0
"""The clocks of driver and service may differ."""

# --- Sender ----------------------------------------------------------------------------------------------------------

PAIRING_ANSWER_WITHIN = 15.0
"""A namespace accepts the credentials during pairing; it may be unavailable."""
PARTITIONED_TIMEOUT = 15.0
"""Shortest timeout of an operation on a partitioned entity (S8)."""
CLOSE_WITHIN = 5.0
"""A send in flight when its sender closes, and closing a link."""
BUSY_DELAY = 10.0
"""No sender sends to a busy entity (S5)."""
ORDER_HOLD = 5.0
"""New messages wait for the end of the backlog, so that order is kept as an entity returns to the primary."""
ORDER_HOLD_TURN = 0.1
"""Such a message checks again."""
ORDER_CHECK_EVERY = 0.5
"""The backlog of such an entity is peeked at."""
OUT_FOR = 60.0
"""A backlog queue that failed is out of rotation."""
COUPLING_RETRY_AFTER = 5.0
"""A namespace that refused senders is checked again."""
EMBEDDED_TURN = 0.2
"""The embedded syphon while no queue has messages."""
EMBEDDED_REST = 5.0
"""The embedded syphon after a queue could not be received from."""

# --- Status ----------------------------------------------------------------------------------------------------------

OBSERVE_EVERY = 1.0
"""The observer updates the status."""
HUNG_AFTER = 30.0
"""Without a turn, a loop counts as hung."""
STARTS_WITHIN = 600.0
"""A start: a cluster may first have to find executors and pull their image."""
COUNT_EVERY = 60.0
"""The messages of one queue are counted."""
COUNT_HELD_UP_EVERY = 10.0
"""The same while nothing of the queue is received: its messages are counted, and its oldest one is peeked."""
COUNT_DEAD_LETTERS_EVERY = 300.0
"""The same of a queue without work that has dead letters."""
COUNT_AGAIN_AFTER = 10.0
"""Newer messages have made the last count wrong."""
WORK_NOTICED_WITHIN = 5.0
"""The counting thread notices that a queue has work."""
SEEN_FOR = 150.0
"""A message that was seen and left counts as gone."""
LIST_READS_FOR = 6.0
"""A list of dead letters begins no further read."""
REPLAY_ENDS_WITHIN = 5.0
"""The end of the worker waits for a replay that was told to stop."""
LIST_WITHIN = 8.0
"""A list of dead letters is complete, or its request is answered without one."""
LAST_SUCCESS_EVERY = 30.0
"""The last success is written; so much is forgotten when a worker is killed."""
STATUS_LINE_EVERY = 5.0
"""Systemd's status line."""
PROGRESS_LINE_EVERY = 1.0
"""JSON lines of progress."""
EXPORT_EVERY = 15.0
"""Metrics are exported."""
EXPORT_TIMEOUT = 5.0
"""One export."""
EXPORTERS_END_WITHIN = 1.5
"""Exporters send the last values."""
STATUS_ANSWER_WITHIN = 10.0
"""A command waits for an answer of the status server."""

# --- Check and provision ---------------------------------------------------------------------------------------------

CHECK_ANSWER_WITHIN = 15.0
"""An answer during `check`: a person waits for it."""
CHECK_PATIENCE = 45.0
"""All links to one namespace together."""
PROVISION_RETRY_AFTER = 30.0
"""Between two attempts of a step."""
TIER_WITHIN = 10.0
"""A dry run reads the tier of the primary."""
WAIT_SILENTLY = 3.0
"""`check` says what it is waiting for."""
