"""Figures that bound the system. Lives here: constants with their units and the seam that enforces them. Not here: settings."""

from __future__ import annotations

from typing import Final

CONTENT_CHARS: Final = 20_000
"""A post, an agent_send, a task: characters, after trimming for agent_send."""
PAYLOAD_BYTES: Final = 256 * 1024
ERROR_CHARS: Final = 2_000
MESSAGE_ID_CHARS: Final = 128
TITLE_CHARS: Final = 200
LABEL_CHARS: Final = 80
AGENT_NAME_CHARS: Final = 64

MAX_ATTEMPTS: Final = 5
"""Agent failures of a local row before it is final."""
MAX_TAKEOVERS: Final = 20
"""Leases lost to dead, paused or stalled workers before a row is final."""
BACKOFF_CAP_SECONDS: Final = 60.0
UNKNOWN_AGENT_DELAY_SECONDS: Final = 5.0

LEASE_SECONDS: Final = 30.0
RENEW_SECONDS: Final = 10.0
STOP_GRACE_SECONDS: Final = 10.0
STUCK_AFTER_SECONDS: Final = 5.0
"""An agent whose scope was cancelled this long ago and still runs is stuck."""
COMMIT_SECONDS: Final = 10.0
"""Time limit of a shielded commit; past it the outcome is unknown until read back."""

MAX_HOPS: Final = 32
PAIR_PER_MINUTE: Final = 60
MAILBOX_DEPTH: Final = 10_000
CHILDREN_PER_PARENT: Final = 4
CHILDREN_PER_PROJECT: Final = 16

BATCH_OPS: Final = 512
BATCH_BYTES: Final = 4 * 1024 * 1024
LANE_OPS: Final = 20_000
LANE_BYTES: Final = 64 * 1024 * 1024

TOKEN_BLOCK_BYTES: Final = 200
TOKEN_BLOCK_SECONDS: Final = 0.05
TOKEN_BLOCK_SECONDS_LOADED: Final = 0.25

READ_CHARS: Final = 20_000
"""agent_read returns at most this many characters, newest kept."""
EVENT_KEEP_SECONDS: Final = 24 * 3600.0
KEY_KEEP_SECONDS: Final = 90 * 24 * 3600.0
"""What a message's key, digest and marker outlive its pruned body by (INB-4)."""
PROCESS_KEEP_SECONDS: Final = 24 * 3600.0
"""A process that claims nothing for so long is dead."""
PRUNE_MOST: Final = 500
"""Messages that one prune looks at: nobody waits behind it for long."""
PAGE_LIMIT: Final = 200
RESTORE_JUMP: Final = 1_000_000_000
"""What a restore adds to every counter: more than can have been given out between a backup and its restore (OPS-5)."""
