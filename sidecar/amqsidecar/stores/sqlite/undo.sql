-- What people discarded can be put back for a while; since version 12. Its message stays in `message`.
CREATE TABLE discarded (
    id INTEGER PRIMARY KEY,
    operation INTEGER NOT NULL,
    discarded_at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    is_final INTEGER NOT NULL,
    source INTEGER NOT NULL,
    redelivery_id TEXT NOT NULL,
    redelivery_count INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    expiration_ms INTEGER NOT NULL,
    rule INTEGER NOT NULL,
    encoding INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    cause TEXT,
    message_id TEXT,
    reason TEXT,
    cause_group INTEGER NOT NULL,
    passes_gates INTEGER NOT NULL,
    gate TEXT,
    message_group TEXT,
    final_queue INTEGER NOT NULL,
    recall INTEGER NOT NULL,
    recall_operation INTEGER NOT NULL
) STRICT;

CREATE INDEX discarded_by_operation ON discarded (operation);
CREATE INDEX discarded_by_age ON discarded (discarded_at_ms, id, size_bytes);
