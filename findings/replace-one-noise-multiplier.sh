#!/usr/bin/env bash
# One package, one event, one neighbouring relation, and two meanings of "noise multiplier".
#
# Versions: dp-accounting 0.6.0 (its Renyi and its PLD accountant), flwr 1.42.0 (its RdpAccountant, which wraps the former).
# Input:    100 releases of Gaussian noise on sums of vectors of norm at most C, no subsampling (all 50 of 50 are drawn), sd = 4 C,
#           neighbours that differ in one replaced vector. Such a sum moves by up to 2 C, so mu = sqrt(100) * 2 / 4 = 5.
# Expected: the same event composed under REPLACE_ONE has about the same epsilon from both accountants (Renyi a little larger).
# Seen:     PLD reads the multiplier as sd / C and doubles the shift itself; Renyi reads it as sd / (what a neighbour moves).
#           With multiplier 4 PLD says what is exact for a shift of 2 C, Renyi what is a bound for a shift of C: less than half.
#           To agree, Renyi has to be handed sd / (2 C). Flower hands it the multiplier of its strategies, whose sd is
#           multiplier * clipping norm / clients: so, for replaced clients, its figure is that of a shift of one clipping norm.
# Moral:    under replace-one never move a multiplier from one accountant to the other, or from Flower to a library that counts
#           a shift of 2 C, without asking which sensitivity it is divided by.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check dp-accounting==0.6.0 flwr==1.42.0 scipy
"$work/env/bin/python" - <<'P'
from importlib.metadata import version
from math import exp, sqrt

from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting import SampledWithoutReplacementDpEvent as Drawn
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from flwr.supercore import privacy_accounting as flower
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant as FlowerRdp
from scipy.optimize import brentq
from scipy.stats import norm

delta, count, sd, people = 1e-5, 100, 4.0, 50  # sd in units of the clipping norm
REPLACE = NeighboringRelation.REPLACE_ONE


def exact(shift):
    """Epsilon of Gaussian noise (Balle and Wang 2018) for a sum that moves by `shift` clipping norms."""
    mu = sqrt(count) * shift / sd
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 500)


def composed(accountant, event):
    accountant.compose(event, count)
    return accountant.get_epsilon(delta)


pld = composed(PLDAccountant(REPLACE), GaussianDpEvent(sd))
renyi = composed(RdpAccountant(neighboring_relation=REPLACE), Drawn(people, people, GaussianDpEvent(sd)))
halved = composed(RdpAccountant(neighboring_relation=REPLACE), Drawn(people, people, GaussianDpEvent(sd / 2)))
config = flower.PrivacyConfig(
    delta, people, flower.NeighboringRelation.REPLACE_ONE, flower.SamplingMethod.WITHOUT_REPLACEMENT
)
theirs = composed(FlowerRdp(config), flower.GaussianPrivacyEvent(sd, people, people))
print("dp-accounting", version("dp-accounting"), "| flwr", version("flwr"))
print(f"exact, sum moves by C     {exact(1):8.3f}")
print(f"exact, sum moves by 2 C   {exact(2):8.3f}")
print(f"PLD, multiplier 4         {pld:8.3f}   expected about the next line's")
print(f"Renyi, multiplier 4       {renyi:8.3f}")
print(f"Renyi, multiplier 2       {halved:8.3f}")
print(f"Flower, multiplier 4      {theirs:8.3f}")
assert abs(pld / exact(2) - 1) < 0.01, "PLD no longer doubles the shift itself"
assert exact(1) <= renyi < 1.3 * exact(1), "Renyi no longer reads the multiplier as sd over what a neighbour moves"
assert exact(2) <= halved < 1.3 * exact(2), "half the multiplier no longer makes Renyi agree"
assert abs(theirs / renyi - 1) < 1e-6, "Flower's figure is no longer dp-accounting's at the same multiplier"
P
