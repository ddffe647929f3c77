-- Tables of what a witness of receipts keeps.

CREATE TABLE peer (name TEXT PRIMARY KEY, seen INTEGER NOT NULL, seen_head BLOB NOT NULL, told INTEGER NOT NULL,
    told_head BLOB NOT NULL);
CREATE TABLE evidence (name TEXT PRIMARY KEY, releases INTEGER NOT NULL, head BLOB NOT NULL);
