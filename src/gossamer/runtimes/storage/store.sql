-- Tables of the store of a node. `of_part` is the hash of the part, for which it stands in the seal: so what is
-- deleted is not read again.

CREATE TABLE journal (number INTEGER PRIMARY KEY, last INTEGER NOT NULL, of_part BLOB NOT NULL,
    part BLOB NOT NULL);
CREATE TABLE snapshot (number INTEGER PRIMARY KEY, last INTEGER NOT NULL, of_part BLOB NOT NULL,
    part BLOB NOT NULL);
