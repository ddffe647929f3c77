"""What a data owner keeps: named data, a policy, a ledger and what was spent."""
