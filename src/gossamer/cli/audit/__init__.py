"""Commands about guarantees: accounting for releases, and attacks on what a run releases."""
