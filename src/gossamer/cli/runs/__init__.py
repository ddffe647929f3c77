"""Commands for who runs experiments: running, checking, planning, faults."""
