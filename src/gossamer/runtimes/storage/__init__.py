"""Storage that outlives a process: the store of a node, and the ledger of a data owner, in SQLite."""
