"""Attacks and audits: what an observer can in fact do with what was released.

| module | question it answers |
|---|---|
| `inversion` | what does the gradient of a linear first layer show of its input? |
| `matching` | the same for any network, by optimisation |
| `membership` | do losses at the final model tell training examples from others? |
| `audit` | how large must epsilon at least be, given what was seen? |
| `canaries` | examples included by coin flips in a real training run |
| `leak`, `neighbours` | does anything but noise tell two neighbouring data sets apart? |

A guarantee is an upper bound that is proved; an audit is a lower bound that is measured. An attack that fails proves
nothing.
"""
