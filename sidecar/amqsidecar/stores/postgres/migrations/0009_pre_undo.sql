-- What people discarded can be put back for a while. Its message stays in `message`. Columns as those
-- of `redelivery`, in whatever order. Older programs discard for good.
CREATE TABLE discarded (
    id bigint PRIMARY KEY,
    operation bigint NOT NULL,
    discarded_at_ms bigint NOT NULL,
    state smallint NOT NULL,
    due_at_ms bigint NOT NULL,
    destination text NOT NULL,
    is_final boolean NOT NULL,
    source text NOT NULL,
    redelivery_id text NOT NULL,
    redelivery_count bigint NOT NULL,
    delay_ms bigint NOT NULL,
    expiration_ms bigint NOT NULL,
    rule text NOT NULL,
    encoding text NOT NULL,
    received_at_ms bigint NOT NULL,
    size_bytes bigint NOT NULL,
    cause text,
    message_id text,
    reason text,
    cause_group text,
    passes_gates boolean NOT NULL,
    gate text,
    final_queue text,
    recall smallint NOT NULL,
    recall_operation bigint NOT NULL
);

CREATE INDEX discarded_by_operation ON discarded (operation, id);
CREATE INDEX discarded_by_age ON discarded (discarded_at_ms, id);
