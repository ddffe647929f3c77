"""Attacks and audits: what an observer can in fact do with what was released.

| module | question it answers |
|---|---|
| `inversion` | what does the gradient of a linear first layer show of its input? |
| `matching` | the same for any network, by optimisation |
| `releasing` | what exactly does an observer see of one batch? |
| `membership` | do losses at the final model tell training examples from others? |
| `audit` | how large must epsilon at least be, given what was seen? |
| `auditing_releases` | the same for one release of a mechanism, drawn many times |
| `canaries` | examples included by coin flips in a real training run |

A guarantee is an upper bound that is proved; an audit is a lower bound that is measured. An attack that fails proves
nothing.
"""
