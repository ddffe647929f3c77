-- Tables of the ledger of a data owner.

CREATE TABLE data_set (name TEXT PRIMARY KEY, renyi_order REAL NOT NULL, relation TEXT NOT NULL, series BLOB NOT NULL);

-- `divergence`, `mu` and `failure` are of the whole plan; a run in a series has spent none.
CREATE TABLE run (data_set TEXT NOT NULL, name TEXT NOT NULL, plan BLOB NOT NULL, divergence REAL NOT NULL,
    mu REAL NOT NULL, failure REAL NOT NULL, series TEXT, place INTEGER, PRIMARY KEY (data_set, name));
CREATE TABLE charge (data_set TEXT NOT NULL, run TEXT NOT NULL, kind BLOB NOT NULL, releases INTEGER NOT NULL,
    PRIMARY KEY (data_set, run, kind));

-- By which key the hashes of examples are.
CREATE TABLE secret (mark BLOB NOT NULL);
CREATE TABLE content (data_set TEXT NOT NULL, number INTEGER NOT NULL, accepted TEXT NOT NULL,
    fingerprint BLOB NOT NULL, examples INTEGER NOT NULL, added INTEGER NOT NULL, gone INTEGER NOT NULL,
    PRIMARY KEY (data_set, number));
-- `last` is the number of the last content that had it.
CREATE TABLE example (data_set TEXT NOT NULL, hash BLOB NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (data_set, hash)) WITHOUT ROWID;

CREATE TABLE receipt (chain TEXT NOT NULL, number INTEGER NOT NULL, lines TEXT NOT NULL,
    PRIMARY KEY (chain, number)) WITHOUT ROWID;
CREATE TABLE countersignature (chain TEXT NOT NULL, witness TEXT NOT NULL, releases INTEGER NOT NULL,
    head TEXT NOT NULL, signature TEXT NOT NULL, noted TEXT NOT NULL, PRIMARY KEY (chain, witness)) WITHOUT ROWID;
