-- Tables of the store of a node.

CREATE TABLE journal (number INTEGER PRIMARY KEY, last INTEGER NOT NULL, part BLOB NOT NULL);
CREATE TABLE snapshot (number INTEGER PRIMARY KEY, last INTEGER NOT NULL, part BLOB NOT NULL);
