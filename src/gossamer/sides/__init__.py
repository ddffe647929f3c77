"""Data sides: what leaves a party's data, in which world, and what it is charged for.

Three facts that were one are kept apart:

| fact | values | where |
|---|---|---|
| *kind of release* | samples, client updates, masked sums, a stream, a curator's sums, nothing | `plan` |
| *world* | simulation, deployment, a laboratory of faults | `home` |
| *trust scope* | who may hear what is raw | `plan.SidePlan.scope` |

A `plan.SidePlan` is data. `pool.open_pool` opens a `pool.Pool` of data sides from plans and a `home.Home`. Each side
is one `machine.Side`, which charges, draws and answers, in this order; what differs from kind to kind is a
`machine.Rule`, and what differs from world to world is the `Home`.
"""
