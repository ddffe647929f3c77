"""One party of a real federation: a process that runs its node over a broker, on data that stay where they are."""
