"""The tables, as the first version creates them; later versions are steps in migrations.py.

Text that people see is stored as BLOB (see codec.py). ``seq`` is an explicit integer key: the
search indexes refer to it, and a bare rowid may move under VACUUM. ``parent_id`` is no foreign
key: a message whose parent was lost must still be readable.
"""

from __future__ import annotations

APPLICATION_ID = 0x48525448  # "HRTH"

TABLES = (
    """CREATE TABLE chats(
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title BLOB NOT NULL,
        system_prompt BLOB NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
        leaf_id TEXT, pinned INTEGER NOT NULL DEFAULT 0, deleted_at REAL)""",
    """CREATE TABLE messages(
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        parent_id TEXT, role TEXT NOT NULL, status TEXT NOT NULL, created_at REAL NOT NULL,
        token_ids BLOB, covers INTEGER NOT NULL DEFAULT 0, model_fingerprint TEXT,
        model_name BLOB, usage TEXT, finish_reason TEXT)""",
    "CREATE INDEX messages_of_chat ON messages(chat_id, seq, id, parent_id)",
    "CREATE INDEX streaming ON messages(status) WHERE status = 'streaming'",
    """CREATE TABLE parts(
        seq INTEGER PRIMARY KEY,
        message_seq INTEGER NOT NULL REFERENCES messages(seq) ON DELETE CASCADE,
        position INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL, meta TEXT,
        name TEXT, blob_sha256 TEXT, checksum INTEGER NOT NULL)""",
    "CREATE INDEX parts_of_message ON parts(message_seq, position)",
    """CREATE TABLE journal(
        message_seq INTEGER NOT NULL REFERENCES messages(seq) ON DELETE CASCADE,
        position INTEGER NOT NULL, body BLOB NOT NULL, token_ids BLOB NOT NULL,
        PRIMARY KEY(message_seq, position)) WITHOUT ROWID""",
    "CREATE TABLE blobs(sha256 TEXT PRIMARY KEY, created_at REAL NOT NULL, data BLOB)",
    "CREATE TABLE unindexed(part_seq INTEGER PRIMARY KEY)",
    """CREATE VIEW part_text AS
        SELECT seq, name, CAST(body AS TEXT) AS body FROM parts
        WHERE kind IN ('text', 'attachment')""",
    """CREATE TRIGGER part_added AFTER INSERT ON parts WHEN new.kind IN ('text', 'attachment')
        BEGIN INSERT INTO unindexed VALUES (new.seq); END""",
    """CREATE TRIGGER part_removed AFTER DELETE ON parts WHEN old.kind IN ('text', 'attachment')
        BEGIN
        INSERT INTO words(words, rowid, name, body)
            SELECT 'delete', old.seq, old.name, CAST(old.body AS TEXT)
            WHERE NOT EXISTS (SELECT 1 FROM unindexed WHERE part_seq = old.seq);
        INSERT INTO grams(grams, rowid, name, body)
            SELECT 'delete', old.seq, old.name, CAST(old.body AS TEXT)
            WHERE NOT EXISTS (SELECT 1 FROM unindexed WHERE part_seq = old.seq);
        DELETE FROM unindexed WHERE part_seq = old.seq;
        END""",
)

REASONING_JOURNAL = """CREATE TABLE reasoning_journal(
        message_seq INTEGER NOT NULL REFERENCES messages(seq) ON DELETE CASCADE,
        position INTEGER NOT NULL, body BLOB NOT NULL, seconds REAL NOT NULL,
        PRIMARY KEY(message_seq, position)) WITHOUT ROWID"""

SEARCH_TABLES = (
    """CREATE VIRTUAL TABLE words USING fts5(name, body, content='part_text',
        content_rowid='seq', tokenize='unicode61 remove_diacritics 2')""",
    """CREATE VIRTUAL TABLE grams USING fts5(name, body, content='part_text',
        content_rowid='seq', tokenize='trigram')""",
)
HAS_NUL = "instr(body, x'00') > 0"  # of a part; as it stands in its index
