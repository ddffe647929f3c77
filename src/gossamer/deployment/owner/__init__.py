"""Records of a data owner: named data, a policy, a ledger and what was spent."""
